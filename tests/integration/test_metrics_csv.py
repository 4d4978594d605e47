"""metrics.csv: what metrics.jsonl says, and the same after a stop."""

import csv

import tiny

CLOCKS = {"totals.seconds", "totals.measured_clock", "totals.wall"}


def columns(out):
    with open(out / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for name in CLOCKS:
            row.pop(name, None)
    return rows


def test_an_interrupted_run_leaves_the_same_columns(images, tmp_path):
    whole = tiny.start(tmp_path / "whole", "fedavg", tiny.tree(images))
    tiny.stopped_after(2, tmp_path / "cut", "fedavg", tiny.tree(images))
    assert not (tmp_path / "cut" / "metrics.csv").exists()
    tiny.go_on(tmp_path / "cut")
    assert columns(tmp_path / "cut") == columns(tmp_path / "whole")
    assert [row["round"] for row in columns(tmp_path / "whole")] == ["1", "2", "3"]
    assert [str(row["evaluation.accuracy"]) for row in whole.metrics] == [
        row["evaluation.accuracy"] for row in columns(tmp_path / "whole")
    ]
