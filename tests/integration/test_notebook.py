"""docs/notebook.ipynb runs from top to bottom, and what it ends its cells with can be shown."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from notebooks import Notebook

NOTEBOOK = Notebook(Path(__file__).parents[2] / "docs" / "notebook.ipynb")


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    outputs = NOTEBOOK.run(scope)
    assert len(outputs) == 9 and None not in outputs
    assert "<caption" in outputs[0] and "local-adaptation on digits" in outputs[0]
    assert ">client 2</caption>" in outputs[2] and "cnn" in outputs[2]
    assert "paired by seed" in outputs[4] and "local" in outputs[4]
    assert ET.fromstring(outputs[7]).tag.endswith("svg")
    assert outputs[8] == "'darts:s2:2'"
    assert len(scope["run"].metrics) == 3


def test_it_is_saved_without_outputs():
    NOTEBOOK.check_saved_without_outputs()


def test_its_links_lead_somewhere():
    NOTEBOOK.check_links()
