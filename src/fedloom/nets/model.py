"""A network that includes its input normalisation, so that it takes raw values everywhere."""

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

MOST_WEIGHTS = 1 << 32  # per network: 16 GB
Net = TypeVar("Net", bound=nn.Module)


class Model(nn.Module):
    """Computes (x − mean) / std, then the network.

    The constants are not weights: they are never sent or averaged. Without constants, as for text,
    the input is not changed.
    """

    mean: torch.Tensor
    std: torch.Tensor
    # Two networks with the same value need the same MACs for batches of the same shape, if the same
    # parameters are trained. None: nothing is known, as for a network that is not built in.
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
        """The network's head; None: it has no choice of heads."""
        return head_of_network(self.net)


def laid_out(net: Net, kind: str) -> Net:
    """Sets the memory format that every network computes in, which is decided only here.

    Convolutions over maps are up to 1.6 times as fast with the channels last, even for grey images
    of 8×8 pixels (bench/bench_layout.py measures it). Text and tables have no maps.
    """
    if kind in MAPS:
        # torch's type stubs lack this overload
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


def constants(
    mean: Sequence[float], std: Sequence[float], kind: str = "image"
) -> dict[str, torch.Tensor]:
    """Returns the buffers of a model's input normalisation: one number per channel or column."""
    return {"mean": shaped(torch.tensor(mean), kind), "std": shaped(torch.tensor(std), kind)}


def shaped(values: torch.Tensor, kind: str) -> torch.Tensor:
    """Reshapes one number per channel so that it broadcasts over samples of this kind."""
    if kind in TABLES:
        return values.view(1, -1)
    return values.view(1, -1, 1, 1)


def check_kind(subject: str, kind: str, kinds: Sequence[str], advice: str) -> None:
    """Refuses a network or space that is for other kinds of data; `subject` names it."""
    if kind not in kinds:
        raise FedloomError(
            f"{subject} must be for {kind} data", f"it is for {' and '.join(kinds)}", advice
        )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, torch's global CPU generator, from which initialisers draw, starts at this seed."""
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also reset the generators of all other devices
        torch.default_generator.manual_seed(seed)
        yield
