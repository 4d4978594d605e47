"""The notebooks in docs/tutorials run from top to bottom.

That of a federation runs in tests/flower.
"""

import ast
from pathlib import Path

import pytest
from notebooks import Notebook

from fedloom.testing import MethodContract, Toy

pytestmark = pytest.mark.whole

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
NAMES = sorted(path.stem for path in TUTORIALS.glob("*.ipynb"))


def run(name, folder, monkeypatch):
    """The variables of the notebook, and what its cells show."""
    monkeypatch.chdir(folder)
    scope: dict = {}
    outputs = Notebook(TUTORIALS / f"{name}.ipynb").run(scope)
    return scope, outputs


def test_there_are_five():
    assert [name[0] for name in NAMES] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_saved_without_outputs(name):
    Notebook(TUTORIALS / f"{name}.ipynb").check_saved_without_outputs()


@pytest.mark.parametrize("name", NAMES)
def test_its_links_lead_somewhere(name):
    Notebook(TUTORIALS / f"{name}.ipynb").check_links()


def test_a_first_search(tmp_path, monkeypatch):
    scope, outputs = run("1-first-search", tmp_path, monkeypatch)
    assert "local-adaptation on digits" in outputs[0]
    assert outputs[3].startswith("<svg")
    assert len(scope["found"].clients) == 4
    files = {"architectures", "config.toml", "metrics.jsonl", "report.html", "result.json"}
    assert files <= set(ast.literal_eval(outputs[-1]))


def test_own_data(tmp_path, monkeypatch, capsys):
    scope, outputs = run("2-own-data", tmp_path, monkeypatch)
    assert "scans, dirichlet:0.5" in capsys.readouterr().out  # of the split that is drawn
    assert outputs[3] == "[40, 40, 40]"
    assert len(scope["table_run"].clients) == 4
    assert scope["from_torch"].accuracy["mean"] == float(outputs[-1])


def test_compare_and_export(tmp_path, monkeypatch):
    scope, outputs = run("3-compare-and-export", tmp_path, monkeypatch)
    assert "paired by seed" in outputs[0]
    assert [name for name, _, _ in ast.literal_eval(outputs[1])] == scope["variants"]
    assert {"model.py", "weights.safetensors", "README.md"} <= set(ast.literal_eval(outputs[2]))
    assert len(scope["images"]) == 5


def test_write_a_method(tmp_path, monkeypatch):
    scope, _ = run("5-write-a-method", tmp_path, monkeypatch)
    assert scope["undamped"].accuracy == scope["fedavg"].accuracy
    tests: dict = {}
    exec((tmp_path / "test_damped.py").read_text(), tests)
    contract = tests["TestDamped"]()
    assert isinstance(contract, MethodContract)
    toy = Toy.of(str(tmp_path / contract.method))
    contract.test_merge_weights_sum_to_one(toy)  # the server does not take the mean
    contract.test_options_are_frozen_and_cross_the_wire(toy)
