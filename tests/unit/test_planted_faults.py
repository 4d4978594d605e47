"""The faults that `make test-faults` plants must fit the source: a moved line would disarm one."""

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "faults"


def planter(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("planter_of_faults", FOLDER / "plant.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_every_fault_can_still_be_planted(monkeypatch):
    plant = planter(monkeypatch)
    problems = [plant.misplaced(fault) for fault in plant.FAULTS]
    assert len(problems) > 100
    assert "\n".join(problem for problem in problems if problem is not None) == ""
