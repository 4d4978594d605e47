"""What a user asks for as widths and tiers, and which width each tier gets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from fedloom.config.models import Experiment, TiersConfig
from fedloom.errors import FedloomError
from fedloom.learning.width_costs import NestedNetwork, cost_of, widths_of_tiers
from fedloom.methods.fjord import FjordOptions, tiers_of
from fedloom.methods.zerofl import tiers_of as tiers_of_zerofl
from fedloom.runs import notices
from fedloom.runs.preparing import prepare
from fedloom.runs.tiers import deal_of
from fedloom.types import Task


def task(**options: object) -> Task:
    return Task(
        method="fjord",
        options=FjordOptions.model_validate(options).model_dump(),
        kind="image",
        shape=(3, 32, 32),
        labels=tuple("abcdefghij"),
        seed=0,
        mean=(0.0,) * 3,
        std=(1.0,) * 3,
    )


def widths(tiers: dict[str, object], **options: object) -> list[float]:
    asked = task(**options)
    settled = FjordOptions.model_validate(asked.options)
    deal = deal_of(TiersConfig.model_validate(tiers), tiers_of(asked), 8, seed=0)
    return widths_of_tiers(NestedNetwork.of(asked, settled), settled, deal.tiers)


def test_the_numbers_that_fedoras_prints_for_fjord() -> None:
    """Table 5: ResNet-18 in quarters has 35, 139, 313 and 556 M MACs, and ≤ 11.16 M parameters."""
    plan = NestedNetwork.of(
        task(network="resnet18", head="mean"), FjordOptions(network="resnet18", head="mean")
    )
    costs = [cost_of(plan, width).cost for width in (0.25, 0.5, 0.75, 1.0)]
    assert [round(cost.macs / 1e6) for cost in costs] == [35, 139, 313, 555]
    assert [cost.params for cost in costs] == [701_466, 2_797_610, 6_288_442, 11_173_962]


def test_the_largest_sixteenth_that_fits() -> None:
    plan = NestedNetwork.of(task(), FjordOptions())
    amount = cost_of(plan, 7 / 16).cost.macs
    assert widths({"limits": f"{amount},max", "cost": "macs"}) == [7 / 16, 1]
    assert widths({"limits": f"{amount - 1},max", "cost": "macs"}) == [6 / 16, 1]
    paper = cost_of(plan, 0.5).cost.macs_paper
    assert widths({"limits": f"{paper},max", "cost": "macs_paper"}) == [0.5, 1]


def test_quarters_where_nobody_asks_for_anything() -> None:
    assert widths({}) == [0.25, 0.5, 0.75, 1]
    limits = deal_of(TiersConfig(), tiers_of(task()), 8, seed=0).tiers
    plan = NestedNetwork.of(task(), FjordOptions())
    assert [tier.limit for tier in limits] == [
        {"macs": cost_of(plan, width).cost.macs} for width in (0.25, 0.5, 0.75, 1.0)
    ]


def test_limits_of_the_widths_that_were_asked_for() -> None:
    assert widths({}, widths=".3,.9") == [0.3, 0.9]
    assert widths({"shares": [0.5, 0.5]}, widths=".3/.9") == [0.3, 0.9]


def test_so_many_tiers() -> None:
    """Evenly spaced widths; of those a sixteenth that fits."""
    assert widths({"limits": "3"}) == [5 / 16, 10 / 16, 1]
    assert widths({"limits": "4"}) == [0.25, 0.5, 0.75, 1]
    assert widths({"limits": "1"}) == [1]


def test_limits_that_are_made_for_larger_networks() -> None:
    """Others may be held to them beside this one."""
    assert widths({"limits": "1G,2G,max", "cost": "macs"}) == [1, 1, 1]
    tiers = deal_of(TiersConfig(limits="1G,2G,max", cost="macs"), tiers_of(task()), 8, seed=0).tiers
    assert [tier.limit["macs"] for tier in tiers] == [1e9, 2e9, 2e9]


def test_everybody_has_the_whole_network_by_zerofl() -> None:
    deal = deal_of(TiersConfig(), tiers_of_zerofl(task()), 8, seed=0)
    assert len(deal.tiers) == 1 and deal.of_client == (1,) * 8


@pytest.mark.parametrize(
    ("tiers", "options", "words"),
    [
        ({"limits": "10,max", "cost": "macs"}, {}, "cheapest width has"),
        ({"limits": "500k,max"}, {"widths": "1,1"}, "width 1 must fit the limit of tier 1"),
        ({"limits": "500k,max"}, {"widths": "1"}, "each of the 2 tiers"),
        ({}, {"widths": "1,1"}, "must rise"),
        ({}, {"network": "densenet"}, "densenet does not say"),
    ],
)
def test_bad_widths_in_one_sentence(
    tiers: dict[str, object], options: dict[str, object], words: str
) -> None:
    with pytest.raises(FedloomError, match=words):
        widths(tiers, **options)


@pytest.mark.parametrize("widths", ["0,1", "1,.5", "2", "", "wide"])
def test_no_widths(widths: str) -> None:
    with pytest.raises(ValidationError, match="widths"):
        FjordOptions(widths=widths)


@pytest.mark.parametrize(
    ("method", "tiers", "words"),
    [
        ("fedavg", {"limits": "5k,max"}, ["fedavg has no device tiers"]),
        ("fjord", {"unsupported": ["mb3e2"]}, ["no operations to choose from"]),
        ("fjord", {"limits": "5k,max"}, []),
        ("fedavg", {}, []),
    ],
)
def test_who_reads_no_tiers_says_so_once(
    tmp_path: Path, method: str, tiers: dict[str, object], words: list[str]
) -> None:
    file = tmp_path / "toy.npz"
    np.savez(file, x=np.full((80, 6, 6), 255, np.uint8), y=np.arange(80) % 3)
    raw = {
        "method": method,
        "options": {"width": 0.125},
        "tiers": tiers,
        "data": {"name": str(file), "clients": 4, "partition": "iid"},
    }
    prepared = prepare(Experiment.model_validate(raw))
    texts = notices.of_tiers(prepared)
    assert len(texts) == len(words)
    for text, part in zip(texts, words, strict=True):
        assert part in text
    assert notices.notices_of(prepared) == texts


def test_a_task_of_another_size_costs_something_else() -> None:
    """Costs are remembered by all that decides them."""
    small = replace(task(), shape=(3, 16, 16))
    plans = [NestedNetwork.of(other, FjordOptions()) for other in (task(), small)]
    assert cost_of(plans[0], 1.0).cost.macs > cost_of(plans[1], 1.0).cost.macs
