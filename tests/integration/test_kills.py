"""Killed at any moment, a run resumes and ends exactly as if it had not been."""

import json
import os
import random
import time
import traceback

import processes
import pytest
import tiny
from disk import Disk

from fedloom.federation.protocol import parcels
from fedloom.records.folder import RunFolder
from fedloom.records.plan import Plan
from fedloom.report.progress import Screen
from fedloom.runs.comparison import continue_comparison, create_comparison
from fedloom.runs.configure import configure
from fedloom.runs.experiment import create

pytestmark = pytest.mark.processes

QUIET = Screen(None, None)

KEEPER = '''
"""FedAvg whose clients also keep how often they worked, and the mean of what they were sent."""

from dataclasses import dataclass, replace

import torch

from fedloom.federation.protocol.method import Recipe, Stage
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.types import State


@dataclass(frozen=True)
class Keeper(FedAvg):
    def client(self, order, data, own, run):
        reply, _ = super().client(order, data, own, run)
        before = State({"sum": torch.zeros(1)}, {"times": 0}) if own is None else own
        sent = sum(tensor.double().mean() for tensor in order.tensors.values())
        total = before.tensors["sum"] + sent
        return reply, State({"sum": total}, {"times": before.meta["times"] + 1})


def stages(task):
    return (Stage("train", Keeper(FedAvgOptions(**task.options))),)


keeper = Recipe("keeper", FedAvgOptions, stages)
'''

BEST = {"evaluate": {"select": "best"}}
CASES = {
    "fedavg": ("fedavg", {"clients": 4, "budget": {"participation": 0.5}, **BEST}),
    "clustered": ("fedavg", {"clients": 4, "rounds": 2, "engine": {"topology": "clustered:2x2"}}),
    "local": ("local", {"clients": 5, "rounds": 4, "budget": {"participation": 0.4}}),
    "two-stages": ("local-adaptation", {"rounds": 4, "options": {"adapt_share": 0.5}, **BEST}),
    "keeper": ("KEEPER", {"clients": 4, "rounds": 2, "engine": {"topology": "clustered:2x2"}}),
}


FILES = {"fedavg", "local", "keeper"}


class Case:
    """An experiment, the files of an undisturbed run of it, and its operations on the disk."""

    def __init__(self, name, folder):
        (folder / "keeper.py").write_text(KEEPER)
        method, sections = CASES[name]
        self.method = method.replace("KEEPER", f"{folder}/keeper.py:keeper")
        self.tree = tiny.tree(tiny.write_images(folder / "images.npz", samples=60), **sections)
        self.folder = folder
        path = self.begin("undisturbed")
        with Disk().mounted() as disk:
            tiny.go_on(path)
        self.log = disk.log
        self.expected = tiny.left_behind(path)

    def begin(self, name):
        """A run's folder, made but not yet run."""
        folder, _ = create(configure(self.method, self.tree), self.folder / name)
        return folder.path

    def resume_to_the_end(self, path):
        tiny.go_on(path)
        return tiny.unlike(self.expected, tiny.left_behind(path))


OFTEN_ENOUGH = {"fedavg"}  # the others take their time and run with the slow tests


@pytest.fixture(
    scope="module",
    params=[
        name if name in OFTEN_ENOUGH else pytest.param(name, marks=pytest.mark.slow)
        for name in CASES
    ],
)
def case(request, tmp_path_factory):
    """Replies are so small that they go into the journal.

    In every other case they are files, as large ones are.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.param in FILES:
            patch.setattr(parcels, "MOST_HELD", 0)
        yield Case(request.param, tmp_path_factory.mktemp(request.param))


def killed(path, disk, work=tiny.go_on) -> bool:
    """Run on in a process of its own, which the disk may kill; False: it came to the end."""
    child = os.fork()
    if child == 0:
        try:
            with disk.mounted():
                work(path)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)  # a child must not go on as a second pytest
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "it failed by itself"
    return os.WIFSIGNALED(status)


def moments(log, most, generator):
    """An operation of every kind, then others at random: (its number, whether it is half done)."""
    places: dict[str, list[int]] = {}
    for number, kind in enumerate(log, start=1):
        places.setdefault(kind, []).append(number)
    chosen = {(generator.choice(found), kind.startswith("write")) for kind, found in places.items()}
    while len(chosen) < most:
        chosen.add((generator.randint(1, len(log)), generator.random() < 0.5))
    return sorted(chosen)


def test_one_kill_at_every_kind_of_moment(case):
    kinds = set(case.log)
    assert ("write spool reply" in kinds) == (parcels.MOST_HELD == 0)
    assert {
        "write checkpoints state",
        "rename checkpoints state",
        "write run jsonl",
        "write spool jsonl",
    } <= kinds
    for at, half in moments(case.log, 12, random.Random(1)):
        path = case.begin(f"killed-{at}-{half}")
        assert killed(path, Disk(at, half=half))
        assert case.resume_to_the_end(path) == [], (
            f"killed at operation {at} ({case.log[at - 1]}, half done: {half})"
        )


def test_killed_before_an_old_checkpoint_is_put_aside(tmp_path, monkeypatch):
    """Orders name the versions that checkpoints need.

    One checkpoint too many on the disk must not lengthen them.
    """
    monkeypatch.setitem(
        CASES, "long", ("local", {"clients": 5, "rounds": 10, "budget": {"participation": 0.4}})
    )
    case = Case("long", tmp_path)
    put_aside = [
        at for at, kind in enumerate(case.log, start=1) if kind == "rename checkpoints tmp"
    ]
    assert len(put_aside) == 8
    for at in put_aside[3:7]:
        path = case.begin(f"killed-{at}")
        assert killed(path, Disk(at))
        assert case.resume_to_the_end(path) == []


def test_many_kills_of_one_run(case):
    """A run is killed and resumed again and again, often within one round, until it finishes."""
    generator = random.Random(2)
    path = case.begin("killed-often")
    kills = 0
    while killed(
        path,
        Disk(
            generator.randint(len(case.log) // 6, len(case.log) // 2), half=generator.random() < 0.5
        ),
    ):
        kills += 1
        assert kills < 100, "the run makes no progress"
    assert kills >= 2
    assert tiny.unlike(case.expected, tiny.left_behind(path)) == []


# Comparisons


def test_kills_of_a_comparison(tmp_path):
    """Also while a run's folder is being made: what is not whole is made again."""
    setting = tiny.tree(tiny.write_images(tmp_path / "images.npz", samples=40), clients=2, rounds=2)
    plan = Plan(("fedavg", "local"), (0, 1), {}, setting)

    def comparison_left(path):
        saved = tiny.timeless(json.loads((path / "result.json").read_text()))
        runs = {
            name: tiny.left_behind(path / name)
            for name in ("fedavg-seed0", "fedavg-seed1", "local-seed1")
        }
        return {"methods": saved["methods"], **runs}

    folder = create_comparison(plan, tmp_path / "undisturbed")
    with Disk().mounted() as disk:
        continue_comparison(folder, QUIET)
    expected = comparison_left(folder.path)
    generator = random.Random(4)
    moments_of_writing = [
        at for at, kind in enumerate(disk.log, start=1) if "run json" in kind or "run toml" in kind
    ]
    for number, at in enumerate(
        [*generator.sample(moments_of_writing, 5), *generator.sample(range(1, len(disk.log)), 2)]
    ):
        folder = create_comparison(plan, tmp_path / f"killed-{number}")
        assert killed(
            folder.path,
            Disk(at, half=True),
            lambda path: continue_comparison(RunFolder.open(path), QUIET),
        )
        continue_comparison(folder, QUIET)
        assert tiny.unlike(expected, comparison_left(folder.path)) == []


# The real command, with worker processes


@pytest.mark.slow
def test_kills_of_the_command_and_its_workers(tmp_path):
    """After two kills of the main process and two of workers, the result is that of one process."""
    data = tiny.write_images(tmp_path / "images.npz", samples=400)
    out = tmp_path / "run"
    setting = tiny.tree(data, clients=4, rounds=10, options={"epochs": "2"})
    tiny.start(tmp_path / "undisturbed", "local", setting)
    words = [
        "--data",
        str(data),
        "--clients",
        "4",
        "--partition",
        "iid",
        "--rounds",
        "10",
        "--workers",
        "2",
    ]
    words += ["--evaluate-every", "1", "--width", "0.125", "--batch", "8", "--epochs", "2"]
    generator = random.Random(3)
    seen = set()

    def after_a_round(process):
        """Somewhere in the second round from now."""
        before = processes.lines(out / "metrics.jsonl")
        assert processes.wait_for(
            lambda: processes.lines(out / "metrics.jsonl") > before or process.poll() is not None
        )
        assert process.poll() is None, process.communicate()
        seen.update(processes.workers_of(process))
        time.sleep(generator.uniform(0, 0.1))

    process = processes.launch("run", "local", *words, "--out", str(out), "--quiet")
    after_a_round(process)
    process.kill()
    process.communicate()
    process = processes.launch("resume", str(out), "--quiet")
    after_a_round(process)
    os.kill(processes.workers_of(process)[0], 9)
    after_a_round(process)
    process.kill()
    process.communicate()
    process = processes.launch("resume", str(out), "--json")
    after_a_round(process)
    os.kill(processes.workers_of(process)[-1], 9)
    code, output, errors = processes.end(process)
    assert (code, errors) == (0, "")
    assert json.loads(output)["run"] == str(out)
    assert tiny.unlike(tiny.left_behind(tmp_path / "undisturbed"), tiny.left_behind(out)) == []
    assert len(seen) >= 6  # two of each process, and replacements
    assert processes.wait_for(lambda: not any(map(processes.alive, seen)), 30), "orphans are left"
