"""auto, stopped after every round and reply of each step and resumed, ends with equal bits."""

import numpy as np
import pytest
import tiny

from fedloom.federation.server.events import Replied, RoundEnded
from fedloom.records.folder import RunFolder
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create
from fedloom.runs.preparing import reopen
from fedloom.runs.running import carry_out

pytestmark = pytest.mark.whole

STEPS = ["race", "judge", "begin", "invariance", "train", "trial", "compare", "cool", "tune"]
OPTIONS = {
    "sizes": ".8,1",
    "width": "0.2",
    "batch": "8",
    "lr": "0.1",
    "trial_epochs": "1",
    "changes_after": "0.5",
}
BUDGETS = {
    "rounds": {"rounds": 20},
    "macs": {"equal": "macs", "amount": 4.5e6, "rounds": 12},
}


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Two that call the same things by other names, so that a trial speaks for fine-tuning."""
    folder = tmp_path_factory.mktemp("sites")
    for number, name in enumerate(("north", "south")):
        draw = np.random.default_rng(number)
        y = np.arange(40 + number) % 3
        x = np.clip(draw.normal(60 + 60 * y[:, None, None], 30, (len(y), 6, 6)), 0, 255).astype(
            np.uint8
        )
        np.savez(folder / f"{name}.npz", x=x, y=(y + number) % 3)
    return folder


def tree_of(sites, unit):
    return {
        "data": {"name": str(sites), "partition": "sites"},
        "budget": BUDGETS[unit],
        "engine": {"workers": 0},
        "evaluate": {"every": 3},
        "options": OPTIONS,
        "seed": 3,
    }


def round_of(event):
    return event.row.round if isinstance(event, RoundEnded) else event.round


def in_pieces(out, tree, kind):
    """Run, but stop at every event of a kind and resume; return the rounds of the stops."""
    stopped_in = []

    def listen(event):
        if isinstance(event, kind):
            stopped_in.append(round_of(event))
            raise tiny.Enough

    folder, prepared = create(configure("auto", tree), out)
    while True:
        try:
            carry_out(folder, prepared, listen)
            return stopped_in
        except tiny.Enough:
            folder = RunFolder.open(out)
            prepared = reopen(folder)


@pytest.mark.parametrize("unit", BUDGETS)
def test_every_step_can_be_resumed(sites, tmp_path, unit):
    tree = tree_of(sites, unit)
    tiny.start(tmp_path / "whole", "auto", tree)
    whole = tiny.left_behind(tmp_path / "whole")
    rows = tiny.rows(tmp_path / "whole")
    assert list(dict.fromkeys(row["phase"] for row in rows)) == STEPS
    numbers = [row["round"] for row in rows]
    assert in_pieces(tmp_path / "rounds", tree, RoundEnded) == numbers
    assert tiny.unlike(whole, tiny.left_behind(tmp_path / "rounds")) == []
    assert sorted(set(in_pieces(tmp_path / "replies", tree, Replied))) == numbers
    assert tiny.unlike(whole, tiny.left_behind(tmp_path / "replies")) == []
