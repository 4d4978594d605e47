"""Stages in which every client goes on by itself, from the model that the federation trained."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method, shared
from fedloom.learning.private_state import momentum_in, own_state
from fedloom.learning.training import SgdOptions, train
from fedloom.types import Fields, Json, Order, Reply, Round, Setup, State


class Personal(Method):
    """A stage in which every client improves its own state.

    A client is sent the shared state once. From then on it keeps its own, and sends nothing of it.
    A reply without weight says that the client lost its state: then it is sent the shared one
    again. A client whose training diverges goes on with the state it had before. It replies all the
    same, because a refusal would reveal the divergence.
    """

    fields = {"adapt": Fields(writes=True)}
    seals: ClassVar[tuple[str, ...]] = ("*",)

    def rate(self, r: Round) -> float:
        """Returns the learning rate of this round."""
        raise NotImplementedError

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        """Returns a client's new state, from its own one or, at first, from the order's tensors."""
        raise NotImplementedError

    def init(self, setup: Setup, previous: State | None) -> State:
        assert previous is not None  # it follows a federated stage
        return State(shared(previous), {"started": list(previous.meta.get("started", []))})

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        meta = {"lr": self.rate(r)}
        started = set(state.meta["started"])
        orders = []
        for client in r.clients:
            tensors = {} if client in started else state.tensors
            orders.append(Order(client, "adapt", tensors, meta))
        return state, orders

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        if own is None and not order.tensors:
            return Reply(order.client), None
        try:
            improved = self.improve(order, data, own, run)
        except FloatingPointError:
            improved = undone(order, own)
        return Reply(order.client, weight=len(data)), improved

    def observe(self, own: State, number: int) -> Json:
        if "diverged" not in own.meta:
            return None
        return {"diverged": own.meta["diverged"]}

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        started = set(state.meta["started"])
        for reply in replies:
            if reply.weight:
                started.add(reply.client)
            else:
                started.discard(reply.client)
        return State(state.tensors, {**state.meta, "started": sorted(started)})


def undone(order: Order, own: State | None) -> State:
    """Returns the state before a round that diverged, with the number of such rounds so far."""
    before = own
    if before is None:
        before = State(order.tensors)
    diverged = before.meta.get("diverged", 0) + 1
    return State(before.tensors, {**before.meta, "diverged": diverged})


class FineTuned(Personal):
    """Every client trains its own network further. A subclass says which network that is."""

    options: SgdOptions

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        net = self.network(order, data, own, run)
        trained = train(net, data, self.options, order.meta["lr"], run, momentum=momentum_in(own))
        return own_state(net, trained.momentum)


class Once(Personal):
    """One last round in which every client makes the final shared state its own.

    The round is beyond the budget, but its costs are counted.
    """

    # There is one round only, so a client has no state of this stage yet that it could read.
    seals: ClassVar[tuple[str, ...]] = ()

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        if r.spent > 0:
            return None
        meta = {"lr": self.rate(r)}
        return state, [Order(client, "adapt", state.tensors, meta) for client in r.clients]
