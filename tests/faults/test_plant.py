"""The planter itself: it must be able to say that a fault was caught, and that it was not."""

from dataclasses import replace

import plant
import pytest
from planted import FAULTS, Fault

pytestmark = pytest.mark.slow

CAUGHT = Fault(
    "Every draw is the same.",
    "rng.py",
    "return int.from_bytes(",
    "return 1 or int.from_bytes(",
    ("unit/test_rng.py",),
)


@pytest.mark.parametrize(
    ("instead", "verdict"),
    [
        (CAUGHT.instead, "caught"),
        ("return int.from_bytes(  # harmless\n        ", "NOT CAUGHT"),
        ("return int.from_bytes((", "did not run"),
    ],
)
def test_what_the_planter_says(instead, verdict):
    before = (plant.SOURCE / "fedloom" / CAUGHT.file).read_bytes()
    outcome = plant.tried(replace(CAUGHT, instead=instead))
    assert outcome.verdict == verdict
    assert outcome.noticed_by.startswith("tests/unit/test_rng.py::") == (verdict == "caught")
    assert (plant.SOURCE / "fedloom" / CAUGHT.file).read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"text": "no such text"}, "has the text 'no such text' 0 times, not once"),
        ({"text": "seed"}, "times, not once"),
        ({"file": "none.py"}, "none.py is not there any more"),
        ({"tests": ("unit/test_none.py",)}, "tests/unit/test_none.py is not there any more"),
    ],
)
def test_what_can_no_longer_be_planted_is_named(changes, problem):
    assert problem in plant.misplaced(replace(CAUGHT, **changes))
    assert plant.misplaced(CAUGHT) is None


def test_a_fault_is_planted_once_and_changes_something():
    assert len({(fault.file, fault.text, fault.instead) for fault in FAULTS}) == len(FAULTS)
    assert all(fault.text != fault.instead for fault in FAULTS)
