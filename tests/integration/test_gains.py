"""`fedloom gain RUN`: the matrix of a tiny personal search."""

import json
import shutil

import pytest
import tiny

from fedloom import cli
from fedloom.errors import FedloomError
from fedloom.runs.gains import find_gain

pytestmark = pytest.mark.whole

CELLS = {"ops": "s2", "cells": 2, "nodes": 2, "channels": 2, "batch": 8, "epochs": 1}


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A finished run of four clients, each with a random architecture of its own."""
    place = tmp_path_factory.mktemp("gain")
    images = tiny.write_images(place / "images.npz")
    options = {**CELLS, "personal": True, "search": "random"}
    setting = tiny.tree(images, clients=4, rounds=3)
    tiny.start(place / "run", "fednas", {**setting, "options": options})
    return place / "run"


@pytest.fixture
def run(searched, tmp_path):
    shutil.copytree(searched, tmp_path / "run")
    return tmp_path / "run"


def test_the_matrix_and_its_gains(run, capsys):
    assert cli.main(["gain", str(run), "--epochs", "1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    matrix = printed["matrix"]
    assert [len(row) for row in matrix] == [4] * 4 and printed["clients"] == [0, 1, 2, 3]
    by_hand = []
    for client, row in enumerate(matrix):
        assert all(0 <= value <= 1 for value in row)
        own = row[client]
        others = [value for other, value in enumerate(row) if other != client]
        by_hand.append(own - sum(others) / 3)
    assert printed["gains"] == pytest.approx(by_hand)
    assert printed["gain"] == pytest.approx(sum(by_hand) / 4)
    assert json.loads((run / "gain.json").read_text()) == printed
    balanced = printed["balanced_accuracy"]
    assert [len(row) for row in balanced] == [4, 4, 4, 4]
    for row in balanced:
        assert all(0 <= figure <= 1 for figure in row)
    assert len((run / "gain.jsonl").read_text().splitlines()) == 16
    assert not (run / "exchange").exists()


def test_printed_as_a_table(run, capsys):
    assert cli.main(["gain", str(run), "--epochs", "1", "--clients", "0,2", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "j=0" in shown and "j=2" in shown and "j=1" not in shown and "gain" in shown
    assert "own bal. gain" in " ".join(shown.split())


def test_finished_cells_are_not_measured_again(run):
    """A stopped call goes on, and a torn last line is measured again.

    Other settings give another matrix.
    """
    whole = find_gain(run, epochs=1, clients=[0, 1])
    lines = (run / "gain.jsonl").read_text().splitlines()
    marked = [json.dumps({**json.loads(line), "accuracy": 0.123}) for line in lines[:2]]
    (run / "gain.jsonl").write_text("\n".join([*marked, lines[2][:20]]))
    told = []
    again = find_gain(
        run, epochs=1, clients=[0, 1], tell=lambda what, done, total: told.append((done, total))
    )
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert sum(value == 0.123 for value in again.cells.values()) == 2
    assert {
        cell: value for cell, value in again.cells.items() if value != 0.123
    }.items() <= whole.cells.items()
    other = find_gain(run, epochs=2, clients=[0, 1])
    assert 0.123 not in other.cells.values()


def test_fine_tuning_that_diverges_leaves_a_cell_without_a_figure(run, capsys):
    words = [
        "gain",
        str(run),
        "--epochs",
        "2",
        "--clients",
        "0,1",
        "--lr",
        "1e30",
        "--workers",
        "0",
        "--quiet",
    ]
    assert cli.main(words) == 0
    assert "cells have no figure: fine-tuning diverged" in " ".join(capsys.readouterr().out.split())
    assert None in find_gain(run, epochs=2, clients=[0, 1], lr=1e30).cells.values()


@pytest.mark.parametrize("line", ["no cell", "[1, 2]", '{"i": 0}'])
def test_a_spoilt_file_of_cells_is_named(run, capsys, line):
    (run / "gain.jsonl").write_text(line + "\n")
    assert cli.main(["gain", str(run), "--epochs", "1", "--quiet"]) == 2
    assert "gain.jsonl must hold a measured cell" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_find_the_same(run, tmp_path):
    shutil.copytree(run, tmp_path / "twin")
    one = find_gain(run, epochs=1, clients=[0, 3], workers=0)
    two = find_gain(tmp_path / "twin", epochs=1, clients=[0, 3], workers=2)
    assert one.cells == two.cells


def test_fresh_weights_make_another_matrix(run):
    gain = find_gain(run, epochs=1, clients=[0, 1], start="fresh")
    assert gain.to_json()["start"] == "fresh" and len(gain.cells) == 4


@pytest.mark.slow
def test_the_best_round_is_what_is_fine_tuned(tmp_path):
    images = tiny.write_images(tmp_path / "images.npz")
    setting = tiny.tree(images, clients=3, rounds=4, evaluate={"select": "best"})
    options = {**CELLS, "personal": True, "search": "random"}
    tiny.start(tmp_path / "run", "fednas", {**setting, "options": options})
    assert len(find_gain(tmp_path / "run", epochs=1).cells) == 9


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--clients", "0,9"], "--clients must name clients with an architecture, but got 9"),
        (["--clients", "1"], "at least two clients"),
        (["--clients", "0,x"], "--clients must be a whole number"),
        (["--epochs", "0"], "--epochs must be a whole number of at least 1"),
        (["--lr", "nan"], "--lr must be a number"),
    ],
)
def test_bad_flags(run, capsys, words, what):
    assert cli.main(["gain", str(run), *words]) == 2
    assert what in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_without_personal_architectures_is_refused(tmp_path):
    images = tiny.write_images(tmp_path / "images.npz")
    setting = tiny.tree(images, rounds=2)
    tiny.start(tmp_path / "plain", "fedavg", setting)
    tiny.start(tmp_path / "one", "fednas", {**setting, "options": CELLS})
    small = {"network": "supernet:s2:2:2", "width": 0.125}
    tiny.start(tmp_path / "same", "ditto", {**setting, "options": small})
    for name, found in (
        ("plain", "one for all"),
        ("one", "one for all"),
        ("same", "have the same.*another seed"),
    ):
        with pytest.raises(FedloomError, match=found):
            find_gain(tmp_path / name)


def test_an_unfinished_run_is_refused(run):
    (run / "result.json").unlink()
    with pytest.raises(FedloomError, match="must be a finished run"):
        find_gain(run)


def test_a_comparison_is_refused(run):
    (run / "run.json").write_text(json.dumps({"format": 1, "kind": "compare"}))
    with pytest.raises(FedloomError, match="must be one run"):
        find_gain(run)


def test_a_deployment_is_refused(run):
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(
        text.replace("[engine]\n", '[engine]\nfederation = "clinic"\n')
    )
    with pytest.raises(FedloomError, match="must be of a simulation"):
        find_gain(run)


def test_a_run_in_use_is_left_alone(run):
    from fedloom.records.folder import RunFolder

    with RunFolder(run).lock(), pytest.raises(FedloomError, match="must not be in use"):
        find_gain(run, epochs=1)
