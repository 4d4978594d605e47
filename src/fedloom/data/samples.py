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


class Owner:
    """Whoever decides how samples may be divided. This one allows everything."""

    def check_part(self, name: str, samples: int) -> None:
        """Raise an error unless a part of so many samples may be used. `name` is what it is."""

    def cut(self, samples: int, at: int) -> tuple[Owner, Owner]:
        """The owners of the first `at` of so many samples, and of the rest.

        Raises an error if they may not be divided there.
        """
        return self, self


ANYBODY = Owner()


@dataclass(frozen=True)
class Samples:
    x: torch.Tensor  # raw values, channels first; the model normalises
    y: torch.Tensor  # int64 class numbers; for regression float32, standardised
    owner: Owner = ANYBODY  # is asked before they are divided

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: str) -> Samples:
        return Samples(self.x.to(device), self.y.to(device), self.owner)

    def first(self, count: int) -> Samples:
        return self._cut(count)[0]

    def split(self, share: float) -> tuple[Samples, Samples]:
        """Splits the samples into the first `share` and the rest.

        Their order was fixed at random by the split file, so nothing needs to be drawn here.
        """
        return self._cut(round(share * len(self)))

    def _cut(self, at: int) -> tuple[Samples, Samples]:
        at = min(max(at, 0), len(self))
        of_first, of_rest = self.owner.cut(len(self), at)
        return (
            Samples(self.x[:at], self.y[:at], of_first),
            Samples(self.x[at:], self.y[at:], of_rest),
        )

    def check_part(self, name: str) -> None:
        """Raise an error unless this part is empty or has as many samples as its owner asks for."""
        self.owner.check_part(name, len(self))

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
