"""Plants faults into copies of the source, one at a time, and checks whether the tests notice.

    python tests/faults/plant.py             all of them, about half an hour
    python tests/faults/plant.py wire ditto  those with one of these words in file or sentence
    python tests/faults/plant.py --check     only check that the texts to replace still exist

`planted.py` lists the faults. A fault is *caught* if a test that it names fails. It is *not caught*
if all of them pass, and then a test is missing. First the named tests run without any fault: tests
that fail anyway notice nothing. The exit code is 1 if a fault was not caught, if a text is no
longer there, or if tests could not run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from planted import FAULTS, Fault

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
TIME_LIMIT = 300.0  # seconds for the tests of one fault
WHOLE_LIMIT = 3600.0  # seconds for all of them, without a fault
# Exit codes of pytest; any other one means that the tests did not run.
FAILED = 1
PASSED = 0
NEEDS = {"flower": ("flwr", "ray")}  # the modules without which the tests of a marker cannot run


@dataclass(frozen=True)
class Outcome:
    fault: Fault
    verdict: str  # "caught", "NOT CAUGHT", "skipped", or why the tests could not run
    seconds: float = 0.0
    noticed_by: str = ""  # the first test that failed

    @property
    def is_fine(self) -> bool:
        return self.verdict in ("caught", "skipped")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Plant faults and see whether the tests notice.")
    parser.add_argument(
        "words", nargs="*", help="only faults with one of these words in their file or sentence"
    )
    parser.add_argument(
        "--check", action="store_true", help="only see whether the texts to be replaced are there"
    )
    options = parser.parse_args(arguments)
    faults = [fault for fault in FAULTS if chosen(fault, options.words)]
    if not faults:
        print("no fault has such a word")
        return 1
    problems = [misplaced(fault) for fault in faults]
    stale = [problem for problem in problems if problem is not None]
    for problem in stale:
        print(problem)
    if stale or options.check:
        print(f"{len(faults)} faults, {len(stale)} of them can no longer be planted")
        return int(bool(stale))
    return planted(faults)


def chosen(fault: Fault, words: Sequence[str]) -> bool:
    place = f"{fault.file} {fault.breaks}".lower()
    return not words or any(word.lower() in place for word in words)


def misplaced(fault: Fault) -> str | None:
    """Why this fault cannot be planted; None: it can."""
    path = SOURCE / "fedloom" / fault.file
    if not path.exists():
        return f"{fault.file} is not there any more: {fault.breaks}"
    times = path.read_text().count(fault.text)
    if times != 1:
        return f"{fault.file} has the text {fault.text!r} {times} times, not once: {fault.breaks}"
    missing = [
        name for name in fault.tests if not (ROOT / "tests" / name.partition("::")[0]).exists()
    ]
    if missing:
        return f"tests/{missing[0]} is not there any more: {fault.breaks}"
    return None


def planted(faults: Sequence[Fault]) -> int:
    able = [fault for fault in faults if can_run(fault)]
    print(f"{len(able)} faults; first their tests without any fault")
    with copied() as source:
        broken = unsound(able, source)
    for name in broken:
        print(f"{name} fails without a fault")
    if broken:
        return 1
    outcomes = []
    for number, fault in enumerate(faults, start=1):
        outcome = tried(fault)
        outcomes.append(outcome)
        print(
            f"{number:3d} {outcome.verdict:10s} {outcome.seconds:5.1f} s  {fault.file}: "
            f"{fault.breaks}",
            flush=True,
        )
        if outcome.noticed_by:
            print(f"{'':24s}by {outcome.noticed_by}", flush=True)
    for marker in sorted({fault.marker for fault in faults if not can_run(fault)}):
        missing = " and ".join(name for name in NEEDS[marker] if not is_installed(name))
        print(
            f"Faults whose tests need fedloom[{marker}] were skipped: there is no package "
            f"{missing}."
        )
    caught = sum(outcome.verdict == "caught" for outcome in outcomes)
    skipped = sum(outcome.verdict == "skipped" for outcome in outcomes)
    print(
        f"{len(outcomes)} faults: {caught} caught, {len(outcomes) - caught - skipped} not, "
        f"{skipped} skipped"
    )
    return int(not all(outcome.is_fine for outcome in outcomes))


def can_run(fault: Fault) -> bool:
    return all(is_installed(name) for name in NEEDS.get(fault.marker, ()))


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@contextmanager
def copied() -> Iterator[Path]:
    """Copy the source tree, so that the working tree is never touched."""
    with tempfile.TemporaryDirectory(prefix="fedloom-fault-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        yield source


def tests_of(faults: Sequence[Fault], marker: str) -> list[str]:
    """The tests that must notice the faults of a marker, each once."""
    names: set[str] = set()
    for fault in faults:
        if fault.marker == marker:
            names.update(fault.tests)
    return sorted(names)


def unsound(faults: Sequence[Fault], source: Path) -> list[str]:
    """The tests that fail without a fault: the first one for each marker."""
    broken = []
    for marker in sorted({fault.marker for fault in faults}):
        names = tests_of(faults, marker)
        code, failed = run_tests(names, marker, source, WHOLE_LIMIT)
        if code != PASSED:
            broken.append(failed or f"one of {', '.join(names)}")
    return broken


def tried(fault: Fault) -> Outcome:
    if not can_run(fault):
        return Outcome(fault, "skipped")
    started = time.monotonic()
    with copied() as source:
        path = source / "fedloom" / fault.file
        path.write_text(path.read_text().replace(fault.text, fault.instead))
        code, failed = run_tests(fault.tests, fault.marker, source)
    seconds = time.monotonic() - started
    if code == FAILED:
        return Outcome(fault, "caught", seconds, failed)
    if code == PASSED:
        return Outcome(fault, "NOT CAUGHT", seconds)
    if code is None:
        return Outcome(fault, "too slow", seconds)
    return Outcome(fault, "did not run", seconds)


def run_tests(
    names: Sequence[str], marker: str, source: Path, limit: float = TIME_LIMIT
) -> tuple[int | None, str]:
    """Pytest's exit code (None: it was stopped at the time limit) and the first failed test."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-header",
        "--tb=no",
    ]
    if marker:
        command += ["-m", marker]
    command += [f"tests/{name}" for name in names]
    env = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return None, ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if not failed:
        return done.returncode, ""
    return done.returncode, failed[0].partition(" ")[2].partition(" - ")[0]


if __name__ == "__main__":
    sys.exit(main())
