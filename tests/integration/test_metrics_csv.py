"""metrics.csv: what metrics.jsonl says, and the same after a stop."""

import csv

import pytest
import tiny

from fedloom.federation.loop import Loop

CLOCKS = {"totals.seconds", "totals.clock", "totals.wall"}


def columns(out):
    with open(out / "metrics.csv", newline="") as file:
        return [{name: value for name, value in row.items() if name not in CLOCKS} for row in csv.DictReader(file)]


def test_an_interrupted_run_leaves_the_same_columns(images, tmp_path, monkeypatch):
    whole = tiny.start(tmp_path / "whole", "fedavg", tiny.tree(images))
    once = Loop._round

    def stops(self, at):
        if at.round == 2:
            raise KeyboardInterrupt
        return once(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_round", stops)
        with pytest.raises(KeyboardInterrupt):
            tiny.start(tmp_path / "cut", "fedavg", tiny.tree(images))
    assert not (tmp_path / "cut" / "metrics.csv").exists()
    tiny.go_on(tmp_path / "cut")
    assert columns(tmp_path / "cut") == columns(tmp_path / "whole")
    assert [row["round"] for row in columns(tmp_path / "whole")] == ["1", "2", "3"]
    assert [str(row["evaluation.accuracy"]) for row in whole.metrics] == [
        row["evaluation.accuracy"] for row in columns(tmp_path / "whole")
    ]
