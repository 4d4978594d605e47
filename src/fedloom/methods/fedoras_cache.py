"""FedorAS, stage 2, with clients that keep the operations that they were sent (`cache`).

Weights do not change while paths are scored. So an operation goes down to a client once, and over
the whole search no client is sent more than one supernet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun
from fedloom.methods.fedoras_frame import Frame, sub_space_in
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_search import SCORES, SearchPaths
from fedloom.searchers.paths import SubSpace
from fedloom.types import Fields, Json, Meta, Order, Reply, Round, State, Tensors

KEPT = "kept"  # of the server's state: the operations that each client has, by client


@dataclass(frozen=True)
class SearchWithCache(SearchPaths):
    """A client's own state holds what it was sent; the server remembers what that is."""

    fields = {"score": Fields(meta=SCORES)}

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        planned = super().plan(state, r)
        if planned is None:
            return None
        state, orders = planned
        frame = Frame.from_plain(state.meta["frame"])
        missing: dict[SubSpace, Tensors] = {}  # clients that have the same are sent the same
        lighter = []
        for order in orders:
            kept = kept_by(state.meta, order.client)
            if kept not in missing:
                missing[kept] = without_kept(frame, order.tensors, kept)
            lighter.append(replace(order, tensors=missing[kept]))
        return state, lighter

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        tensors = dict(order.tensors)
        if own is not None:
            tensors = {**own.tensors, **order.tensors}
        frame = Frame.of_task(run.task, self.options)
        sub_space = sub_space_in(order.meta)
        part = frame.part(tensors, sub_space)
        if set(part) != set(frame.names_in(sub_space)):
            raise FedloomError(
                "the operations that this client was sent before must still be there",
                "some are gone",
                "nothing: they are sent again in the next round",
            )
        reply, _ = super().client(replace(order, tensors=part), data, own, run)
        if not order.tensors:
            return reply, None
        return reply, State(tensors)

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        """Whose reply was not accepted may not have kept what it was sent: it is sent all again."""
        answered = {reply.client for reply in replies}
        kept = dict(state.meta.get(KEPT, {}))
        for order in orders:
            kept.pop(str(order.client), None)
            if order.client in answered:
                had = kept_by(state.meta, order.client)
                kept[str(order.client)] = joined(had, sub_space_in(order.meta))
        state = super().merge(state, orders, replies, r)
        return State(state.tensors, {**state.meta, KEPT: kept})


def search_of(options: FedorASOptions) -> SearchPaths:
    if options.cache:
        return SearchWithCache(options)
    return SearchPaths(options)


def kept_by(meta: Meta, client: int) -> SubSpace:
    """The operations that a client has, by layer; no layers: it has nothing."""
    return tuple(tuple(ops) for ops in meta.get(KEPT, {}).get(str(client), ()))


def joined(had: SubSpace, sent: SubSpace) -> Json:
    if not had:
        return [list(ops) for ops in sent]
    layers = []
    for before, now in zip(had, sent, strict=True):
        layers.append(sorted({*before, *now}))
    return layers


def without_kept(frame: Frame, tensors: Tensors, kept: SubSpace) -> Tensors:
    """Who has an operation has the part that every path needs too."""
    if not kept:
        return tensors
    missing = {}
    for name, tensor in tensors.items():
        owner = frame.owners[name]
        if owner is not None and owner.op not in kept[owner.slot]:
            missing[name] = tensor
    return missing
