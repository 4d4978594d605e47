"""The method `adapt`: newcomers to a federation fine-tune what it left, each for itself.

`--init RUN` says what: the final shared network of a finished run, of whatever method, or one
client's own. Each round is `epochs` epochs at every newcomer, and nothing goes up. "shared" in the
figures is the network as it came: before, beside after.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import nn

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun, Method, Recipe, Stage
from fedloom.learning.personal import FineTuned
from fedloom.learning.private_state import weights_in, without_prefix
from fedloom.learning.training import SgdOptions
from fedloom.methods import recipe
from fedloom.methods import stages as stages_of
from fedloom.options import as_before
from fedloom.records.warm_start import WarmStart
from fedloom.types import Order, Reply, Round, Setup, State, Task


class AdaptOptions(SgdOptions):
    lr: float = Field(0.005, gt=0, description="learning rate of fine-tuning")


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
        """Builds the network once: one that does not fit the samples is refused before the run."""
        nobody = Samples(torch.zeros(0, *task.shape), torch.zeros(0, dtype=torch.int64))
        run = ClientRun(task, "adapt", 0, 0, 0, "cpu", bytes)
        try:
            network_of_run(self.serve(state, 0), nobody, run)
        except (RuntimeError, KeyError) as error:
            reason = str(error).strip().splitlines()[-1].strip()
            rule = "the run of --init must fit the new samples"
            advice = "give samples of the same shape and classes"
            raise FedloomError(rule, f"its network does not ({reason})", advice) from None

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        meta = {"lr": self.rate(r), **state.meta}
        return state, [Order(client, "adapt", state.tensors, meta) for client in r.clients]

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        return state

    def serve(self, state: State, client: int) -> Order:
        return Order(client, "evaluate", state.tensors, state.meta)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        net = network_of_run(order, data, run)
        if own is not None:
            net.load_state_dict(weights_in(own))
        return net


def network_of_run(order: Order, data: Samples, run: ClientRun) -> nn.Module:
    """The network as the federation left it, made by its own method."""
    start = WarmStart.read(order.meta["begin"])
    # An older version may have written these options into init.state.
    options = as_before(recipe(start.method).options, start.options)
    task = replace(run.task, method=start.method, options=options, seed=start.seed)
    method: Method = stages_of(task)[start.stage].method
    own = None
    if start.own is not None:
        own = State(without_prefix(start.prefix, order.tensors), start.own)
    elif start.order is None and not method.shares:
        rule = "newcomers must begin with a model that there is"
        found = f"{task.method} has none for all"
        raise FedloomError(rule, found, "begin with a client's: --from K")
    shared = {}
    for name, tensor in order.tensors.items():
        if not name.startswith(start.prefix):
            shared[name] = tensor
    if start.order is not None:
        served = Order(0, "evaluate", shared, start.order)
        return method.network(served, data, None, replace(run, task=task))
    served = method.serve(State(shared, start.meta), 0)
    return method.network(served, data, own, replace(run, task=task))


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("adapt", Newcomer(AdaptOptions(**task.options))),)


adapt = Recipe(
    "Newcomers fine-tune what a finished run left: with --init RUN",
    AdaptOptions,
    stages,
)
