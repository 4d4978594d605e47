"""FedorAS: trains one path of a finished supernet, by all clients whose devices can run it (§3.3).

It is the last stage for a network that was searched after the run. Clients do the same as there.
Only the server's side differs: it has one network and no tiers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fedloom.federation.protocol.aggregate import aggregate
from fedloom.methods.fedoras_frame import Frame
from fedloom.methods.fedoras_tiers import tiers_in
from fedloom.methods.fedoras_tune import TuneTiers
from fedloom.records.sections import Sections
from fedloom.searchers.paths import Path
from fedloom.types import Meta, Order, Reply, Round, Setup, State, Tensors


@dataclass(frozen=True)
class TunePath(TuneTiers):
    """FedAvg of one network, which begins with these weights."""

    path: Path
    weights: Tensors
    clients: tuple[int, ...]  # those that can run it

    fields = TuneTiers.fields

    def init(self, setup: Setup, previous: State | None) -> State:
        return path_state(self.path, self.weights)

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        meta = {
            **state.meta,
            "lr": self.options.tuning.rate(r.progress),
            "train_share": self.options.train_share,
        }
        clients = r.cohort(self.clients)
        return state, [Order(client, "tune", state.tensors, meta) for client in clients]

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        return State(aggregate(state.tensors, replies, orders), state.meta)

    def serve(self, state: State, client: int) -> Order:
        return path_model(state, client)

    def models(self, state: State) -> tuple[str, ...]:
        return ()

    def note(self, state: State, r: Round) -> Meta:
        return {}

    def sections(self, state: State) -> Sections:
        return Sections()


def path_state(path: Path, weights: Tensors) -> State:
    """Returns a state of one path's network: its weights and its operations."""
    return State(weights, {"ops": [[op] for op in path]})


def path_model(state: State, client: int = 0) -> Order:
    """Returns an order from which the last stage's method builds the network of such a state."""
    return Order(client, "evaluate", state.tensors, {"ops": state.meta["ops"]})


def able_clients(supernet: State, path: Path) -> tuple[int, ...]:
    """Returns the clients of the tiers whose limits the path fits."""
    frame = Frame.from_plain(supernet.meta["frame"])
    able = set()
    for tier in tiers_in(supernet):
        costs = frame.costs_of(tier)
        if costs.fits(path, tuple(tier.limit.values())):
            able.add(tier.number)
    tier_of = supernet.meta["tier_of"]
    return tuple(client for client, tier in enumerate(tier_of) if tier in able)
