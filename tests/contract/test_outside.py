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
    result.assert_outcomes(passed=3, skipped=1, deselected=24)
    result.stdout.fnmatch_lines("*SKIPPED*each draws its own path*")


def test_a_file_beside_the_test_is_found_from_any_folder(pytester):
    folder = pytester.mkdir("mine")
    (folder / "sound.py").write_text((HERE / "sound.py").read_text())
    (folder / "chain.py").write_text((HERE.parents[1] / "docs/examples/chain.py").read_text())
    (folder / "test_mine.py").write_text(
        "from fedloom.testing import MethodContract, SpaceContract\n\n"
        "class TestMine(MethodContract):\n"
        "    method = 'sound.py:sound'\n\n"
        "class TestSpace(SpaceContract):\n"
        "    space = 'chain.py:Chain:2'\n"
    )
    result = pytester.runpytest_inprocess("mine", "-k", "a_run_ends or its_name")
    result.assert_outcomes(passed=2)


def test_a_method_that_cannot_run_fails_once(pytester):
    """Its other tests would all fail for the same reason."""
    pytester.copy_example(str(HERE / "faulty.py"))
    pytester.makepyfile(
        test_mine="""
        from fedloom.testing import MethodContract

        class TestMine(MethodContract):
            method = "faulty.py:undeclared"
        """
    )
    result = pytester.runpytest_inprocess("-rs")
    outcomes = result.parseoutcomes()
    assert outcomes.keys() == {"failed", "skipped"} and outcomes["failed"] == 1
    result.stdout.fnmatch_lines("*it contains the undeclared field 'secret'*")
    result.stdout.fnmatch_lines("*SKIPPED*test_a_run_ends shows why*")


def test_a_method_that_does_not_repeat_itself_fails_where_the_cause_is(pytester):
    """Comparisons of two runs would fail too, and name causes that it does not have."""
    pytester.copy_example(str(HERE / "faulty.py"))
    pytester.makepyfile(
        test_mine="""
        from fedloom.testing import MethodContract

        class TestMine(MethodContract):
            method = "faulty.py:noisy"
        """
    )
    result = pytester.runpytest_inprocess("-rsf")
    assert result.parseoutcomes()["failed"] == 2
    result.stdout.fnmatch_lines("FAILED*test_deterministic*")
    result.stdout.fnmatch_lines("FAILED*test_clients_draw_only_from_the_seed_tree*")
    result.stdout.fnmatch_lines("SKIPPED*test_deterministic shows how*")


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
