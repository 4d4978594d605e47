"""Networks of a finished run that belong to no client, rebuilt without its data.

They are the network of a tier of devices, and the one that a search found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedloom.config.models import Experiment
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.protocol.packing import WireError
from fedloom.federation.protocol.wire import read_state
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.records.opening import FinishedRun
from fedloom.records.searches import MODEL, folder_of_search
from fedloom.records.sections import tuned_model
from fedloom.runs.configure import resolve_options
from fedloom.types import Order, Setup, State, Task


def task_without_data(run: FinishedRun, config: Experiment) -> Task:
    """The run's task, by what its result says about the network's inputs and outputs."""
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


def at_the_end(final: Checkpoint, setup: Setup, stages: Sequence[Stage]) -> Checkpoint:
    """The checkpoint of the last stage.

    If the budget ended before that stage, it is the state that the stage would have begun with.
    """
    checkpoint = final
    for number in range(final.stage + 1, len(stages)):
        stage = stages[number]
        state = stage.method.init(setup, checkpoint.state)
        checkpoint = replace(checkpoint, stage=number, state=state)
        if not stage.keeps_own:
            checkpoint = replace(checkpoint, versions={})
    return checkpoint


def order_for_tier(method: Method, state: State, tier: int, run: Path) -> Order:
    """The order from which a client builds the network of this tier."""
    name = tuned_model(tier)
    numbers = []
    for model in method.models(state):
        number = model.rpartition("-")[2]
        if number.isdecimal() and model == tuned_model(int(number)):
            numbers.append(int(number))
    if not numbers:
        rule = "--tier must be of a run whose method has a network for every tier of devices"
        raise FedloomError(rule, f"{run} is not one", "use --client K or --shared")
    if tier not in numbers:
        rule = f"--tier must be one of the run's, from 1 to {max(numbers)}"
        raise FedloomError(rule, f"got {tier}", "choose one of them")
    return method.serve_model(state, name, 0)


def order_for_search(run: Path, name: str) -> Order:
    """The order from which a client builds the network that a search found."""
    # imported here because it loads a whole method, which only its own runs need
    from fedloom.methods.fedoras_path import path_model

    path = folder_of_search(run, name) / MODEL
    try:
        return path_model(read_state(path.read_bytes()))
    except (KeyError, OSError, WireError) as error:
        rule = f"{path} must be the network that a search found"
        raise FedloomError(rule, f"{type(error).__name__}: {error}", "search again") from None
