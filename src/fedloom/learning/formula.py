"""The MACs of a client's training by formula: MACs per sample times number of samples.

A site of a federation does not report its MACs. But where all clients train the same fixed network,
the server can compute them: it knows the network and its options, and the weight of a reply is the
number of samples that the client trained on. The result is what a meter at the client would show.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fedloom.cost.count import macs
from fedloom.cost.meter import Meter
from fedloom.data.samples import batched
from fedloom.learning.training import RECEIVED, SgdOptions, training_mode
from fedloom.spaces.paths import training_scores
from fedloom.types import Reply, Task

PAIR = 2  # samples in the batch that is measured: BN needs two


@dataclass(frozen=True)
class SampleCost:
    """The MACs that a network needs for one sample."""

    forward: int
    training: int  # forward and backward

    @classmethod
    def of(cls, net: nn.Module, task: Task, options: SgdOptions) -> SampleCost:
        """Measures the cost on made-up samples.

        Do not use the network afterwards: its BN statistics are those of the made-up samples.
        """
        training_mode(net, options.bn)
        with Meter() as meter:
            scores = training_scores(net, torch.zeros(PAIR, *task.shape))
            scores.sum().backward()
        return cls(macs(net, task.shape), meter.macs // PAIR)

    def of_training(self, samples: int, options: SgdOptions) -> int:
        """Returns the MACs of as many epochs as the options say.

        `train` leaves out a last batch of one sample.
        """
        return options.epochs * batched(samples, options.batch) * self.training

    def of_averaged_training(self, samples: int, options: SgdOptions) -> int:
        """Returns the same, plus one forward pass if clients measure the received network's BN."""
        total = self.of_training(samples, options)
        if options.bn == RECEIVED:
            total += batched(samples, options.batch) * self.forward
        return total


def samples_of(reply: Reply) -> int:
    """Returns how many samples a client trained on, if that is the weight of its reply."""
    if isinstance(reply.weight, int | float):
        return int(reply.weight)
    return 0
