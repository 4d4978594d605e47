"""Local adaptation: FedAvg, then every client fine-tunes the shared network on its own data.

The plainest personalisation, and hard to beat: Yu, Bagdasaryan, Shmatikov, "Salvaging Federated Learning by
Local Adaptation", 2020. Fine-tuning is paid from the same budget: the last `adapt_share` of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method, Recipe, Stage, shared
from fedloom.learning.training import model, train
from fedloom.methods.fedavg import FedAvg, FedAvgOptions
from fedloom.methods.local import momentum_in, own_state, weights_in
from fedloom.nets.model import Model
from fedloom.types import Fields, Json, Order, Reply, Round, Setup, State, Task


class LocalAdaptationOptions(FedAvgOptions):
    adapt_share: float = Field(0.2, gt=0, lt=1, description="share of the budget in which every client fine-tunes")
    adapt_lr: float | None = Field(None, gt=0, description="learning rate of fine-tuning; by default a tenth of lr")


class Personal(Method):
    """A stage in which every client goes on by itself: it is sent the shared state once, then keeps its own.

    Nothing of what it makes goes up. A reply without weight says that its state was lost: the shared one is sent again.
    One whose training diverges goes on with what it had, and replies all the same: a refusal would tell of it.
    """

    fields = {"adapt": Fields(writes=True)}
    seals: ClassVar[tuple[str, ...]] = ("*",)

    def rate(self, r: Round) -> float:
        """The learning rate of this round."""
        raise NotImplementedError

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        """A client's new state, from its own or, at first, from what the order brings."""
        raise NotImplementedError

    def init(self, setup: Setup, previous: State | None) -> State:
        assert previous is not None  # it follows a federated stage
        return State(shared(previous), {"started": list(previous.meta.get("started", []))})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        meta, started = {"lr": self.rate(r)}, set(state.meta["started"])
        return state, [Order(client, "adapt", {} if client in started else state.tensors, meta) for client in r.clients]

    def client(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> tuple[Reply, State | None]:
        if own is None and not order.tensors:
            return Reply(order.client), None
        try:
            new = self.improve(order, data, own, run)
        except FloatingPointError:
            kept = State(order.tensors) if own is None else own
            new = State(kept.tensors, {**kept.meta, "diverged": kept.meta.get("diverged", 0) + 1})
        return Reply(order.client, weight=len(data)), new

    def observe(self, own: State, number: int) -> Json:
        return {"diverged": own.meta["diverged"]} if "diverged" in own.meta else None

    def merge(self, state: State, orders: Sequence[Order], replies: Collection[Reply], r: Round) -> State:
        weights = {reply.client: reply.weight for reply in replies}
        started = {*state.meta["started"], *weights} - {client for client, weight in weights.items() if not weight}
        return State(state.tensors, {"started": sorted(started)})


class Once(Personal):
    """One last round, beyond the budget and booked, in which every client makes the final shared state its own."""

    seals: ClassVar[tuple[str, ...]] = ()  # it comes once: there is no state of its own yet that it could read

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        if r.spent > 0:
            return None
        meta = {"lr": self.rate(r)}
        return state, [Order(client, "adapt", state.tensors, meta) for client in r.clients]


@dataclass(frozen=True)
class Adapt(Personal):
    """The second stage: fine-tuning of the shared network."""

    options: LocalAdaptationOptions

    def rate(self, r: Round) -> float:
        return self.options.lr / 10 if self.options.adapt_lr is None else self.options.adapt_lr

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        net = self.network(order, data, own, run)
        trained = train(net, data, self.options, order.meta["lr"], run, momentum=momentum_in(own))
        return own_state(net, trained.momentum)

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> Model:
        return model(run.task, self.options, order.tensors if own is None else weights_in(own))


def stages(task: Task) -> tuple[Stage, ...]:
    options = LocalAdaptationOptions(**task.options)
    return (Stage("train", FedAvg(options), 1 - options.adapt_share), Stage("adapt", Adapt(options)))


local_adaptation = Recipe(
    "Local adaptation (Yu et al. 2020): FedAvg, then fine-tuning at every client",
    LocalAdaptationOptions,
    stages,
)
