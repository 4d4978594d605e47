"""Stages in which every client goes on by itself with what the federation gave it; nothing of it goes up."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Method, shared
from fedloom.types import Fields, Json, Order, Reply, Round, Setup, State


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
