"""A space that is changed after a federation's run was begun: no resume goes on with it."""

import shutil
from pathlib import Path

import pytest

from fedloom import launch
from fedloom.config.models import Experiment
from fedloom.deploy.settled import checked, settle
from fedloom.deploy.terms import Facts
from fedloom.errors import FedloomError
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.records.folder import RunFolder
from fedloom.records.rows import MetricsRow
from fedloom.types import Setup

CHAIN = Path(__file__).parents[3] / "docs" / "examples" / "chain.py"
SIZE = {"cells": 1, "depth": 2, "channels": 2, "batch": 8}
FACTS = {
    "kind": "image",
    "shape": (1, 8, 8),
    "labels": ("a", "b"),
    "named": True,
    "mean": (0.0,),
    "std": (1.0,),
}
ONE_MORE = ('"conv3": 3}', '"conv3": 3, "conv5": 5}')
WIDER = ("size.channels, 3, padding=1)", "size.channels, 5, padding=2)")


@pytest.fixture
def file(tmp_path):
    shutil.copy(CHAIN, tmp_path / "chain.py")
    return tmp_path / "chain.py"


@pytest.fixture
def federation(tmp_path):
    (tmp_path / "federation").mkdir()
    return tmp_path / "federation"


@pytest.fixture
def folder(tmp_path, file, federation):
    """A run of two sites that was stopped after its first round."""
    folder = RunFolder.create("run", "x", tmp_path / "run")
    options = {**SIZE, "space": f"{file}:Chain"}
    config = Experiment(method="fednas", options=options, engine={"federation": str(federation)})
    folder.write_text("config.toml", config.to_toml())
    settle(folder, {"west": Facts(**FACTS, samples=50), "east": Facts(**FACTS, samples=30)})
    prepared = checked(folder, federation)
    state = prepared.stages[0].method.init(Setup(prepared.task, len(prepared.split)), None)
    Archive(folder.path).save(Checkpoint(round=1, state=state), MetricsRow("search", 1, 0.0))
    return folder


def change(file, old, new):
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_the_same_space_goes_on(folder, federation):
    assert checked(folder, federation).task.options["space"].endswith("chain.py:Chain")


@pytest.mark.parametrize("fault", [ONE_MORE, WIDER], ids=["an option more", "another stem"])
def test_a_changed_space_does_not(fault, folder, federation, file):
    change(file, *fault)
    with pytest.raises(
        FedloomError, match=r"must be the one that the run was begun with.*checkpoint of round 1"
    ):
        checked(folder, federation)


def test_nothing_is_thrown_away_for_a_changed_space(folder, file):
    folder.write_text("metrics.csv", "round\n1\n")
    change(file, *ONE_MORE)
    with pytest.raises(FedloomError, match="must be the one that the run was begun with"):
        launch.take_back(folder, 1)
    assert (folder.path / "metrics.csv").exists()


def test_a_run_that_begins_anew_may_have_another_space(folder, federation, file):
    change(file, *ONE_MORE)
    launch.take_back(folder, 0)
    assert checked(folder, federation).task.method == "fednas"
