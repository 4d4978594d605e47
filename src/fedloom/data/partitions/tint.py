"""`+tint`: grey images get a colour, so that their hue can be shifted.

All samples get the same colour: red is as bright as the grey was, green half as bright and blue a
quarter. If a colour were drawn for each sample, hues would lie anywhere on the colour circle before
a shift as well as after it, and every client would have the same task. With a single colour, a
shift of hue makes another task. The first channel is the grey image itself, so nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedloom.data.partitions.rule import Rule
from fedloom.data.source import Source

if TYPE_CHECKING:
    import torch

SHARES = (1.0, 0.5, 0.25)  # of the grey value, in red, green and blue


@dataclass(frozen=True)
class Form:
    """What clients' samples look like to a network."""

    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def form_of(rule: Rule, source: Source) -> Form:
    """Returns the form of the source's samples, after tinting if the partition tints them."""
    shape = tuple(int(size) for size in source.x.shape[1:])
    if not rule.has_tint:
        return Form(shape, source.mean, source.std)
    return Form(
        shape=(len(SHARES), *shape[1:]),
        mean=tuple(share * source.mean[0] for share in SHARES),
        std=tuple(share * source.std[0] for share in SHARES),
    )


def tint(x: torch.Tensor) -> torch.Tensor:
    """Turns [n,1,h,w] into three channels. Bytes stay bytes, rounded."""
    import torch  # imported late: reading a rule needs no torch

    from fedloom.data.augmenting.geometry import like

    values = x.to(torch.float32)
    return like(x, torch.cat([share * values for share in SHARES], dim=1))


def tinted_by(rule: Rule, x: torch.Tensor) -> torch.Tensor:
    """Tints samples that belong to no client. They get no other transform of the partition."""
    if not rule.has_tint:
        return x
    return tint(x)
