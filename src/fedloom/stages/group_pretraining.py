"""The first stage of a search for a group of cells: all clients train the whole supernet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, shared
from fedloom.learning.averaging import server_step
from fedloom.learning.training import weights_of
from fedloom.rng import rng
from fedloom.searchers.local_search import Searched, local_search
from fedloom.spaces.mixed import fresh_alpha
from fedloom.stages.group_options import ClusteredGroupOptions
from fedloom.stages.groups import (
    BY_UPDATES,
    CLASSIFIER,
    SEARCH,
    UPDATED,
    UPDATES,
    GroupStage,
    kept_for_next_hop,
    memory_of_round,
)
from fedloom.types import Fields, Order, Reply, Round, Setup, State, Tensors

PROJECTED = 64  # dimensions that a classifier's update is projected to


@dataclass(frozen=True)
class PretrainStage(GroupStage):
    """All clients train the whole supernet, without clusters. A subclass says how."""

    def begun(self, alpha: Tensors) -> State:
        """Returns the first state: the supernet with weights that the seed draws, and this α."""
        net = self.group_model()
        parameters = [name for name, _ in net.named_parameters()]
        meta = {"parameters": [*parameters, *alpha], "iterations": 0}
        return State({**weights_of(net), **alpha}, meta)

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        remaining = self.options.pretrain - state.meta["iterations"]
        if remaining <= 0:
            return None
        meta = self.order_meta(r)
        meta["steps"] = min(meta["steps"], remaining)
        tensors = shared(state)
        return state, [Order(client, SEARCH, tensors, meta) for client in r.cohort()]

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        merged = server_step(self.options, state, orders, replies)
        iterations = state.meta["iterations"] + int(orders[0].meta["steps"])
        return State(merged.tensors, {**merged.meta, "iterations": iterations})

    def serve(self, state: State, client: int) -> Order:
        return Order(client, "evaluate", shared(state))


@dataclass(frozen=True)
class MixtureStage(GroupStage):
    """A stage whose clients search by α."""

    options: ClusteredGroupOptions

    def searched(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Searched, State | None]:
        """Takes λ₁ steps of Eq. 4. The optimisers' memory is kept until the round's next hop."""
        memory = memory_of_round(own, run)
        options = self.options.with_steps(order.meta["steps"])
        mixed = self.mixed(order.tensors, order.meta)
        searched = local_search(mixed, memory, data, options, order.meta["lr"], run)
        return searched, kept_for_next_hop(searched.memory, order, run)


@dataclass(frozen=True)
class Pretrain(PretrainStage, MixtureStage):
    """All clients take steps of Eq. 4 on the whole supernet, without clusters."""

    options: ClusteredGroupOptions

    fields = {SEARCH: Fields(tensors=("*",), meta=("loss",), writes=False)}

    def init(self, setup: Setup, previous: State | None) -> State:
        return self.begun(fresh_alpha(self.options, self.task.seed))

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        searched, _ = self.searched(order, data, None, run)
        meta = {"loss": searched.loss}
        return Reply(order.client, searched.tensors, float(len(data)), meta), None

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        merged = super().merge(state, orders, replies, r)
        if self.options.clusters != BY_UPDATES:
            return merged
        return State({**merged.tensors, **self._with_updates(state, replies)}, merged.meta)

    def _with_updates(self, state: State, replies: Collection[Reply]) -> dict[str, torch.Tensor]:
        """Returns the latest update of every client's classifier, by a random projection."""
        updates: dict[int, torch.Tensor] = {}
        if UPDATED in state.tensors:
            rows = state.tensors[UPDATES].unbind()
            updates = dict(zip(state.tensors[UPDATED].tolist(), rows, strict=True))
        for reply in replies:
            differences = []
            for name in sorted(reply.tensors):
                if name.startswith(CLASSIFIER):
                    difference = reply.tensors[name].double() - state.tensors[name].double()
                    differences.append(difference.flatten())
            updates[reply.client] = projected(torch.cat(differences), self.task.seed)
        clients = sorted(updates)
        return {
            UPDATES: torch.stack([updates[client] for client in clients]),
            UPDATED: torch.tensor(clients, dtype=torch.int64),
        }

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return self.mixed(order.tensors, {})


def projected(vector: torch.Tensor, seed: int) -> torch.Tensor:
    """Returns a vector's random projection to a few dimensions. The seed draws the projection."""
    draws = rng(seed, "projection").standard_normal((len(vector), PROJECTED))
    numbers: torch.Tensor = vector @ torch.from_numpy(draws) / PROJECTED**0.5
    return numbers
