"""Samples as a client's code sees them: raw inputs and labels, as tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from fedloom.errors import FedloomError


class TooFewSamples(FedloomError):
    """A part of a client's samples is smaller than its owner allows."""

    def __init__(self, part: str, least: int, samples: int) -> None:
        rule = f"{part} must have at least {least} samples here"
        super().__init__(rule, f"it has {samples}", "ask the site, or divide its samples otherwise")


@dataclass(frozen=True)
class Samples:
    x: torch.Tensor  # raw values, channels first; the model normalises
    y: torch.Tensor  # int64 class numbers; for regression float32, standardised
    least: int = 0  # samples in any part of them, unless it is empty; the owner's choice

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: str) -> Samples:
        return Samples(self.x.to(device), self.y.to(device), self.least)

    def first(self, count: int) -> Samples:
        return Samples(self.x[:count], self.y[:count], self.least)

    def split(self, share: float) -> tuple[Samples, Samples]:
        """Splits the samples into the first `share` and the rest.

        Their order was fixed at random by the split file, so nothing needs to be drawn here.
        """
        cut = round(share * len(self))
        first = Samples(self.x[:cut], self.y[:cut], self.least)
        rest = Samples(self.x[cut:], self.y[cut:], self.least)
        first.check_part("a part of the training samples")
        rest.check_part("a part of the training samples")
        return first, rest

    def check_part(self, name: str) -> None:
        """Raise an error unless this part is empty or has as many samples as its owner asks for."""
        if 0 < len(self) < self.least:
            raise TooFewSamples(name, self.least, len(self))

    def batches(self, size: int, generator: torch.Generator | None = None) -> Iterator[Samples]:
        """Yields the batches of one epoch, shuffled if a generator is given.

        A last batch of a single sample is skipped, because batch normalisation needs two.
        """
        order = torch.arange(len(self))
        if generator is not None:
            order = torch.randperm(len(self), generator=generator)
        order = order.to(self.x.device)
        for chosen in order.split(size):
            if len(chosen) > 1 or len(order) == 1 or size == 1:
                yield Samples(self.x.index_select(0, chosen), self.y.index_select(0, chosen))


def batched(samples: int, size: int) -> int:
    """Returns how many of this many samples are in the batches of one epoch."""
    if samples > 1 and size > 1 and samples % size == 1:
        return samples - 1
    return samples


Read = Callable[[], Samples]


class ClientData:
    """One client's three parts. Only the site sees all of them; a method is given `train` alone.

    A part may be given as a function that reads it. It is then read once, when it is first used.
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
        """Samples held back to select a round or a setting; empty unless they were asked for."""
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
        """The size in bytes of the parts that were read so far."""
        size = 0
        for part in self._parts.values():
            if isinstance(part, Samples):
                size += part.x.nbytes + part.y.nbytes
        return size
