"""Which heavy packages a command may not import, and how torch is imported where it is needed."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tiny

pytestmark = pytest.mark.processes

CELLS = {"ops": "s2", "cells": 2, "nodes": 1, "channels": 2, "batch": 8, "epochs": 1}
PROBE = """
import json, sys
from fedloom.cli import main
assert main(sys.argv[1:]) == 0
print(json.dumps(list(sys.modules)))
"""
HEAVY = {
    "torch",
    "sklearn",
    "scipy",
    "matplotlib",
    "pandas",
    "onnx",
    "sympy",
    "torch._dynamo",
    "flwr",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of a fixed network and one of a search."""
    folder = tmp_path_factory.mktemp("startup")
    images = tiny.write_images(folder / "images.npz")
    tiny.start(folder / "fixed", "fedavg", tiny.tree(images, rounds=1))
    tiny.start(folder / "searched", "fednas", {**tiny.tree(images), "options": CELLS})
    np.savez(folder / "new.npz", x=np.load(images)["x"][:5])
    return folder


def modules_of(folder, script, *words):
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("list spaces", set()),
        ("list data", set()),
        ("list partitions", set()),
        ("runs list fixed searched", set()),
        ("report fixed", set()),
        ("report searched", set()),
        ("data show digits --partition iid+rotation:30", set()),
        ("plot searched", {"matplotlib"}),
        ("report searched --plots", {"matplotlib"}),
        ("list methods", {"torch"}),
        ("export searched --shared", {"torch"}),
        ("predict fixed --client 0 --data new.npz", {"torch"}),
        ("resume fixed", {"torch"}),
        ("run fedavg --data digits --dry-run", {"torch"}),
    ],
)
def test_a_command_imports_no_more_than_it_needs(place, command, allowed):
    imported = modules_of(place, PROBE, *command.split())
    assert "fedloom" in imported
    assert imported & HEAVY == allowed


@pytest.mark.parametrize(
    "command", ["export searched --shared", "predict fixed --client 0 --data new.npz"]
)
def test_whoever_opens_a_finished_run_imports_nothing_that_runs_one(place, command):
    imported = modules_of(place, PROBE, *command.split())
    assert "fedloom.runs.preparing" in imported
    needless = {
        "fedloom.runs.experiment",
        "fedloom.federation.server.loop",
        "fedloom.federation.engines.local",
        "fedloom.federation.engines.worker_pool",
        "fedloom.report.sinks",
        "fedloom.methods.fedoras_search",
    }
    assert imported & needless == set()


ENDING = """
import atexit, sys, threading, time
from fedloom.__main__ import program

class Told:
    def __del__(self):
        print("taken apart", flush=True)

told = Told()

def late():
    time.sleep(0.2)
    print("the thread has ended")

def work():
    atexit.register(print, "an exit function was called")
    threading.Thread(target=late).start()
    return int(sys.argv.pop())

import fedloom.cli
fedloom.cli.main = work
sys.exit(program())
"""


def ended(command, code):
    words = [sys.executable, "-c", ENDING, command, str(code)]
    return subprocess.run(words, capture_output=True, text=True)


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_only_reads_ends_at_once_but_in_order(code):
    done = ended("export", code)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines() == ["the thread has ended", "an exit function was called"]


@pytest.mark.parametrize("code", [0, 3])
def test_any_other_command_ends_as_python_does(code):
    done = ended("run", code)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-1] == "taken apart"


def test_output_that_nobody_reads_ends_as_python_does(place):
    process = subprocess.Popen(
        [sys.executable, "-m", "fedloom", "export", "searched", "--shared"],
        cwd=place,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    errors = process.stderr.read().decode()
    assert process.wait() == 120
    assert "BrokenPipeError" in errors


def test_a_worker_imports_no_more_than_it_needs(place):
    script = """
import json, os, sys
from multiprocessing import Pipe
from fedloom.runs import worker
ours, theirs = Pipe()
lifeline, kept_open = os.pipe()
sys.argv = ["worker", str(os.dup(theirs.fileno())), str(lifeline)]
theirs.close()
ours.close()  # so it has nothing to do
worker.main()
print(json.dumps(list(sys.modules)))
"""
    imported = modules_of(place, script)
    assert "fedloom.methods" in imported
    assert imported & HEAVY == {"torch"}


def test_nothing_is_collected_while_torch_is_imported(tmp_path):
    script = """
import gc, json
from fedloom.loading import load_torch
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
load_torch()
assert collections == [], len(collections)
assert gc.isenabled() and gc.get_freeze_count() > 100_000
frozen = gc.get_freeze_count()
load_torch()
assert gc.get_freeze_count() == frozen
print(json.dumps([]))
"""
    assert modules_of(tmp_path, script) == set()


def test_in_somebody_elses_process_the_collector_stays_as_it_is(tmp_path):
    script = """
import gc, json
import torch
from fedloom.loading import load_torch
load_torch()
assert gc.get_freeze_count() == 0
print(json.dumps([]))
"""
    assert modules_of(tmp_path, script) == set()
