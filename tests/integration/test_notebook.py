"""docs/notebook.ipynb runs from top to bottom, and what it ends its cells with can be shown.

The cells are executed here, one after the other in this process, without Jupyter: what a notebook adds is showing the
value of a cell's last line, which is done below.
"""

import ast
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
BOOK = json.loads(NOTEBOOK.read_text())


def shown(value):
    """What a notebook shows of a value: its picture, its HTML, or its text."""
    for name in ("_repr_svg_", "_repr_html_"):
        if hasattr(value, name):
            return getattr(value, name)()
    return repr(value)


def execute(source, scope):
    """The lines of a cell; the value of the last one is shown."""
    *lines, last = ast.parse(source).body
    exec(compile(ast.Module(lines, []), str(NOTEBOOK), "exec"), scope)
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([last], []), str(NOTEBOOK), "exec"), scope)
        return None
    return shown(eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), scope))


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    outputs = [execute("".join(cell["source"]), scope) for cell in BOOK["cells"] if cell["cell_type"] == "code"]
    assert len(outputs) == 9 and None not in outputs
    assert "<caption" in outputs[0] and "local-adaptation on digits" in outputs[0]
    assert ">client 2</caption>" in outputs[2] and "cnn" in outputs[2]
    assert "paired by seed" in outputs[4] and "local" in outputs[4]
    assert ET.fromstring(outputs[7]).tag.endswith("svg")
    assert outputs[8] == "'darts:s2:2'"
    assert len(scope["run"].metrics) == 3


def test_it_is_saved_without_outputs():
    assert (BOOK["nbformat"], BOOK["nbformat_minor"]) == (4, 5)
    for cell in BOOK["cells"]:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
    assert len({cell["id"] for cell in BOOK["cells"]}) == len(BOOK["cells"])


@pytest.mark.parametrize("cell", [cell for cell in BOOK["cells"] if cell["cell_type"] == "markdown"])
def test_its_links_lead_somewhere(cell):
    import re

    for target in re.findall(r"\]\(([^)#]+)\)", "".join(cell["source"])):
        assert (NOTEBOOK.parent / target).exists(), target
