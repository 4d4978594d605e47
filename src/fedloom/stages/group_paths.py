"""What searches for a group of cells share if their clients train single paths.

A *path* is a network that could be the result: one architecture of the group. It inherits its
weights from the supernet that all paths share, and only its weights are sent. There is no α:
networks are judged by their accuracy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, shared
from fedloom.learning.averaging import received_statistics, server_step
from fedloom.learning.training import final_weights, train
from fedloom.spaces.mixed import Mixed, alpha_in, fresh_alpha
from fedloom.stages.group_pretraining import PretrainStage
from fedloom.stages.groups import SCORE, SCORING, SEARCH, GroupStage
from fedloom.types import Arch, Fields, Order, Reply, Round, Setup, State


@dataclass(frozen=True)
class PretrainWeights(PretrainStage):
    """All clients train the whole supernet. On an edge all operations have the same weight."""

    fields = {SEARCH: Fields(tensors=("*",), meta=("loss",), writes=False)}

    def init(self, setup: Setup, previous: State | None) -> State:
        return self.begun({})

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        part, _ = data.split(self.options.train_share)
        mixed = self._uniform(order)
        options = self.options.with_steps(order.meta["steps"])
        with received_statistics(mixed, part, options, run):
            trained = train(mixed, part, options, order.meta["lr"], run)
        weights = final_weights(mixed.model)
        return Reply(order.client, weights, float(len(part)), {"loss": trained.loss}), None

    def _uniform(self, order: Order) -> Mixed:
        uniform_alpha = {}
        for name, row in fresh_alpha(self.options, self.task.seed).items():
            uniform_alpha[name] = torch.zeros_like(row)
        return Mixed(self.group_model(weights=order.tensors), alpha_in(uniform_alpha))

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return self._uniform(order)


@dataclass(frozen=True)
class PathStage(GroupStage):
    """A search whose clients train paths. A subclass says which, and which one is served."""

    fields = {
        SEARCH: Fields(tensors=("*",), meta=("loss",), writes=True),
        SCORE: SCORING,
    }

    def pretrained(self, setup: Setup, previous: State | None) -> State:
        """Returns the pretrained state, or the supernet as the seed draws it."""
        if previous is not None:
            return previous
        return PretrainWeights(self.options, self.task).init(setup, None)

    def path_orders(
        self,
        state: State,
        arch: Arch,
        clients: Sequence[int],
        r: Round,
    ) -> list[Order]:
        """Returns orders by which these clients train this path."""
        tensors = self.weights_in(state.tensors, arch)
        meta = {**self.order_meta(r), "arch": arch.to_plain()}
        return [Order(client, SEARCH, tensors, meta) for client in clients]

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        if order.kind == SCORE:
            return self.scored(order, data, run), None
        part, _ = data.split(self.options.train_share)
        net = self.network(order, data, own, run)
        return self.trained(net, order, part, own, run)

    def merge(
        self,
        state: State,
        orders: Sequence[Order],
        replies: Collection[Reply],
        r: Round,
    ) -> State:
        """Averages every tensor over the clients that trained it. The other tensors stay."""
        return server_step(self.options, state, orders, replies)

    def served(self, state: State) -> Arch:
        """Returns the path that clients evaluate."""
        raise NotImplementedError

    def serve(self, state: State, client: int) -> Order:
        arch = self.served(state)
        tensors = self.weights_in(shared(state), arch)
        return Order(client, "evaluate", tensors, {"arch": arch.to_plain()})

    def network(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> nn.Module:
        return self.group_model(Arch.from_plain(order.meta["arch"]), order.tensors)
