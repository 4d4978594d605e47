"""A network with its input normalisation inside: raw values go in wherever the model goes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from fedloom.data.checks import TABLES
from fedloom.errors import FedloomError
from fedloom.nets import MAPS
from fedloom.nets.heads import Head, head_of_network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedloom.types import Json

MOST_WEIGHTS = 1 << 32  # of a network: 16 GB
Net = TypeVar("Net", bound=nn.Module)


class Model(nn.Module):
    """(x − mean) / std, then the network.

    The constants are not weights: they are never sent or averaged. Without constants, as for text,
    the input goes through as it is.
    """

    mean: torch.Tensor
    std: torch.Tensor
    # Two networks with the same value take the same MACs for batches of the same shape, if the same
    # parameters train. None: nothing is known, as of a network from outside.
    same_cost: Hashable = None

    def __init__(
        self,
        net: nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        kind: str = "image",
    ) -> None:
        super().__init__()
        self.net = net
        for name, values in constants(mean, std, kind).items():
            self.register_buffer(name, values, persistent=False)

    def forward(self, x: torch.Tensor, *choice: Any) -> torch.Tensor:
        scores: torch.Tensor = self.net(self.normalised(x), *choice)
        return scores

    def normalised(self, x: torch.Tensor) -> torch.Tensor:
        if not self.mean.numel():
            return x
        return (x.to(self.mean.dtype) - self.mean) / self.std

    @property
    def architecture(self) -> Json:
        return getattr(self.net, "architecture", type(self.net).__name__)

    @property
    def head(self) -> Head | None:
        """None: the network has no choice of one."""
        return head_of_network(self.net)


def laid_out(net: Net, kind: str) -> Net:
    """The memory format that every network here computes in, decided in this one place.

    Convolutions over maps are up to 1.6 times as fast with the channels last, grey images of 8×8
    pixels included (bench/bench_layout.py measures it). Text and tables have no maps.
    """
    if kind in MAPS:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs do not know it
    return net


def constants(
    mean: Sequence[float], std: Sequence[float], kind: str = "image"
) -> dict[str, torch.Tensor]:
    """Of a model's input, as its buffers hold them: a number a channel, or a number of a row."""
    return {"mean": shaped(torch.tensor(mean), kind), "std": shaped(torch.tensor(std), kind)}


def shaped(values: torch.Tensor, kind: str) -> torch.Tensor:
    """A number a channel, in the form in which it meets samples of this kind."""
    if kind in TABLES:
        return values.view(1, -1)
    return values.view(1, -1, 1, 1)


def check_kind(what: str, kind: str, kinds: Sequence[str], advice: str) -> None:
    """Refuses what is made for another kind of data."""
    if kind not in kinds:
        raise FedloomError(
            f"{what} must be for {kind} data", f"it is for {' and '.join(kinds)}", advice
        )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """torch's own initialisers draw from the global generator: give them a named draw."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(
            seed
        )  # the CPU's alone; torch.manual_seed would reach every device's
        yield
