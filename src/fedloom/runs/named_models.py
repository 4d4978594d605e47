"""What the networks of a finished run are made of that are no client's own, without any data.

They are a tier's network, and the one that a search found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedloom.config.models import Experiment
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.protocol.wire import WireError, read_state
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.records.opening import FinishedRun
from fedloom.records.searches import MODEL, found_search
from fedloom.records.sections import tuned_model
from fedloom.runs.configure import resolve_options
from fedloom.types import Order, Setup, State, Task


def task_without_data(run: FinishedRun, config: Experiment) -> Task:
    """The result says what goes into the network and what comes out."""
    network_input = run.record.input
    if network_input is None:
        rule = f"{run.path}/result.json must say what goes into the network"
        raise FedloomError(rule, "a version before 0.1.0 wrote it", "run it again")
    target = None
    if network_input.encoding is not None:
        target = network_input.encoding.target
    return Task(
        method=config.method,
        options=resolve_options(config.method, config.options),
        kind=network_input.kind,
        shape=tuple(network_input.shape),
        labels=tuple(network_input.labels),
        seed=config.seed,
        mean=tuple(network_input.mean),
        std=tuple(network_input.std),
        target=target,
    )


def at_the_end(at: Checkpoint, setup: Setup, stages: Sequence[Stage]) -> Checkpoint:
    """The last stage's state, also where nothing of the budget remained for it.

    Then it is the state that the stage began with.
    """
    for number in range(at.stage + 1, len(stages)):
        stage = stages[number]
        at = replace(at, stage=number, state=stage.method.init(setup, at.state))
        if not stage.keeps_own:
            at = replace(at, versions={})
    return at


def order_for_tier(method: Method, state: State, tier: int, run: Path) -> Order:
    name = tuned_model(tier)
    numbers = []
    for model in method.models(state):
        number = model.rpartition("-")[2]
        if number.isdecimal() and model == tuned_model(int(number)):
            numbers.append(int(number))
    if not numbers:
        rule = "--tier must be of a run whose method has a network for every tier of devices"
        raise FedloomError(rule, f"{run} is none", "take --client K or --shared")
    if tier not in numbers:
        rule = f"--tier must be one of the run's, from 1 to {max(numbers)}"
        raise FedloomError(rule, f"got {tier}", "choose one of them")
    return method.serve_model(state, name, 0)


def order_for_search(run: Path, name: str) -> Order:
    from fedloom.methods.fedoras_path import path_model  # a whole method: for its runs alone

    path = found_search(run, name) / MODEL
    try:
        return path_model(read_state(path.read_bytes()))
    except (KeyError, OSError, WireError) as error:
        rule = f"{path} must be the network that a search found"
        raise FedloomError(rule, f"{type(error).__name__}: {error}", "search again") from None
