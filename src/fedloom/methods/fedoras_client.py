"""FedorAS, stage 1 at a client: it trains a path within its limit for every batch (Eq. 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun, Declined
from fedloom.learning.loss import training_loss
from fedloom.learning.training import converging, mean_loss, sgd, training_batches, training_mode
from fedloom.methods.fedoras_device import Allowance
from fedloom.methods.fedoras_frame import Frame, as_sub_space, sub_space_in
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.nets.model import Model
from fedloom.searchers.paths import Amounts, Path, PathSampler
from fedloom.spaces.paths import training_scores
from fedloom.types import Order, latency_in


def train_paths(
    net: Model,
    frame: Frame,
    paths: ClientPaths,
    data: Samples,
    options: FedorASOptions,
    lr: float,
    run: ClientRun,
) -> TrainedPaths:
    """Trains one path per batch. Operations off the path have no gradient and do not change."""
    net.to(run.device)
    optimizer = sgd(net, options, lr)
    training_mode(net, options.bn)
    losses: list[torch.Tensor] = []
    sizes: list[int] = []
    op_samples = frame.no_counts()
    for batch in training_batches(data, options, run):
        path = paths.draw()
        optimizer.zero_grad()
        scores = training_scores(net, batch.x, frame.arch(as_sub_space(path)))
        loss = training_loss(scores, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), options.clip)
        optimizer.step()
        losses.append(loss.detach())
        sizes.append(len(batch))
        for layer, op in enumerate(path):
            op_samples[layer][op] += len(batch)
    optimizer.zero_grad()
    loss_per_sample = converging(mean_loss(losses, sizes), net.state_dict())
    return TrainedPaths(loss_per_sample, sum(sizes), op_samples)


@dataclass(frozen=True)
class TrainedPaths:
    """What a client's training results in, beside the weights."""

    loss: float
    samples: int  # that were back-propagated, over all epochs
    op_samples: list[list[int]]  # how many of these went through every operation of every layer


@dataclass
class ClientPaths:
    """Draws a path for every batch of a client (Eq. 3)."""

    sampler: PathSampler
    limits: Amounts
    dynamic: float
    draws: np.random.Generator

    @classmethod
    def of_order(cls, frame: Frame, order: Order, run: ClientRun) -> ClientPaths:
        allowance = Allowance.of_order(frame, order.meta, run)
        latency = latency_in(order.meta)
        costs = frame.costs(allowance.limit, allowance.unsupported, latency)
        costs = costs.within(sub_space_in(order.meta))
        allowance.check(costs)
        draws = np.random.Generator(np.random.PCG64(run.key("paths")))
        limits = tuple(allowance.limit.values())
        return cls(PathSampler(costs), limits, order.meta["dynamic"], draws)

    def draw(self) -> Path:
        try:
            return self.sampler.draw(self._limits_now(), self.draws)
        except FedloomError as error:  # a path may fit each limit, and none all of them
            raise Declined(f"no path that it was sent fits this device: {error}") from None

    def _limits_now(self) -> Amounts:
        """Returns what the device can spend on this batch, at least the cheapest path's cost."""
        if self.dynamic == 1.0:
            return self.limits
        share = self.draws.uniform(self.dynamic, 1.0)
        amounts = []
        for limit, least in zip(self.limits, self.sampler.costs.cheapest(), strict=True):
            amounts.append(max(share * limit, least))
        return tuple(amounts)
