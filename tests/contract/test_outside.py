"""The suite as an author outside the repository uses it: a file, a class, a few lines."""

from pathlib import Path

import fedloom
from fedloom.testing import MethodContract

HERE = Path(__file__).parent


class TestSound(MethodContract):
    method = f"{HERE}/sound.py:sound"


def test_three_lines_are_enough(pytester):
    pytester.copy_example(str(HERE / "sound.py"))
    pytester.makepyfile(
        test_mine="""
        from fedloom.testing import MethodContract

        class TestMine(MethodContract):
            method = "sound.py:sound"
            options = {"lr": 0.1}
            exempt = {"identical_clients_are_one": "each draws its own path"}
        """
    )
    result = pytester.runpytest_inprocess("-k", "sum_to_one or identical or owner or fields", "-rs")
    result.assert_outcomes(passed=3, skipped=1, deselected=22)
    result.stdout.fnmatch_lines("*SKIPPED*each draws its own path*")


def test_only_the_suite_needs_pytest():
    """A plain install has no pytest: nothing else may import it, or the suite."""
    source = Path(fedloom.__file__).parent
    for path in source.rglob("*.py"):
        if source / "testing" not in path.parents:
            lines = [line.strip() for line in path.read_text().splitlines()]
            wanted = (
                "import pytest",
                "from pytest",
                "import fedloom.testing",
                "from fedloom.testing",
            )
            assert [line for line in lines if line.startswith(wanted)] == [], path
