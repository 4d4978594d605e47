import numpy as np
import pytest
from PIL import Image

from fedloom.config.models import DataConfig, Experiment, validated
from fedloom.data.configured import configured_source, configured_split
from fedloom.errors import FedloomError
from fedloom.runs.experiment import with_complete_config
from fedloom.runs.notices import notices_of
from fedloom.runs.preparing import prepare


def data(**options) -> DataConfig:
    config: Experiment = validated(Experiment, {"data": options})
    return config.data


@pytest.fixture
def sites(tmp_path):
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, samples in (("north", 40), ("south", 60)):
        draw = np.random.default_rng(samples)
        x = draw.integers(256, size=(samples, 4, 4), dtype=np.uint8)
        np.savez(folder / f"{name}.npz", x=x, y=np.arange(samples) % 2)
    return str(folder)


@pytest.mark.parametrize(
    ("options", "clients"),
    [
        ({}, 2),
        ({"partition": "iid"}, 8),
        ({"partition": "natural"}, 2),
        ({"partition": "sites"}, 2),
        ({"partition": "natural+rotation"}, 2),
        ({"partition": "natural", "clients": 5}, 5),
        ({"partition": "label-skew:1", "clients": 4}, 4),
    ],
)
def test_how_many_clients(sites, options, clients):
    asked = data(name=sites, min_samples=4, **options)
    assert len(configured_split(asked, 0, configured_source(asked))) == clients


@pytest.mark.parametrize("kind", ["sites", "tree", "table", "arrays"])
def test_what_comes_by_site_or_client_stays_so_and_that_is_told(sites, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path / "cache"))
    usual = "natural" if kind in ("table", "arrays") else "sites"
    name = {
        "sites": sites,
        "arrays": str(tmp_path / "all.npz"),
        "table": str(tmp_path / "all.csv"),
    }.get(kind, str(tmp_path / "tree"))
    rows = ["file,label,client"]
    pixels = np.random.default_rng(0).integers(256, size=(40, 8, 8), dtype=np.uint8)
    owners = np.array(["north", "south"])[np.arange(40) // 20]
    np.savez(tmp_path / "all.npz", x=pixels, y=np.arange(40) % 2, client=owners)
    for number, (image, owner) in enumerate(zip(pixels, owners, strict=True)):
        file = tmp_path / "tree" / owner / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
        rows.append(f"{file},{'ab'[number % 2]},{owner}")
    (tmp_path / "all.csv").write_text("\n".join(rows))
    prepared = prepare(validated(Experiment, {"data": {"name": name}}))
    assert (prepared.split.partition, prepared.config.data.partition, len(prepared.split)) == (
        usual,
        usual,
        2,
    )
    groups = np.asarray(prepared.source.groups)
    for client in range(2):
        assert set(groups[np.concatenate(prepared.split.client(client))]) == {client}
    grouping = {"sites": "sites", "natural": "clients"}[usual]
    assert notices_of(prepared)[0] == (
        f"the data comes in 2 {grouping} and stays so (--partition {usual}); "
        "another partition would mix them"
    )
    asked = prepare(validated(Experiment, {"data": {"name": name, "partition": usual}}))
    assert not any("stays so" in text for text in notices_of(asked))
    mixed = prepare(
        validated(Experiment, {"data": {"name": name, "partition": "iid", "clients": 2}})
    )
    assert mixed.split.partition == "iid"


def test_clients_that_are_joined_are_told_so(tmp_path):
    x = np.random.default_rng(0).integers(256, size=(60, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "all.npz", x=x, y=np.arange(60) % 2, client=np.arange(60) // 20)
    asked = {"name": str(tmp_path / "all.npz"), "clients": 2}
    prepared = prepare(validated(Experiment, {"data": asked}))
    assert notices_of(prepared)[0] == (
        "the data comes in 3 clients, joined or cut into 2 (--partition natural); "
        "another partition would mix them"
    )
    np.savez(tmp_path / "all.npz", x=x, y=np.arange(60) % 2, client=np.zeros(60, int))
    prepared = prepare(validated(Experiment, {"data": {"name": asked["name"]}}))
    assert (
        notices_of(prepared)[0]
        == "the data comes from one client, which is the only client (--partition natural)"
    )


def test_a_number_of_clients_does_not_mix_sites(sites):
    asked = data(name=sites, clients=4)
    with pytest.raises(
        FedloomError, match="one client per site, 2 in all, but got 4; leave --clients out, or mix"
    ):
        configured_split(asked, 0, configured_source(asked))


def test_a_run_of_a_comparison_says_what_its_split_is(sites):
    first = prepare(validated(Experiment, {"data": {"name": sites}}))
    again = prepare(validated(Experiment, {"data": {"name": sites}}), first.split)
    assert (again.split.partition, again.config.data.partition) == ("sites", "sites")
    digits = prepare(validated(Experiment, {}))
    assert (digits.split.partition, digits.notices) == ("dirichlet:0.2", ())


def test_a_split_file_is_used_again(sites, tmp_path):
    config = data(name=sites, partition="natural", clients=4)
    split = configured_split(config, 3, configured_source(config))
    split.save(tmp_path / "split.json")
    for more in ({}, {"clients": 4}, {"partition": "natural", "clients": 4}):
        asked = data(name=sites, split=str(tmp_path / "split.json"), **more)
        assert configured_split(asked, 0, configured_source(asked)).hash == split.hash


def test_flags_that_contradict_a_split_file(sites, tmp_path):
    config = data(name=sites, partition="iid", clients=4)
    configured_split(config, 3, configured_source(config)).save(tmp_path / "split.json")

    def refusal(name=sites, **more) -> str:
        asked = data(name=name, split=str(tmp_path / "split.json"), **more)
        with pytest.raises(FedloomError) as caught:
            configured_split(asked, 0, configured_source(asked))
        return str(caught.value)

    assert "--clients must agree with the split" in refusal(clients=5)
    assert "got 5 and the file has 4; leave --clients out." in refusal(clients=5)
    assert "got natural and the file has iid; leave --partition out." in refusal(
        partition="natural"
    )
    assert "the split must be of the data digits as it is now, but it was made of sites" in refusal(
        name="digits"
    )


def test_the_configuration_of_a_run_says_what_its_split_file_says(sites, tmp_path):
    data_config = data(name=sites, partition="natural", clients=4)
    configured_split(data_config, 3, configured_source(data_config)).save(tmp_path / "split.json")
    raw = {"data": {"name": sites, "split": str(tmp_path / "split.json")}}
    config = with_complete_config(prepare(validated(Experiment, raw))).config
    assert (config.data.partition, config.data.clients) == ("natural", 4)
    assert (
        prepare(
            validated(Experiment, config.model_dump(mode="json", exclude_none=True))
        ).split.partition
        == "natural"
    )
