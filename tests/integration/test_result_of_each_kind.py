"""What runs of every kind write into result.json, read and written again: not a byte differs."""

import json

import pytest
import tiny

import fedloom
from fedloom.records.comparison import ComparisonResult
from fedloom.records.result import RunResult

CELLS = {"ops": "s2", "cells": 2, "nodes": 1, "channels": 2, "batch": 8, "epochs": 1}
ALWAYS = [
    "method", "options", "seed", "metric", "lower_is_better", "f1", "balanced_accuracy", "auc",
    "accuracy", "global", "shared", "most_common_class", "cautions", "clients", "confusion",
    "registered", "rounds", "selected",
    "validation", "macs", "seconds", "measured_clock",
    "memory", "simulated", "topology", "bytes", "input", "data", "versions", "privacy",
]  # fmt: skip
BEFORE_GAIN = ALWAYS.index("most_common_class")
PERSONAL = [
    *ALWAYS[:BEFORE_GAIN],
    "personal_gain",
    *ALWAYS[BEFORE_GAIN:],
]  # every client has its own model
OF_A_CLIENT = [
    "client", "samples", "test_samples", "accuracy", "interval", "f1", "balanced_accuracy", "auc",
    "answers", "shared_accuracy", "shared_interval", "shared_balanced_accuracy",
    "shared_answers", "params", "macs",
    "architecture", "head", "seconds", "memory",
]  # fmt: skip


def check(path, kind=RunResult):
    text = (path / "result.json").read_text()
    again = kind.read(path / "result.json").to_json()
    assert json.dumps(again, indent=1, ensure_ascii=False) + "\n" == text
    return json.loads(text)


def test_a_fixed_network_and_the_names_in_their_order(images, tmp_path):
    run = tiny.start(tmp_path / "run", "fedavg", tiny.tree(images))
    result = check(run.path)
    assert list(result) == [*ALWAYS, "checksums"]
    assert [list(row) for row in result["clients"]] == [OF_A_CLIENT] * 3
    assert run.result == result


def test_a_search_with_phases(images, tmp_path):
    options = {**CELLS, "t_s": 1, "tau": 1}
    setting = {**tiny.tree(images, rounds=4), "options": options}
    result = check(tiny.start(tmp_path / "run", "spider", setting).path)
    assert list(result) == [*PERSONAL, "phases", "checksums"]
    assert all(isinstance(row["architecture"], dict) for row in result["clients"])


def test_text(tmp_path):
    (tmp_path / "play.txt").write_text("to be or not to be. " * 40)
    setting = {**tiny.tree(tmp_path / "play.txt:12:3"), "options": {"width": 0.03, "batch": 8}}
    result = check(tiny.start(tmp_path / "run", "fedavg", setting).path)
    beside = ALWAYS.index("f1")
    assert (
        list(result)[beside : beside + 2] == ["accuracy", "perplexity"]
        and "pooled" not in result["accuracy"]
    )


def test_the_best_round_in_clusters(images, tmp_path):
    more = {"evaluate": {"select": "best"}, "engine": {"topology": "clustered:2"}}
    result = check(
        tiny.start(tmp_path / "run", "fedavg", tiny.tree(images, clients=4, **more)).path
    )
    assert result["validation"] is not None and result["bytes"]["lan_up"] > 0


def test_a_run_that_began_with_anothers_weights(images, tmp_path):
    first = tiny.start(tmp_path / "first", "fedavg", tiny.tree(images))
    assert "init" not in check(first.path)
    setting = {**tiny.tree(images), "init": {"run": str(first.path)}}
    result = check(tiny.start(tmp_path / "second", "ditto", setting).path)
    assert list(result) == [*PERSONAL, "init", "checksums"] and result["init"]["seen"] == 0


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_comparison(images, tmp_path, seeds, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = {"clients": 2, "partition": "iid", "rounds": 1, "workers": 0}
    methods = ["fedavg:width=0.125", "local:width=0.125"]
    compared = fedloom.compare(
        methods, seeds=seeds, data=str(images), grid={"lr": [0.1, 0.01]}, **small
    )
    written = check(compared.path, ComparisonResult)
    assert written["methods"] == compared.methods
    first, second = compared.rows
    assert first.difference is None and second.difference is not None
    # with two seeds, the two methods differ by the same of this little data: it cannot be told
    assert second.difference.interval is None and second.difference.holm is None
    assert list(second.difference.to_json()) == ["mean", "low", "high", "better", "p", "holm"]
    assert list(written["methods"][1]) == [
        "method", "name", "runs", "tuned", "metric", "lower_is_better", "accuracy", "difference",
        "pooled", "worst", "global", "balanced_accuracy", "pooled_balanced_accuracy",
        "shared_balanced_accuracy", "most_common_class",
        "cautions",
        "params", "rounds", "macs", "bytes", "seconds", "memory", "seen",
    ]  # fmt: skip
