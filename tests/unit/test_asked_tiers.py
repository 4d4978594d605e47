"""What a user asks for as tiers, and what becomes of it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedloom.config.flags import FLAGS
from fedloom.config.models import DevicesConfig, Experiment, TiersConfig
from fedloom.cost.profile import Entry, Machine, Profile
from fedloom.cost.steps import Steps, model_of
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Tiered
from fedloom.methods import METHODS, recipe, searched
from fedloom.methods.fedoras_frame import Frame
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.rng import rng
from fedloom.runs.notices import of_tiers
from fedloom.runs.preparing import check_device
from fedloom.runs.profiles import save
from fedloom.runs.tier_latencies import with_latencies_read
from fedloom.runs.tiers import deal_of, devices_in, devices_read, with_files_read
from fedloom.searchers.paths import PathSampler
from fedloom.spaces import open_space
from fedloom.types import Task, Tier, TierDeal

CLIENTS = 8


def tiered(name: str, shape: tuple[int, ...], classes: int) -> Tiered:
    space = open_space(name)
    table = space.cost_table(shape, classes, space.usual)
    assert table is not None
    return Tiered(table, space.tier_rule, tuple(slot.options for slot in space.slots))


TINY = tiered("cnn-tiny", (3, 16, 16), 10)


def deal(**changes: object) -> TierDeal:
    config = TiersConfig.model_validate(changes)
    return deal_of(config, TINY, CLIENTS, seed=0)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "printed"),
    [
        ("cnn-l", (3, 32, 32), 10, [121, 222, 324, 716]),
        ("cnn-s", (1, 40, 51), 12, [5.0, 7.6, 10.2, 20]),
        ("rnn", (80,), 90, [7.9, 12.9, 17.9, 22.9, 33.9]),
    ],
)
def test_the_papers_limits(
    name: str, shape: tuple[int, ...], classes: int, printed: list[float]
) -> None:
    """Within 1.5 % of what the paper prints, as MACs that its tool counts."""
    tiers = deal_of(TiersConfig(), tiered(name, shape, classes), 20, seed=0).tiers
    limits = [tier.limit["macs_paper"] / 1e6 for tier in tiers]
    assert limits == pytest.approx(printed, rel=0.015)


def test_two_tiers_of_four_clients_each_by_default() -> None:
    by_default = deal()
    assert len(by_default.tiers) == 2
    assert [by_default.of_client.count(tier) for tier in (1, 2)] == [4, 4]
    assert by_default.tiers[-1].limit == {"macs": TINY.table.dearest("macs")}


def test_limits_numbers_and_max() -> None:
    tiers = deal(limits="300k,0.6M,max", cost="macs").tiers
    assert [tier.limit["macs"] for tier in tiers] == [300e3, 600e3, TINY.table.dearest("macs")]
    assert [tier.number for tier in tiers] == [1, 2, 3]
    assert len(deal(limits="4").tiers) == 4
    assert len(deal(limits="300k/max").tiers) == 2  # in a variant, where commas part options


def test_a_table_of_tiers(tmp_path: Path) -> None:
    file = tmp_path / "tiers.toml"
    file.write_text(
        '[[tier]]\nname = "old"\nshare = 0.75\nmacs = 4e5\nparams = 20000\n'
        'unsupported = ["mb3e2"]\n'
        '[[tier]]\nname = "new"\nshare = 0.25\nparams = 60000\n'
    )
    config = with_files_read(TiersConfig(limits=str(file)))
    file.unlink()  # from here on the file is not needed
    of_file = deal_of(config, TINY, CLIENTS, seed=0)
    old, new = of_file.tiers
    assert (old.name, old.limit, old.unsupported) == (
        "old",
        {"macs": 4e5, "params": 2e4},
        ("mb3e2",),
    )
    assert (new.name, new.limit) == ("new", {"params": 6e4})
    assert of_file.of_client.count(1) == 6


def test_a_table_of_tiers_speaks_like_the_flag(tmp_path: Path) -> None:
    file = tmp_path / "tiers.toml"
    file.write_text('[[tier]]\nmacs = "300k"\n[[tier]]\nmacs = "max"\n')
    tiers = deal_of(with_files_read(TiersConfig(limits=str(file))), TINY, CLIENTS, seed=0).tiers
    assert [tier.limit for tier in tiers] == [
        tier.limit for tier in deal(limits="300k,max", cost="macs").tiers
    ]
    file.write_text('[[tier]]\nlatency_ms = "max"\n')
    with pytest.raises(FedloomError, match="must have the profile of a device"):
        deal_of(with_files_read(TiersConfig(limits=str(file))), TINY, CLIENTS, seed=0)
    file.write_text('[[tier]]\nmacs = "many"\n')
    with pytest.raises(FedloomError, match="many"):
        with_files_read(TiersConfig(limits=str(file)))


def test_a_file_of_who_is_in_which(tmp_path: Path) -> None:
    file = tmp_path / "deal.json"
    file.write_text("[1, 2, 2, 2, 2, 2, 2, 1]")
    assert deal(file=str(file)).of_client == (1, 2, 2, 2, 2, 2, 2, 1)


def test_devices_of_a_file_decide_and_the_file_is_needed_once(tmp_path: Path) -> None:
    file = tmp_path / "devices.csv"
    rows = [f"{client},{10 - client}e8,1,1,1" for client in range(CLIENTS)]
    file.write_text("\n".join(["client,macs_per_second,lan,wan_down,wan_up", *rows]))
    config = devices_read(DevicesConfig(table=str(file)), CLIENTS, seed=0)
    file.unlink()
    config = DevicesConfig.model_validate(config.model_dump(mode="json"))  # as a resume reads it
    devices = devices_in(config, CLIENTS, seed=0)
    by_speed = deal_of(TiersConfig(shares=[0.25, 0.75]), TINY, CLIENTS, seed=0, devices=devices)
    assert by_speed.of_client == (2, 2, 2, 2, 2, 2, 1, 1)
    with pytest.raises(FedloomError, match="got --tier-file and --devices"):
        deal_of(TiersConfig(assigned=[1, 2] * 4), TINY, CLIENTS, seed=0, devices=devices)


def test_the_phones_of_a_seed() -> None:
    assert devices_in(DevicesConfig(), CLIENTS, seed=0) is None
    assert devices_read(DevicesConfig(table="phones"), CLIENTS, seed=0).rows is None
    phones = devices_in(DevicesConfig(table="phones"), CLIENTS, seed=0)
    assert phones is not None
    by_speed = deal_of(TiersConfig(), TINY, CLIENTS, seed=0, devices=phones)
    of_first = [
        phone.macs_per_second
        for phone, tier in zip(phones, by_speed.of_client, strict=True)
        if tier == 1
    ]
    of_second = [
        phone.macs_per_second
        for phone, tier in zip(phones, by_speed.of_client, strict=True)
        if tier == 2
    ]
    assert len(of_first) == len(of_second) == 4 and max(of_first) <= min(of_second)


# Limits in milliseconds

TASK = Task(
    "fedoras",
    {"space": "cnn-tiny"},
    "image",
    (3, 16, 16),
    tuple("abcdefghij"),
    0,
    (0.0,) * 3,
    (1.0,) * 3,
)


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """A profile on which every piece takes a millisecond."""
    model = model_of(TASK, searched(TASK))
    assert model is not None
    machine = Machine(processor="abacus", system="Desk", device="cpu", torch="1")
    entries = []
    for piece in sorted(Steps(model).all_pieces()):
        entries.append(Entry(**piece._asdict(), ms=1.0, spread_ms=0.0, repeats=3))
    profile = Profile(machine=machine, made="2026-01-01", entries=tuple(entries))
    save(profile, tmp_path / "abacus.json")
    return tmp_path / "abacus.json"


def test_limits_in_milliseconds(device: Path) -> None:
    """Seven pieces are in every path, and a layer has one more unless it is the identity."""
    asked = TiersConfig(limits="9,max", cost="latency_ms")
    config = with_latencies_read(asked, str(device), TASK)
    device.unlink()  # from here on the profile is not needed
    config = TiersConfig.model_validate(config.model_dump(mode="json"))
    small, large = deal_of(config, TINY, CLIENTS, seed=0).tiers
    assert (small.limit, large.limit) == ({"latency_ms": 9.0}, {"latency_ms": 13.0})
    assert small == Tier.from_plain(small.to_plain())
    options = FedorASOptions(space="cnn-tiny")
    costs = Frame.of_task(TASK, options).costs_of(small)
    sampler = PathSampler(costs)
    identity = TINY.names[0].index("identity")
    for number in range(50):
        path = sampler.draw((9.0,), rng(number, "x"))
        assert sum(op != identity for op in path) <= 2
    by_rule = deal_of(config.model_copy(update={"limits": "3"}), TINY, CLIENTS, seed=0).tiers
    # More than a twentieth of all costs is that of the dearest paths, so limits rise evenly to it.
    assert [tier.limit["latency_ms"] for tier in by_rule] == [9.0, 11.0, 13.0]


def test_a_table_of_tiers_with_milliseconds(device: Path, tmp_path: Path) -> None:
    file = tmp_path / "tiers.toml"
    file.write_text(
        f'[[tier]]\nlatency_ms = 9\nmacs = 4e5\nprofile = "{device}"\n[[tier]]\nparams = 60000\n'
    )
    config = with_latencies_read(with_files_read(TiersConfig(limits=str(file))), None, TASK)
    first, second = deal_of(config, TINY, CLIENTS, seed=0).tiers
    assert first.limit == {"macs": 4e5, "latency_ms": 9.0} and first.latency is not None
    assert first.latency.fixed == 7.0
    assert second.latency is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "latency_ms = 9",
            "tier 1 has a limit in latency_ms but no profile; measure one with `fedloom profile",
        ),
        ('profile = "x"\nmacs = 4e5', "must come with a limit in latency_ms"),
        ('latency_ms = 9\nprofile = "/nowhere/x.json"', "profile /nowhere/x.json must be there"),
    ],
)
def test_milliseconds_that_nobody_can_tell(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "tiers.toml"
    file.write_text(f"[[tier]]\n{text}\n")
    with pytest.raises(FedloomError, match=words):
        with_latencies_read(with_files_read(TiersConfig(limits=str(file))), None, TASK)


def test_milliseconds_without_a_profile_of_this_space(device: Path) -> None:
    with pytest.raises(
        FedloomError, match=r"must have the profile of a device .* there is no --profile"
    ):
        with_latencies_read(TiersConfig(cost="latency_ms"), None, TASK)
    larger = replace(TASK, shape=(3, 20, 20))
    with pytest.raises(
        FedloomError, match=r"must have every operation of the network, but it has no"
    ):
        with_latencies_read(TiersConfig(cost="latency_ms"), str(device), larger)
    plain = replace(TASK, method="fedavg", options={"network": "cnn", "width": 1.0})
    with pytest.raises(FedloomError, match="networks of a search space"):
        with_latencies_read(TiersConfig(cost="latency_ms"), str(device), plain)


@pytest.mark.parametrize("name", ["phones", "equal", "mine.csv"])
def test_one_device_or_everybodys(name: str) -> None:
    with pytest.raises(FedloomError, match=f"did you mean --devices {name}"):
        check_device(name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"limits": "1,max", "cost": "macs"}, "cheapest path has"),
        ({"limits": "600k,300k", "cost": "macs"}, "must rise"),
        ({"limits": "much"}, "limits such as"),
        ({"limits": "0"}, "at least one tier"),
        ({"shares": [0.5, 0.2]}, "sum to 0.7"),
        ({"shares": [0.5, 0.2, 0.3]}, "each of the 2 tiers"),
        ({"unsupported": "mb3e3"}, "mb3e2"),
        (
            {"unsupported": "conv1,ds3e0.5,ds3e1,ds3e2,mb1e2,mb3e0.5,mb3e1,mb3e2,identity"},
            "layer 1 has none",
        ),
        ({"limits": "nowhere.toml"}, "readable TOML file of tiers"),
        ({"file": "nowhere.json"}, "tier of every client"),
    ],
)
def test_bad_tiers_in_one_sentence(changes: dict[str, object], words: str) -> None:
    with pytest.raises(FedloomError, match=words):
        deal(**changes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2]", "it has 2"),
        ("[1, 1, 1, 1, 1, 1, 1, 3]", "it names 3"),
        ("[1, 1, 1, 1, 1, 1, 1, 1]", "tier 2 has none"),
    ],
)
def test_a_bad_file_of_who_is_in_which(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "deal.json"
    file.write_text(text)
    with pytest.raises(FedloomError, match=words):
        deal(file=str(file))


def test_no_option_of_a_method_has_the_name_of_a_common_flag() -> None:
    flags = {flag.name.replace("-", "_") for flag in FLAGS}
    for name in METHODS.names():
        assert not flags & set(recipe(name).options.model_fields), name


# What a user is told of it


def notices(config: Experiment, deal: TierDeal | None) -> list[str]:
    return of_tiers(SimpleNamespace(config=config, tiers=deal))


def test_a_tier_that_is_empty_by_chance_is_told() -> None:
    few = deal_of(TiersConfig(limits="300k,400k,max"), TINY, 2, seed=0)
    (text,) = notices(Experiment(method="fedoras"), few)
    assert text == "tier 3 has no clients: there are too few clients for its share"
    assert notices(Experiment(method="fedoras"), deal()) == []


@pytest.mark.parametrize("given", [{"tiers": {"shares": [0.5, 0.5]}}, {"tiers": {"limits": "2"}}])
def test_a_method_without_tiers_says_so_once(given: dict[str, object]) -> None:
    (text,) = notices(Experiment.model_validate({"method": "fedavg", **given}), None)
    assert text.startswith("fedavg has no device tiers")
    assert notices(Experiment(), None) == []
