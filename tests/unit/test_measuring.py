"""How benchmarks measure: CPU seconds of all processes, and the messages of failed ones."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from measuring import Lane, cpu_of_tree, descendants

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
# A process that ends and one that stays: both are somebody's children, the second a grandchild.
ENDED = BURN.format(seconds=0.4)
STAYING = BURN.format(seconds=0.4) + "print('burnt', flush=True)\ninput()\n"
BETWEEN = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {STAYING!r}])\n"
ROOT = f"""
import subprocess, sys
subprocess.run([sys.executable, '-c', {ENDED!r}])
subprocess.run([sys.executable, '-c', {BETWEEN!r}])
"""
CONDUCTED = """
import job
conductor = job.Conductor()
conductor.before_first_round()
try:
    while True:
        print("a round")
        conductor.after_round()
except job.Finished:
    pass
"""


def test_descendants_are_children_and_their_children():
    parents = {1: 0, 2: 1, 3: 2, 4: 1, 5: 9, 9: 0}
    assert descendants(1, parents) == {1, 2, 3, 4}
    assert descendants(9, parents) == {5, 9}
    assert descendants(7, parents) == set()


def test_the_cpu_of_a_tree_counts_grandchildren_and_those_that_ended():
    command = [sys.executable, "-c", ROOT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as root:
        assert root.stdout is not None
        assert root.stdout.readline() == "burnt\n"
        cpu = cpu_of_tree(root.pid)
        root.communicate("\n")
    assert cpu.user + cpu.system >= 0.75  # 0.4 each, and starting four interpreters


def test_a_lane_goes_on_by_the_rounds_it_is_told_and_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(path for path in sys.path if path))
    lane = Lane([[sys.executable, "-c", CONDUCTED]] * 2, tmp_path / "log")
    for _ in range(2):
        assert lane.turn(3).wall > 0
    lane.close()
    assert [process.returncode for process in lane.processes] == [0, 0]


def test_a_lane_that_ended_says_what_it_said(tmp_path):
    command = [sys.executable, "-c", "input(); raise SystemExit('there is no such layout')"]
    lane = Lane([command], tmp_path / "log")
    with pytest.raises(RuntimeError, match="no such layout"):
        lane.turn(1)
    lane.close()
