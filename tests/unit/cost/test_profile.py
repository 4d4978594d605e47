import json
from functools import partial

import pytest

from fedloom.cost.limits import Estimator, Figures, Limit
from fedloom.cost.profile import Entry, Machine, Profile, read_profile, this_machine
from fedloom.cost.steps import Piece, Steps, model_of
from fedloom.cost.timing import in_turns, summary
from fedloom.errors import FedloomError
from fedloom.rng import rng
from fedloom.spaces.options import SpaceOptions
from fedloom.types import Task

MACHINE = Machine(processor="abacus", system="Desk", device="cpu", torch="1")
RELU = Piece("relu", 2, 2, 3, 3, 1)
ADD = Piece("add", 2, 2, 3, 3, 1)


def profile(times):
    entries = tuple(
        Entry(**piece._asdict(), ms=ms, spread_ms=0.0, repeats=3) for piece, ms in times.items()
    )
    return Profile(machine=MACHINE, made="2026-01-01", entries=entries)


def test_a_latency_is_the_sum():
    assert profile({RELU: 0.5, ADD: 0.25}).latency_ms({RELU: 3, ADD: 2}) == 2.0


def test_a_missing_operation_is_named():
    message = (
        "mine must have every operation of the network, "
        "but it has no add of 2→2 channels at 3×3, stride 1; measure "
    )
    with pytest.raises(FedloomError, match=message):
        profile({RELU: 0.5}).latency_ms({RELU: 1, ADD: 1}, "mine")


def test_it_goes_through_a_file(tmp_path):
    file = tmp_path / "p.json"
    written = profile({RELU: 0.5, ADD: 0.25})
    file.write_text(json.dumps(written.to_json()))
    assert read_profile(file) == written


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda raw: raw.update(format=2), "format: Input should be 1"),
        (lambda raw: raw.update(more=1), "more: Extra inputs are not permitted"),
        (
            lambda raw: raw["entries"][0].update(ms=-1.0),
            "entries.0.ms: Input should be greater than or equal to 0",
        ),
        (
            lambda raw: raw["entries"][0].update(ms="1"),
            "entries.0.ms: Input should be a valid number",
        ),
        (lambda raw: raw["entries"].append(raw["entries"][0]), "it has an operation twice"),
        (lambda raw: raw.pop("machine"), "machine: Field required"),
        (lambda raw: raw["entries"].clear(), "entries: Tuple should have at least 1 item"),
    ],
)
def test_the_schema_is_closed(tmp_path, change, found):
    file = tmp_path / "p.json"
    raw = profile({RELU: 0.5}).to_json()
    change(raw)
    file.write_text(json.dumps(raw))
    with pytest.raises(FedloomError, match=f"must be a device profile of format 1, but {found}"):
        read_profile(file)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[" * 100_000, '{"entries": NaN}'])
def test_damaged_files(tmp_path, text):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(FedloomError, match="must be a device profile"):
        read_profile(tmp_path / "p.json")


def test_an_unreadable_file(tmp_path):
    with pytest.raises(
        FedloomError,
        match=r"must be a device profile of format 1, but it cannot be read \(Is a dir",
    ):
        read_profile(tmp_path)


def test_this_machine_says_what_a_time_depends_on():
    import torch

    here = this_machine("cpu")
    assert here.torch == torch.__version__ and here.device == "cpu" and here.processor


# Timing


def test_everything_is_called_in_turns():
    called = []
    progress = []
    works = [lambda: called.append("a"), lambda: called.append("b")]
    times = in_turns(works, 4, "cpu", lambda *step: progress.append(step))
    turns = [sorted(called[begin : begin + 2]) for begin in range(0, len(called), 2)]
    assert turns == [["a", "b"]] * 7  # three turns to warm up
    assert progress[-1] == ("measuring", 7, 7)
    assert len(times) == 2 and all(timing.ms > 0 for timing in times)


def test_a_thread_that_sleeps_takes_no_time():
    """Time that other programs take from the thread does not count."""
    import time

    (timing,) = in_turns([lambda: time.sleep(0.003)], 5, "cpu", lambda *step: None)
    assert timing.ms < 1.5


def test_mean_and_middle_half():
    assert summary([0.001, 0.002, 0.003, 0.004, 0.1]) == (pytest.approx(22.0), pytest.approx(2.0))


def test_means_of_parts_add_up_to_the_whole_where_each_is_slow_now_and_then():
    """Two operations are slow in different turns of four: medians sum to half of the network's."""
    first = [0.001, 0.005, 0.001, 0.001]
    second = [0.001, 0.001, 0.005, 0.001]
    network = [one + other for one, other in zip(first, second, strict=True)]
    assert summary(first).ms + summary(second).ms == pytest.approx(summary(network).ms)


def test_every_turn_has_an_order_of_its_own():
    """Otherwise an operation would always follow the same one, and find the caches warm."""
    calls = []
    works = [partial(calls.append, number) for number in range(8)]
    in_turns(works, 5, "cpu", lambda *step: None)
    turns = [tuple(calls[begin : begin + 8]) for begin in range(0, len(calls), 8)]
    assert all(sorted(turn) == list(range(8)) for turn in turns)
    assert len(set(turns)) == len(turns)


# Limits


def test_limits_are_inclusive_and_name_what_is_too_much():
    limit = Limit(params=100, latency_ms=2.0)
    assert limit.fits(Figures(100, 10**9, 2.0))
    assert limit.over(Figures(101, None, 2.5)) == ["params", "latency_ms"]
    assert limit.over(Figures(1, None, None)) == ["latency_ms"]  # nobody can vouch for it


def test_limits_from_words():
    assert Limit.parse("params=100k,macs=1.5M,latency_ms=2") == Limit(100_000, 1_500_000, 2.0)
    with pytest.raises(
        FedloomError, match="a limit must be a known name, but got 'param'; did you mean params"
    ):
        Limit.parse("param=1")
    assert Limit.parse("macs=1e5, params=100k") == Limit(100_000, 100_000)
    with pytest.raises(
        FedloomError, match="limit params must be given once, but got 'params=1,params=2'"
    ):
        Limit.parse("params=1,params=2")
    for text in ("params=0", "params=-1", "params=x", "params=", "params=1e", "macs=1P"):
        with pytest.raises(FedloomError, match="must be one number above 0"):
            Limit.parse(text)


def test_an_estimator_adds_up_formula_and_profile():
    sizes = {"space": "darts", "ops": "s2", "cells": 2, "nodes": 1, "channels": 2}
    task = Task("x", sizes, "image", (1, 8, 8), ("a", "b"), 0, (0.0,), (1.0,))
    model = model_of(task, SpaceOptions(**sizes).searched(task))
    steps = Steps(model)
    times = dict.fromkeys(steps.all_pieces(), 0.5)
    arch = model.net.space.sample(rng(0, "x"))
    cut = model.net.cut(arch)
    figures = Estimator(model, profile(times)).figures(arch)
    assert figures.params == sum(weights.numel() for weights in cut.parameters())
    assert figures.latency_ms == 0.5 * sum(steps.of(arch).values())
    assert Estimator(model).figures(arch) == figures._replace(latency_ms=None)
