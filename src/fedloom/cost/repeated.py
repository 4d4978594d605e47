"""Steps of training that cost the same as an earlier one: metered once, then known.

The meter looks at every layer of every step, which is some percent of a small step. But what a step
computes is decided by the network, by which of its parameters train and by the shape of its batch.
A network that says so (`Model.same_cost`) is looked at once a process for each of these. A network
that says nothing, such as one from outside that may go another way every time, is looked at always.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from fedloom.cost.meter import LOOKING, Meter, known_to_cost


@dataclass
class KnownSteps:
    """The MACs of a step, by what decides them."""

    most: int = 256  # kinds of steps; the one that was met first is forgotten first
    macs: dict[Hashable, int] = field(default_factory=dict)

    def remember(self, kind: Hashable, macs: int) -> None:
        self.macs[kind] = macs
        while len(self.macs) > self.most:
            del self.macs[next(iter(self.macs))]

    @contextmanager
    def none(self) -> Iterator[None]:
        """Inside, nothing is known: every step is metered."""
        most = self.most
        self.most = 0
        self.macs.clear()
        try:
            yield
        finally:
            self.most = most


KNOWN = KnownSteps()  # to this process


class RepeatedSteps:
    """Steps of one network, whose parts and mode stay as they are meanwhile."""

    def __init__(
        self,
        net: nn.Module,
        parameters: Mapping[str, torch.Tensor],
        mode: Hashable = None,
    ) -> None:
        """`mode`: what else decides the cost of a step."""
        network = getattr(net, "same_cost", None)
        self.kind: Hashable = None
        if network is not None:
            trained = tuple((name, weight.requires_grad) for name, weight in parameters.items())
            self.kind = (network, trained, mode)

    @contextmanager
    def metered(self, shape: Sequence[int]) -> Iterator[None]:
        """Around the forward and backward pass over a batch of this shape."""
        if self.kind is None or not LOOKING:
            yield
            return
        kind = (self.kind, tuple(shape))
        if kind in KNOWN.macs:
            with known_to_cost(KNOWN.macs[kind]):
                yield
            return
        with Meter() as meter:
            yield
        KNOWN.remember(kind, meter.macs)
