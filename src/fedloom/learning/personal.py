"""Stages in which every client goes on by itself with what the federation gave it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method, shared
from fedloom.learning.private_state import momentum_in, own_state
from fedloom.learning.training import SgdOptions, train
from fedloom.types import Fields, Json, Order, Reply, Round, Setup, State


class Personal(Method):
    """A stage in which every client goes on by itself.

    A client is sent the shared state once, then keeps its own, and nothing of what it makes goes
    up. A reply without weight says that its state was lost: the shared one is sent again. A client
    whose training diverges goes on with what it had, and replies all the same: a refusal would tell
    of it.
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
    """What a client had before a round that diverged, and how often that has happened."""
    before = own
    if before is None:
        before = State(order.tensors)
    diverged = before.meta.get("diverged", 0) + 1
    return State(before.tensors, {**before.meta, "diverged": diverged})


class FineTuned(Personal):
    """Every client goes on training what it has; a subclass says which network that is."""

    options: SgdOptions

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        net = self.network(order, data, own, run)
        trained = train(net, data, self.options, order.meta["lr"], run, momentum=momentum_in(own))
        return own_state(net, trained.momentum)


class Once(Personal):
    """One last round, beyond the budget and booked.

    In it every client makes the final shared state its own.
    """

    # It comes once: there is no state of its own yet that it could read.
    seals: ClassVar[tuple[str, ...]] = ()

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        if r.spent > 0:
            return None
        meta = {"lr": self.rate(r)}
        return state, [Order(client, "adapt", state.tensors, meta) for client in r.clients]
