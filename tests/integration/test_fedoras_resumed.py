"""FedorAS goes on where it was stopped: in each stage, and inside a generation of its search."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tiny

from fedloom.errors import FedloomError
from fedloom.federation.server.events import Replied, RoundEnded
from fedloom.records.folder import RunFolder
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create
from fedloom.runs.preparing import prepare, reopen
from fedloom.runs.results import Run
from fedloom.runs.running import carry_out

SPACE = str(Path(__file__).parents[1] / "contract" / "short_chain.toml")
OPTIONS = {
    "space": SPACE,
    "epochs": 1,
    "batch": 8,
    "models": 6,
    "pool": 4,
    "sample": 2,
    "search_share": 0.34,
    "supernet_share": 0.5,
    "cache": True,
}


def ended(number: int) -> Callable[[Any], bool]:
    return lambda event: isinstance(event, RoundEnded) and event.row.round == number


def replied(number: int) -> Callable[[Any], bool]:
    """The first reply of a round."""
    return lambda event: isinstance(event, Replied) and event.round == number


def stopping(at: Callable[[Any], bool]) -> Callable[[Any], None]:
    def listen(event: Any) -> None:
        if at(event):
            raise tiny.Enough

    return listen


@pytest.mark.whole
def test_the_same_bits_however_often_it_was_stopped(tmp_path: Path) -> None:
    data = tiny.write_images(tmp_path / "images.npz")
    asked = tiny.tree(data, rounds=6, evaluate={"every": 6})
    asked["options"] = OPTIONS
    tiny.start(tmp_path / "whole", "fedoras", asked)
    folder, prepared = create(configure("fedoras", asked), tmp_path / "stopped")
    for at in (ended(1), replied(4), ended(5)):
        with suppress(tiny.Enough):
            carry_out(folder, prepared, stopping(at))
            pytest.fail("the run must stop")
        folder = RunFolder.open(tmp_path / "stopped")
        prepared = reopen(folder)
    carry_out(folder, prepared, lambda event: None)
    stages = [row["stage"] for row in tiny.rows(tmp_path / "whole")]
    assert stages == ["supernet", "supernet", "search", "search", "tune", "tune"]
    whole = tiny.left_behind(tmp_path / "whole")
    assert tiny.unlike(whole, tiny.left_behind(tmp_path / "stopped")) == []
    accounts = whole["result stages"]
    assert [(line["stage"], line["rounds"]) for line in accounts] == [
        ("supernet", 2), ("search", 2), ("tune", 2),
    ]  # fmt: skip
    assert sum(line["down"] for line in accounts) == whole["result bytes"]["down"]
    assert "device" in whole["result privacy"]["notes"][0]
    trained_from_scratch(tmp_path / "whole", tmp_path)


def trained_from_scratch(whole: Path, tmp_path: Path) -> None:
    """Its architectures, on its split and tiers, for its rounds or its MACs."""
    searched = Run.open(whole).record
    asked = {"options": {"paths": str(whole), "start": "random"}, "engine": {"workers": 0}}
    run = tiny.start(tmp_path / "scratch", "fedoras", asked).record
    assert [(stage.stage, stage.rounds) for stage in run.stages] == [("tune", 6)]
    assert run.data == searched.data
    assert [client.tier for client in run.clients] == [client.tier for client in searched.clients]
    for tier, before in zip(run.tiers, searched.tiers, strict=True):
        assert (tier.path, tier.limit, tier.clients) == (before.path, before.limit, before.clients)
        assert tier.supernet is None and tier.pooled_over_all is not None
    budget = prepare(configure("fedoras", {**asked, "budget": {"equal": "macs"}})).config.budget
    assert budget.amount == searched.macs
    kept = (tmp_path / "scratch" / "config.toml").read_text()
    assert str(whole) not in kept.replace(f"{whole}/split.json", "")
    wrong = [
        ({"seed": 7}, "leave --seed out"),
        ({"data": {"clients": 5}}, "leave --clients out"),
        ({"options": {**asked["options"], "space": "cnn-tiny"}}, "leave --space out"),
    ]
    for change, words in wrong:
        with pytest.raises(FedloomError, match=words):
            prepare(configure("fedoras", {**asked, **change}))
