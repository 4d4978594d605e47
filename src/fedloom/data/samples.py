"""Samples as a client's code sees them: raw inputs and labels, without any test part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Samples:
    x: torch.Tensor  # raw values, channels first; the model normalises
    y: torch.Tensor  # int64; labels that are numbers: float32, standardised

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: str) -> Samples:
        return Samples(self.x.to(device), self.y.to(device))

    def first(self, count: int) -> Samples:
        return Samples(self.x[:count], self.y[:count])

    def split(self, share: float) -> tuple[Samples, Samples]:
        """The first `share` and the rest. The split file fixed the order, so no draw is needed."""
        cut = round(share * len(self))
        return Samples(self.x[:cut], self.y[:cut]), Samples(self.x[cut:], self.y[cut:])

    def batches(self, size: int, generator: torch.Generator | None = None) -> Iterator[Samples]:
        """One epoch, shuffled if a generator is given.

        A last batch of one is skipped: batch normalisation needs two.
        """
        order = torch.arange(len(self))
        if generator is not None:
            order = torch.randperm(len(self), generator=generator)
        order = order.to(self.x.device)
        for chosen in order.split(size):
            if len(chosen) > 1 or len(order) == 1 or size == 1:
                yield Samples(self.x.index_select(0, chosen), self.y.index_select(0, chosen))


Read = Callable[[], Samples]


class ClientData:
    """One client's three parts. Only the site sees them together; a method is given `train` alone.

    A part may be given as what reads it: then it is read when somebody asks for it, once.
    """

    def __init__(
        self,
        train: Samples | Read,
        validation: Samples | Read,
        test: Samples | Read,
    ) -> None:
        self._parts = {"train": train, "validation": validation, "test": test}

    @property
    def train(self) -> Samples:
        return self._part("train")

    @property
    def validation(self) -> Samples:
        """Held back for selecting a round or a setting; empty unless asked for."""
        return self._part("validation")

    @property
    def test(self) -> Samples:
        return self._part("test")

    def _part(self, name: str) -> Samples:
        part = self._parts[name]
        if not isinstance(part, Samples):
            part = part()
            self._parts[name] = part
        return part

    @property
    def size(self) -> int:
        """Of what was read so far, in bytes."""
        read = [part for part in self._parts.values() if isinstance(part, Samples)]
        return sum(part.x.nbytes + part.y.nbytes for part in read)
