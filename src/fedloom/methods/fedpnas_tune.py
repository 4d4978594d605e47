"""The fine-tuning phase of FedPNAS: every client trains only its personal part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun
from fedloom.learning.personal import Personal
from fedloom.learning.training import converging, training_mode, weights_of
from fedloom.methods.fedpnas_stage import (
    RoutedStage,
    guide_tensors,
    is_personal,
    with_personal_part,
)
from fedloom.nets.model import Model
from fedloom.searchers.guides import Guide
from fedloom.searchers.routed_search import train_routed
from fedloom.types import Fields, Order, Reply, Round, State

TUNED = 0.1  # share of the learning rates


@dataclass(frozen=True)
class Tune(RoutedStage, Personal):
    """Every client trains only θ_p. The base, its BN statistics included, does not change."""

    fields = {"adapt": Fields(writes=True)}

    def rate(self, r: Round) -> float:
        return TUNED * self.options.lr

    def plan(self, state: State, r: Round) -> tuple[State, Sequence[Order]] | None:
        """A client keeps only its personal part, so it is sent the base every time."""
        meta = {"lr": self.rate(r)}
        started = set(state.meta["started"])
        base = {name: row for name, row in state.tensors.items() if not is_personal(name)}
        orders = []
        for client in r.clients:
            tensors = state.tensors
            if client in started:
                tensors = base
            orders.append(Order(client, "adapt", tensors, meta))
        return state, orders

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        has_personal_part = any(map(is_personal, order.tensors))
        if own is None and not has_personal_part:  # its state was lost
            return Reply(order.client), None
        return Personal.client(self, order, data, own, run)

    def improve(self, order: Order, data: Samples, own: State | None, run: ClientRun) -> State:
        tensors = with_personal_part(order.tensors, own)
        model = self.model(tensors).to(run.device)
        guide = self.guide(tensors).to(run.device)
        fix_base(model, guide, self.options.bn)
        how = replace(self.training(self.options.tau_end, self.options.lr, TUNED), inner=None)
        progress = train_routed(model, guide, data, how, is_personal, run)
        trained = {**weights_of(model), **guide_tensors(guide)}
        converging(progress.loss, trained)
        return State({name: row for name, row in trained.items() if is_personal(name)})


def fix_base(model: Model, guide: Guide, bn: str) -> None:
    """Lets only the personal part train. All else stays fixed, BN statistics included."""
    training_mode(model, bn)
    for name, part in model.net.named_children():
        if not is_personal(f"net.{name}."):
            part.eval()
    tensors: Mapping[str, torch.Tensor] = {
        **dict(model.named_parameters()),
        **guide.named_tensors(),
    }
    for name, tensor in tensors.items():
        tensor.requires_grad_(is_personal(name))
