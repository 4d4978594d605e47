"""docs/tutorials/4-federation-on-one-machine.ipynb, with real processes."""

import os
from pathlib import Path

import pytest
from notebooks import Notebook

pytestmark = [pytest.mark.flower, pytest.mark.slow]  # five minutes of a busy machine

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "4-federation-on-one-machine.ipynb"


def test_it_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    try:
        outputs = Notebook(TUTORIAL).run(scope)
    finally:
        for process in [*scope.get("sites", []), scope.get("server")]:
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(60)
    assert len(scope["run"].clients) == 2
    assert "tensors" in outputs[-2]
    assert outputs[-1] == "[True, True, True]"
    assert os.path.exists(tmp_path / "federated" / "report.html")
