"""Training steps that cost the same as an earlier one are metered once, and known from then on.

The meter visits every layer in every step, which takes some percent of a small step. But the cost
of a step depends only on the network, on which of its parameters are trained and on the shape of
the batch. A network that declares this (`Model.same_cost`) is metered once per process for each
combination of these. A network that declares nothing is metered in every step: one from outside,
for example, may compute something else every time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from fedloom.cost.meter import OPEN_METERS, Meter, known_to_cost


@dataclass
class KnownSteps:
    """The MACs of training steps, by what determines them."""

    most: int = 256  # kinds of steps to remember; the oldest is forgotten first
    macs: dict[Hashable, int] = field(default_factory=dict)

    def remember(self, kind: Hashable, macs: int) -> None:
        self.macs[kind] = macs
        while len(self.macs) > self.most:
            del self.macs[next(iter(self.macs))]

    @contextmanager
    def none(self) -> Iterator[None]:
        """Forget everything and remember nothing inside the block: every step is metered."""
        most = self.most
        self.most = 0
        self.macs.clear()
        try:
            yield
        finally:
            self.most = most


KNOWN = KnownSteps()  # shared by the whole process


class RepeatedSteps:
    """The training steps of one network, during which its modules and its mode do not change."""

    def __init__(
        self,
        net: nn.Module,
        parameters: Mapping[str, torch.Tensor],
        mode: Hashable = None,
    ) -> None:
        """`mode` is anything else that the cost of a step depends on."""
        network = getattr(net, "same_cost", None)
        self.kind: Hashable = None
        if network is not None:
            trained = tuple((name, weight.requires_grad) for name, weight in parameters.items())
            self.kind = (network, trained, mode)

    @contextmanager
    def metered(self, shape: Sequence[int]) -> Iterator[None]:
        """Enclose the forward and backward pass over a batch of this shape."""
        if self.kind is None or not OPEN_METERS:
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
