"""The method `adapt`: newcomers to a federation fine-tune its network, each for itself.

`--init RUN` says which network: the final shared network of a finished run of any method, one
client's own, or for each newcomer the network of a given client. In each round every newcomer
trains for `epochs` epochs or `iterations` batches, and uploads nothing. "shared" in the figures is
the network before fine-tuning, for comparison.

All weights are trained, or only the personal part. The network's own method says which tensors are
personal, and which must not change (`Method.personal_names`, `Method.frozen_names`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun, Method, Recipe, Stage
from fedloom.learning.parts import training_only
from fedloom.learning.personal import FineTuned
from fedloom.learning.private_state import (
    momentum_in,
    own_state,
    weights_in,
    with_prefix,
    without_prefix,
)
from fedloom.learning.training import SgdOptions, repeated_batches, train
from fedloom.methods import recipe
from fedloom.methods import stages as stages_of
from fedloom.options import Absent, as_before
from fedloom.records.warm_start import WarmStart, own_prefix
from fedloom.types import Order, Reply, Round, Setup, State, Task


class AdaptOptions(SgdOptions):
    lr: float = Field(0.005, gt=0, description="learning rate of fine-tuning")
    iterations: Annotated[int | None, Absent(None)] = Field(
        None,
        ge=1,
        description="batches per round, instead of epochs",
    )
    train: Annotated[Literal["weights", "personal"], Absent("weights")] = Field(
        "weights",
        description="what is trained: all weights, or the personal part of a network that has one",
    )

    def batches(self, data: Samples, shuffle: torch.Generator) -> Iterator[Samples]:
        if self.iterations is None:
            return super().batches(data, shuffle)
        return repeated_batches(data, self.batch, self.iterations, shuffle)


@dataclass(frozen=True)
class Newcomer(FineTuned):
    options: AdaptOptions

    def rate(self, r: Round) -> float:
        return self.options.rate(r.progress)

    def init(self, setup: Setup, previous: State | None) -> State:
        if previous is None:
            rule = "adapt must begin with a finished run"
            advice = "add --init RUN, or use `fedloom adapt RUN`"
            raise FedloomError(rule, "there is no --init", advice)
        state = State(previous.tensors, {"begin": dict(previous.meta)})
        self._check_network(state, setup.task)
        return state

    def _check_network(self, state: State, task: Task) -> None:
        """Build the network once, to refuse one that does not fit the samples before the run."""
        no_samples = Samples(torch.zeros(0, *task.shape), torch.zeros(0, dtype=torch.int64))
        run = ClientRun(task, "adapt", 0, 0, 0, "cpu", bytes)
        order = self.serve(state, 0)
        try:
            net = network_of_run(order, no_samples, run)
        except (RuntimeError, KeyError) as error:
            reason = str(error).strip().splitlines()[-1].strip()
            rule = "the --init run must fit the new samples"
            advice = "give samples of the same shape and classes"
            raise FedloomError(rule, f"its network does not ({reason})", advice) from None
        self.trained_names(net, order, task)

    def trained_names(self, net: nn.Module, order: Order, task: Task) -> frozenset[str]:
        """The tensors that adapting may change, by their names in the network's `state_dict`."""
        method = run_before(order, task).method
        if self.options.train == "weights":
            return frozenset(net.state_dict()) - method.frozen_names(net)
        names = method.personal_names(net) - method.frozen_names(net)
        if not names:
            raise FedloomError(
                "--train personal must be used with a model that has a personal part",
                f"that of {run_before(order, task).task.method} has none",
                "leave --train out: all weights are trained then",
            )
        return names

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        net = self.network(order, data, own, run)
        names = self.trained_names(net, order, run.task)
        momentum = momentum_in(own)
        with training_only(net, names) as resting:
            trained = train(
                net,
                data,
                self.options,
                order.meta["lr"],
                run,
                momentum=momentum,
                resting=resting,
            )
        return own_state(net, trained.momentum)

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        rate = self.rate(r)
        orders = []
        for client in r.clients:
            first = first_state(state, client)
            orders.append(Order(client, "adapt", first.tensors, {"lr": rate, **first.meta}))
        return state, orders

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        return state

    def serve(self, state: State, client: int) -> Order:
        first = first_state(state, client)
        return Order(client, "evaluate", first.tensors, first.meta)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        net = network_of_run(order, data, run)
        if own is not None:
            net.load_state_dict(weights_in(own))
        return net


def first_state(state: State, newcomer: int) -> State:
    """What a newcomer begins with: the same as all, or the model of the client chosen for it."""
    start = WarmStart.read(state.meta["begin"])
    if start.clients is None:
        return state
    chosen = start.clients[newcomer]
    tensors = {}
    for name, tensor in state.tensors.items():
        if not name.startswith(start.prefix):
            tensors[name] = tensor
    own = without_prefix(own_prefix(start.prefix, chosen.client), state.tensors)
    tensors |= with_prefix(start.prefix, own)
    return State(tensors, {"begin": start.for_newcomer(chosen).to_json()})


@dataclass(frozen=True)
class RunBefore:
    """The finished run whose network a newcomer continues, and the method that builds it."""

    start: WarmStart
    task: Task
    method: Method


def run_before(order: Order, task: Task) -> RunBefore:
    """The finished run that an order begins with; `task` is the newcomer's."""
    start = WarmStart.read(order.meta["begin"])
    # An older version may have written these options into init.state.
    options = as_before(recipe(start.method).options, start.options)
    task = replace(task, method=start.method, options=options, seed=start.seed)
    return RunBefore(start, task, stages_of(task)[start.stage].method)


def network_of_run(order: Order, data: Samples, run: ClientRun) -> nn.Module:
    """The network as the federation left it, built by its own method."""
    before = run_before(order, run.task)
    start = before.start
    task = before.task
    method = before.method
    own = None
    if start.own is not None:
        own = State(without_prefix(start.prefix, order.tensors), start.own)
    elif start.order is None and not method.shares:
        rule = "new clients must begin with a model that the run has"
        problem = f"{task.method} has no shared one"
        raise FedloomError(rule, problem, "begin with a client's: --from K")
    shared = {}
    for name, tensor in order.tensors.items():
        if not name.startswith(start.prefix):
            shared[name] = tensor
    if start.order is not None:
        served = Order(0, "evaluate", shared, start.order)
        return method.network(served, data, None, replace(run, task=task))
    served = method.serve(State(shared, start.meta), start.client or 0)
    return method.network(served, data, own, replace(run, task=task))


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("adapt", Newcomer(AdaptOptions(**task.options))),)


adapt = Recipe(
    "New clients fine-tune the network of a finished run, given by --init RUN",
    AdaptOptions,
    stages,
    supports_regression=True,
)
