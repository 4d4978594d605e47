"""FjORD: Horváth, Laskaridis, Almeida, Leontiadis, Venieris, Lane, "FjORD: Fair and Accurate
Federated Learning under heterogeneous targets with Ordered Dropout", NeurIPS 2021.

Ordered dropout: a width of the network is the first channels of every layer, so the narrower widths
lie inside the wider ones. A client is sent the width that its tier can hold. For every batch it
draws one of the widths up to that, and trains only the network of that width. The server averages
every weight over the clients that hold it. Every width has its own BN statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Recipe, Stage, Tiered
from fedloom.learning.optimizers import Sgd
from fedloom.learning.private_state import with_prefix, without_prefix
from fedloom.learning.training import (
    SgdOptions,
    converging,
    mean_loss,
    sgd,
    training_batches,
    training_mode,
)
from fedloom.learning.width_costs import NestedNetwork, WidthOptions, inside_of, tiered
from fedloom.learning.widths import STATISTICS, Nested, statistics_prefix, widths_in
from fedloom.nets.model import Model
from fedloom.nets.nesting import Inside, is_statistic, statistics_of
from fedloom.types import Fields, Json, Order, Reply, State, Task


class FjordOptions(WidthOptions):
    """Options of FjORD."""


@dataclass(frozen=True)
class Fjord(Nested):
    options: FjordOptions

    fields = {
        "train": Fields(
            tensors=("net.*",),
            optional=(f"{STATISTICS}*",),
            meta=("loss",),
            writes=False,
        )
    }

    def about(self, state: State, width: float) -> dict[str, Json]:
        narrower = [other for other in widths_in(state) if other <= width]
        return {"width": width, "widths": narrower}

    def part(self, state: State, width: float) -> dict[str, torch.Tensor]:
        """Returns what a client of this width is sent, with the statistics of all narrower ones."""
        tensors = super().part(state, width)
        for narrower in self.about(state, width)["widths"]:
            prefix = statistics_prefix(narrower)
            statistics = without_prefix(prefix, state.tensors)
            tensors.update(with_prefix(prefix, statistics))
        return tensors

    def client(
        self,
        order: Order,
        data: Samples,
        own: State | None,
        run: ClientRun,
    ) -> tuple[Reply, State | None]:
        self.check_device(order, run)
        family = self.family(order, run)
        trained = train_widths(family, data, self.options, order.meta["lr"], run)
        tensors = {}
        weights = {}
        for name, tensor in family.widest.state_dict().items():
            if not is_statistic(name):
                tensors[name] = tensor.detach().cpu()
                weights[name] = float(len(data))
        for width, samples in trained.samples.items():
            statistics = statistics_of(family.nets[width])
            for name, tensor in with_prefix(statistics_prefix(width), statistics).items():
                tensors[name] = tensor.detach().cpu()
                # A width's statistics count by the share of samples that trained this width.
                weights[name] = len(data) * (samples / trained.all_samples)
        return Reply(order.client, tensors, weights, {"loss": trained.loss}), None

    def family(self, order: Order, run: ClientRun) -> Family:
        width = order.meta["width"]
        nested = NestedNetwork.of(run.task, self.options)
        nets = {}
        inside = {}
        widest = self.received(order, width, run)
        for narrower in order.meta["widths"]:
            inside[narrower] = inside_of(nested, narrower, width)
            if narrower == width:
                nets[narrower] = widest
                continue
            weights = inside[narrower].take(order.tensors)
            weights.update(without_prefix(statistics_prefix(narrower), order.tensors))
            nets[narrower] = self.model(run.task, narrower, weights)
        return Family(widest, nets, inside)


class Family(NamedTuple):
    """The networks that a client draws from. All share the widest one's weights."""

    widest: Model
    nets: dict[float, Model]  # by width; the widest is one of them
    inside: dict[float, Inside]  # where each network lies in the widest


class TrainedWidths(NamedTuple):
    loss: float  # mean over the samples seen
    samples: dict[float, int]  # how many samples trained each width that was drawn
    all_samples: int


def train_widths(
    family: Family,
    data: Samples,
    options: SgdOptions,
    lr: float,
    run: ClientRun,
) -> TrainedWidths:
    """SGD in which every batch moves only the weights of one width, which is drawn uniformly.

    Weights outside it have no gradient, and neither momentum nor decay moves them.
    """
    for net in family.nets.values():
        net.to(run.device)
        training_mode(net, options.bn)
    optimizers = {width: sgd(net, options, lr) for width, net in family.nets.items()}
    velocity: dict[str, torch.Tensor] = {}
    if options.momentum:
        for name, parameter in family.widest.named_parameters():
            velocity[name] = torch.zeros_like(parameter)
    widths = sorted(family.nets)
    draws = run.rng("widths")
    losses: list[torch.Tensor] = []
    sizes: list[int] = []
    samples: dict[float, int] = {}
    for batch in training_batches(data, options, run):
        width = widths[int(torch.randint(len(widths), (1,), generator=draws))]
        samples[width] = samples.get(width, 0) + len(batch)
        losses.append(step(family, width, optimizers[width], velocity, batch, options))
        sizes.append(len(batch))
    loss = converging(mean_loss(losses, sizes), family.widest.state_dict())
    return TrainedWidths(loss, samples, sum(sizes))


def step(
    family: Family,
    width: float,
    optimizer: Sgd,
    velocity: dict[str, torch.Tensor],
    batch: Samples,
    options: SgdOptions,
) -> torch.Tensor:
    """Takes a step of the network of this width, on the widest one's weights and momentum."""
    net = family.nets[width]
    inside = family.inside[width]
    is_narrower = net is not family.widest
    if is_narrower:
        weights = inside.take(family.widest.state_dict())
        net.load_state_dict(weights, strict=False)
    if velocity:
        optimizer.memory = inside.take(velocity)
    optimizer.zero_grad()
    loss = functional.cross_entropy(net(batch.x), batch.y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), options.clip)
    optimizer.step()
    if is_narrower:
        inside.put(net.state_dict(), family.widest.state_dict())
        inside.put(optimizer.memory, velocity)
    optimizer.zero_grad()
    return loss.detach()


def tiers_of(task: Task) -> Tiered:
    return tiered(task, FjordOptions(**task.options))


def stages(task: Task) -> tuple[Stage, ...]:
    return (Stage("train", Fjord(FjordOptions(**task.options))),)


fjord = Recipe(
    "FjORD (Horváth et al. 2021): nested widths of one network, one drawn for every batch",
    FjordOptions,
    stages,
    tiered=tiers_of,
)
