"""The tiers of a federation's sites, by what they tell of their devices."""

import json
from pathlib import Path

import pytest

from fedloom.config.models import Experiment, TiersConfig
from fedloom.cost.limits import DeviceLimit, Limit
from fedloom.deploy.devices import allows, tiers_of_sites
from fedloom.deploy.settled import checked, settle
from fedloom.deploy.terms import DeviceFacts, Facts
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Tiered
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.records.folder import RunFolder
from fedloom.spaces.cost_table import CostTable, OpCost
from fedloom.spaces.tier_rule import TierRule
from fedloom.types import Tier

SPACE = str(Path(__file__).parents[2] / "contract" / "short_chain.toml")
FACTS = {
    "kind": "image",
    "shape": (1, 6, 6),
    "labels": ("a", "b"),
    "named": True,
    "mean": (0.0,),
    "std": (1.0,),
}
# Two layers, "small" and "large": paths cost 10, 30, 50 MACs and 1, 2, 3 parameters.
LAYER = (OpCost(0, 0, 0), OpCost(1, 20, 25))
TIERED = Tiered(
    CostTable(OpCost(1, 10, 12), (LAYER, LAYER)),
    TierRule.usual(2, "macs"),
    (("small", "large"),) * 2,
)
ASKED = TiersConfig(limits="20,40,max", cost="macs")


def device(*unsupported, **most):
    return DeviceLimit(Limit(**most), frozenset(unsupported))


def dealt(config=ASKED, **devices):
    return tiers_of_sites(config, TIERED, devices, 0)


def test_a_site_is_of_the_highest_tier_that_its_device_allows():
    of_sites = dealt(
        a=device(macs=20),
        b=device(macs=39),
        c=device(macs=40),
        d=device(macs=50),
        e=device(),
        f=device(macs=1e9),
    )
    assert of_sites.deal.of_client == (1, 1, 2, 3, 3, 3)
    assert of_sites.notices == ()
    assert [tier.limit for tier in of_sites.deal.tiers] == [
        {"macs": 20},
        {"macs": 40},
        {"macs": 50},
    ]


def test_sites_are_numbered_by_their_names():
    assert dealt(west=device(macs=20), east=device(macs=40)).deal.of_client == (2, 1)


def test_less_than_the_first_tier_and_a_tier_without_sites_are_told():
    of_sites = dealt(a=device(macs=19), b=device(macs=45))
    assert of_sites.deal.of_client == (1, 2)
    assert of_sites.notices[0].startswith(
        "the [device] section of a allows less than tier 1 needs (20 macs)"
    )
    assert of_sites.notices[1:] == ("no site belongs to tier 3",)


@pytest.mark.parametrize(
    ("limit", "most", "expected"),
    [
        (
            {"macs_paper": 30.0},
            {"macs": 30},
            True,
        ),  # it counts more, so 30 of it are at most 30 macs
        ({"macs_paper": 31.0}, {"macs": 30}, False),
        (
            {"params": 2.0},
            {"macs": 49},
            False,
        ),  # nothing says that it has fewer than the dearest path
        ({"params": 2.0}, {"macs": 50}, True),
        ({"macs": 50.0}, {"params": 2}, False),
        ({"macs": 50.0, "params": 2.0}, {"params": 2}, True),
        ({"macs": 50.0}, {"latency_ms": 1}, True),  # which the run does not limit
        ({"latency_ms": 3.0}, {"latency_ms": 2}, False),
        ({"latency_ms": 2.0}, {"latency_ms": 2}, True),
    ],
)
def test_limits_in_other_units(limit, most, expected):
    assert allows(device(**most), Tier(1, limit, 1.0), TIERED.table) is expected


def test_a_tier_leaves_out_what_one_of_its_sites_does_not_support():
    of_sites = dealt(a=device("large", "of another space", macs=20), b=device(macs=20), c=device())
    assert [tier.unsupported for tier in of_sites.deal.tiers] == [("large",), (), ()]


def test_sites_without_a_path_in_common_are_refused():
    with pytest.raises(
        FedloomError, match=r"all sites of tier 1 must have a path in common.* large, small"
    ):
        dealt(a=device("large", macs=20), b=device("small", macs=20))


def test_a_file_of_tiers_is_the_operators_word():
    named = ASKED.model_copy(update={"assigned": [3, 2, 1]})
    assert dealt(named, a=device(macs=20), b=device(), c=device()).deal.of_client == (3, 2, 1)


def test_what_a_site_tells_of_its_device_crosses_and_is_kept(tmp_path):
    (tmp_path / "federation").mkdir()
    folder = RunFolder.create("run", "x", tmp_path / "run")
    federation = tmp_path / "federation"
    config = Experiment(
        method="fedoras",
        options={"space": SPACE, "batch": 8},
        engine={"federation": str(federation)},
        tiers={"limits": "3000,max", "cost": "macs"},
    )
    folder.write_text("config.toml", config.to_toml())
    limit = device("mb3e1", macs=5000)
    plain = Facts(**FACTS, samples=50, device=DeviceFacts.of(limit)).to_json()
    assert Facts.read(plain).device.limit == limit
    settle(folder, {"west": Facts.read(plain), "east": Facts(**FACTS, samples=30)})
    rows = json.loads((folder.path / "sites.json").read_text())
    assert "device" not in rows["east"] and rows["west"]["device"]["macs"] == 5000
    prepared = checked(folder, federation)
    assert prepared.tiers.of_client == (2, 1)
    assert prepared.tiers.tiers[0].unsupported == ("mb3e1",)


@pytest.mark.parametrize(
    "fault", ['{"macs": 0}', '{"macs": "much"}', '{"speed": 3}', '{"unsupported": [3]}']
)
def test_a_device_that_cannot_be_is_refused(fault):
    text = Facts(**FACTS, samples=50).to_json().removesuffix("}") + f', "device": {fault}}}'
    with pytest.raises(ValueError, match="device"):
        Facts.read(text)


def test_sites_score_paths_themselves():
    FedorASOptions().check_for_federation()
    with pytest.raises(FedloomError, match="must be scored by the sites of a federation"):
        FedorASOptions(score="central").check_for_federation()
