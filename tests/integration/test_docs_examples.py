"""The examples of "add a searcher" and "add a data set" are the files, and they work."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from fedloom import cli
from fedloom.data.sources import open_source
from fedloom.errors import FedloomError
from fedloom.registry import load_module
from fedloom.runs.results import Run
from fedloom.spaces import open_space
from fedloom.testing import MethodContract, Toy

DOCS = Path(__file__).parents[2] / "docs"
EVOLUTION = DOCS / "examples" / "evolution.py"
SCAFFOLD = DOCS / "examples" / "scaffold.py"
PENSTROKES = DOCS / "examples" / "penstrokes.py"
DATA = f"{PENSTROKES}:penstrokes"


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)


def module(path: Path):
    return load_module(path, path.stat().st_mtime_ns)


@pytest.mark.parametrize(
    ("page", "file"),
    [("add-a-searcher.md", EVOLUTION), ("add-a-data-set.md", PENSTROKES)],
)
def test_the_page_shows_the_whole_file(page, file):
    assert python_blocks(page)[0].strip() == file.read_text().strip()


# Add a searcher


@pytest.mark.slow
class TestEvolution(MethodContract):
    method = f"{EVOLUTION}:evolution"


def test_the_searcher_proposes_at_random_until_the_population_is_full():
    evolution = module(EVOLUTION)
    space = open_space("nasbench201")
    parents = [space.sample(np.random.default_rng(seed)) for seed in (1, 2)]
    population = [evolution.Candidate(parents[0], 0.1), evolution.Candidate(parents[1], 0.8)]
    fresh = evolution.propose(space, population[:1], 2, 2, np.random.default_rng(0))
    assert fresh == space.sample(np.random.default_rng(0))
    child = evolution.propose(space, population, 2, 2, np.random.default_rng(0))
    changed = [a != b for a, b in zip(child.choice, parents[1].choice, strict=True)]
    assert sum(changed) == 1  # a mutation of the better of the two


def test_the_tests_of_the_searcher_page_pass(monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    scope: dict = {}
    exec(python_blocks("add-a-searcher.md")[1], scope)
    scope["test_the_oldest_candidate_leaves"](module(EVOLUTION))
    assert issubclass(scope["TestEvolution"], MethodContract)
    assert Path(scope["TestEvolution"].method.split(":")[0]).is_file()


def test_the_search_ends_with_the_best_of_its_population(tmp_path):
    images = tiny.write_images(tmp_path / "images.npz", side=8)
    options = {
        "space": "nasbench201",
        "cells": "1",
        "channels": "2",
        "batch": "8",
        "population": "2",
    }
    setting = {**tiny.tree(images, rounds=5), "options": options}
    run = tiny.start(tmp_path / "run", f"{EVOLUTION}:evolution", setting)
    candidates = [row["candidate"] for row in run_rows(run) if row["stage"] == "search"]
    assert len(candidates) == 3
    trained = run.client(0).architecture
    assert dict(trained)["choice"] in [candidate["choice"] for candidate in candidates[-2:]]


def run_rows(run: Run) -> list[dict]:
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


# Add a data set


@pytest.fixture
def drawn_digits(tmp_path) -> Path:
    """Digits as lines: three writers, and every fourth line is of the test part."""
    table = open_source("digits")
    lines = []
    for number in range(120):
        writer = ("ada", "ben", "cyd")[number % 3]
        part = "test" if number % 4 == 0 else "train"
        pixels = ",".join(str(value) for value in table.x[number].ravel())
        lines.append(f"{writer},{part},{table.y[number]},{pixels}")
    (tmp_path / "penstrokes.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_data_set_has_the_samples_of_the_file(drawn_digits):
    digits = open_source("digits")
    source = open_source(DATA, drawn_digits)
    np.testing.assert_array_equal(source.x, digits.x[:120])
    np.testing.assert_array_equal(source.y, digits.y[:120])
    assert source.group_names == ("ada", "ben", "cyd")
    assert np.bincount(source.official).tolist() == [90, 0, 30]


def test_the_page_makes_a_file_to_try_it_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(python_blocks("add-a-data-set.md")[1], {})
    source = open_source(DATA, tmp_path)
    assert len(source.y) == 1797 and len(source.group_names) == 8


def test_a_client_for_each_writer(drawn_digits, tmp_path, capsys):
    run = [
        "run",
        "fedavg",
        "--data",
        DATA,
        "--data-dir",
        str(drawn_digits),
        "--partition",
        "natural",
    ]
    few = ["--rounds", "1", "--width", "0.125", "--workers", "0", "--out", str(tmp_path / "run")]
    assert cli.main([*run, *few]) == 0
    assert len(Run.open(tmp_path / "run").clients) == 3
    assert (
        cli.main(["data", "show", DATA, "--data-dir", str(drawn_digits), "--partition", "natural"])
        == 0
    )
    assert "ada" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("ada,train,3,1,2", "line 1, must have 67 values"),
        ("ada,dev,3" + ",0" * 64, "must name its part"),
        ("ada,train,3,-1" + ",0" * 63, "whole numbers from 0 to 255"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, complaint):
    (tmp_path / "penstrokes.csv").write_text(line + "\n")
    with pytest.raises(FedloomError, match=complaint):
        open_source(DATA, tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FedloomError, match=r"penstrokes\.csv must be a file"):
        open_source(DATA, tmp_path)


def test_the_table_of_the_page_is_one(tmp_path):
    (tmp_path / "stays.py").write_text(python_blocks("add-a-data-set.md")[2])
    source = open_source(f"{tmp_path}/stays.py:stays")
    assert source.kind == "regression"
    assert source.x.shape == (200, 3)  # the age, and a column for each ward


def test_the_test_of_the_data_page_passes(tmp_path, monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    scope: dict = {}
    exec(python_blocks("add-a-data-set.md")[3], scope)
    scope["test_it_can_be_read"](tmp_path)


# The second method: control variates


@pytest.mark.slow
class TestScaffold(MethodContract):
    method = f"{SCAFFOLD}:scaffold"

    def takes_the_mean(self, method):
        return False  # controls move by the share of clients that replied


def trace_of(method, folder, rounds, **options):
    return replace(Toy.of(method, options, rounds), participation=1.0).run(folder)


def test_the_first_round_of_scaffold_is_that_of_fedavg(tmp_path):
    """All control variates begin with zeros."""
    tensors = {}
    for rounds in (1, 2):
        fedavg = trace_of("fedavg", tmp_path / f"fedavg-{rounds}", rounds, momentum=0.0)
        scaffold = trace_of(f"{SCAFFOLD}:scaffold", tmp_path / f"scaffold-{rounds}", rounds)
        tensors[rounds] = (scaffold.outcome.state.tensors, fedavg.outcome.state.tensors)
    for name, tensor in tensors[1][1].items():
        torch.testing.assert_close(tensors[1][0][name], tensor)
    corrected, plain = tensors[2]
    weight = "net.classifier.weight"
    assert not torch.allclose(corrected[weight], plain[weight])


def test_the_control_of_the_server_is_the_mean_of_those_of_clients(tmp_path):
    """It holds if all clients take part: each changes the server's by its share."""
    trace = trace_of(f"{SCAFFOLD}:scaffold", tmp_path, rounds=3)
    weights = [7, 5, 8, 6]  # the clients' training samples
    for name, control in trace.outcome.state.tensors.items():
        if not name.startswith("control/"):
            continue
        total = torch.zeros_like(control)
        for client, weight in enumerate(weights):
            own = trace.own(client)
            assert own is not None
            total += weight * own.tensors[name.removeprefix("control/")]
        assert control.any()
        torch.testing.assert_close(control, total / sum(weights), rtol=1e-4, atol=1e-5)
