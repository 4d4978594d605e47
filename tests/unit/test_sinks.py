"""Sinks without their packages: what they are told, and that none can stop a run.

tests/sinks has the real ones.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import fedloom
from fedloom import cli
from fedloom.config.models import Experiment, validated
from fedloom.errors import FedloomError
from fedloom.federation.server.events import Notice, RoundEnded
from fedloom.records.rows import Evaluation, MetricsRow
from fedloom.records.totals import Totals
from fedloom.report import sinks

SMALL = {
    "data": "x.npz",
    "clients": 2,
    "partition": "iid",
    "rounds": 2,
    "workers": 0,
    "width": 0.125,
}


class Noting:
    """A sink that keeps what it is told, and fails on request."""

    told: list = []
    fails_at: int | None = None

    def __init__(self, folder, settings, first):
        self.told.append(("open", folder.name, settings["method"], first))

    def round(self, number, figures):
        if number == self.fails_at:
            raise OSError("no room")
        self.told.append(
            (number, figures["evaluation.accuracy"], figures["totals.rounds"], "share" in figures)
        )

    def close(self, finished):
        self.told.append(("close", finished))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", x=np.arange(40 * 25, dtype=np.uint8).reshape(40, 5, 5), y=np.arange(40) % 2)


@pytest.fixture
def noting(monkeypatch):
    made = type("Made", (Noting,), {"told": []})
    monkeypatch.setitem(sys.modules, "fedloom.report.sinks.wandb", SimpleNamespace(Sink=made))
    monkeypatch.setattr(sinks, "find_spec", lambda name: name == "wandb")
    return made


def test_every_round_is_told(noting):
    run = fedloom.search("fedavg", **SMALL, sink="wandb")
    figures = [row["evaluation.accuracy"] for row in run.metrics]
    rounds = [(1, figures[0], 1, False), (2, figures[1], 2, False)]
    assert noting.told == [("open", run.path.name, "fedavg", 1), *rounds, ("close", True)]


def test_a_sink_that_fails_does_not_stop_the_run(noting):
    noting.fails_at = 1
    run = fedloom.search("fedavg", **SMALL, sink=["wandb"])
    assert len(run.metrics) == 2
    assert noting.told == [("open", run.path.name, "fedavg", 1)]  # asked no more
    logged = (run.path / "run.log").read_text()
    assert "WARNING sink wandb failed and is left out from here on: OSError: no room" in logged


def test_a_package_that_is_missing_is_named_before_training(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sinks, "find_spec", lambda name: None)
    words = ["--data", "x.npz", "--clients", "2", "--partition", "iid", "--sink", "tensorboard"]
    for command in (["run", "fedavg"], ["compare", "fedavg", "local"]):
        assert cli.main([*command, *words]) == 2
        errors = capsys.readouterr().err
        assert (
            "tensorboardX must be installed for --sink tensorboard, but it is not; install it with "
            in errors
        )
        assert "pip install 'fedloom[tensorboard]'" in errors
    assert not (tmp_path / "runs").exists()


def test_names_of_sinks():
    assert validated(Experiment, {"evaluate": {"sinks": "mlflow,wandb,mlflow"}}).evaluate.sinks == [
        "mlflow",
        "wandb",
    ]
    with pytest.raises(
        FedloomError, match="`--sink` must be 'tensorboard', 'mlflow' or 'wandb', but got 'x'"
    ):
        validated(Experiment, {"evaluate": {"sinks": ["x"]}})
    assert (
        Experiment().to_toml() == Experiment.model_validate({}).to_toml()
        and "sinks" not in Experiment().to_toml()
    )


def test_two_flags_are_two_sinks():
    options, _ = cli.make_parser().parse_known_args(
        ["run", "fedavg", "--sink", "mlflow", "--sink", "wandb"]
    )
    assert options.sink == ["mlflow", "wandb"]


def test_an_interrupted_run_says_so(noting, tmp_path):
    config = Experiment.model_validate({"evaluate": {"sinks": ["wandb"]}})

    def interrupted():
        with sinks.mirrored(tmp_path, config, lambda event: None) as mirror:
            mirror(Notice("no round: nothing is opened"))
            evaluation = Evaluation("test", 2, "accuracy", 0.5)
            mirror(
                RoundEnded(
                    MetricsRow("train", 3, 0.0, evaluation=evaluation, totals=Totals(rounds=3)), 0.5
                )
            )
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert noting.told == [
        ("open", tmp_path.name, "fedavg", 3),
        (3, 0.5, 3, False),
        ("close", False),
    ]


def test_sinks_are_told_no_path_unless_asked():
    settings = {"data.name": "/data/jane-doe/x.npz", "data.clients": "8", "data.dir": "C:\\x"}
    settings_sent = sinks.without_paths(settings)
    assert settings_sent == {"data.name": "(a path)", "data.clients": "8", "data.dir": "(a path)"}


@pytest.mark.parametrize("asked", [False, True])
def test_what_a_runs_sink_is_told(tmp_path, monkeypatch, asked):
    heard = []

    class Hearing(Noting):
        def __init__(self, folder, settings, first):
            heard.append(settings)

        def round(self, number, figures):
            pass

        def close(self, finished):
            pass

    monkeypatch.setitem(sys.modules, "fedloom.report.sinks.wandb", SimpleNamespace(Sink=Hearing))
    monkeypatch.setattr(sinks, "find_spec", lambda name: name == "wandb")
    data = str(tmp_path / "x.npz")
    fedloom.search("fedavg", **{**SMALL, "data": data}, sink=["wandb"], sink_paths=asked or None)
    assert heard[0]["data.name"] == (data if asked else "(a path)")
    assert (str(tmp_path) in str(heard)) is asked
