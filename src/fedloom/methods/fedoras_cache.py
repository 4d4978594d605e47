"""FedorAS, stage 2, with clients that keep the operations that they were sent (`cache`).

Weights do not change while paths are scored. So an operation is sent to a client only once, and no
client is sent more than one supernet in the whole search.
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

KEPT = "kept"  # key in the server's state: the operations that each client has


@dataclass(frozen=True)
class SearchWithCache(SearchPaths):
    """A client's private state holds the tensors that it was sent. The server knows which."""

    fields = {"score": Fields(meta=SCORES)}

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        planned = super().plan(state, r)
        if planned is None:
            return None
        state, orders = planned
        frame = Frame.from_plain(state.meta["frame"])
        missing: dict[SubSpace, Tensors] = {}  # clients that kept the same are sent the same
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
        """Notes what clients have kept.

        A client whose reply was not accepted may have kept nothing: it is sent everything again.
        """
        answered = {reply.client for reply in replies}
        kept = dict(state.meta.get(KEPT, {}))
        for order in orders:
            kept.pop(str(order.client), None)
            if order.client in answered:
                before = kept_by(state.meta, order.client)
                kept[str(order.client)] = joined(before, sub_space_in(order.meta))
        state = super().merge(state, orders, replies, r)
        return State(state.tensors, {**state.meta, KEPT: kept})


def search_of(options: FedorASOptions) -> SearchPaths:
    if options.cache:
        return SearchWithCache(options)
    return SearchPaths(options)


def kept_by(meta: Meta, client: int) -> SubSpace:
    """Returns the operations that a client has, by layer. Without layers it has nothing."""
    return tuple(tuple(ops) for ops in meta.get(KEPT, {}).get(str(client), ()))


def joined(kept: SubSpace, sent: SubSpace) -> Json:
    """Returns the operations of both, by layer."""
    if not kept:
        return [list(ops) for ops in sent]
    layers = []
    for kept_ops, sent_ops in zip(kept, sent, strict=True):
        layers.append(sorted({*kept_ops, *sent_ops}))
    return layers


def without_kept(frame: Frame, tensors: Tensors, kept: SubSpace) -> Tensors:
    """Returns the tensors that a client does not have yet.

    A client that has any operation also has the tensors that every path needs.
    """
    if not kept:
        return tensors
    missing = {}
    for name, tensor in tensors.items():
        owner = frame.owners[name]
        if owner is not None and owner.op not in kept[owner.slot]:
            missing[name] = tensor
    return missing
