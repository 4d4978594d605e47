"""`+tint`: grey images get a colour, so that there is a hue to shift.

All samples get the same one: red is as bright as the grey was, green half as bright and blue a
quarter. A colour drawn for each sample would lie anywhere on the circle of hues, and still anywhere
after a shift: every client would have the same task. With one colour, a shift of hue is another
task. The first channel is the grey image itself, so nothing is lost.
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
    """The source's own form, or that of its tinted samples."""
    shape = tuple(int(size) for size in source.x.shape[1:])
    if not rule.has_tint:
        return Form(shape, source.mean, source.std)
    return Form(
        shape=(len(SHARES), *shape[1:]),
        mean=tuple(share * source.mean[0] for share in SHARES),
        std=tuple(share * source.std[0] for share in SHARES),
    )


def tint(x: torch.Tensor) -> torch.Tensor:
    """[n,1,h,w] in three channels. Bytes stay bytes, rounded."""
    import torch  # late: who only reads a rule needs no torch

    from fedloom.data.augmenting.geometry import like

    values = x.to(torch.float32)
    return like(x, torch.cat([share * values for share in SHARES], dim=1))


def tinted_by(rule: Rule, x: torch.Tensor) -> torch.Tensor:
    """Samples that are no client's own: of all that a rule says, they have the tint alone."""
    if not rule.has_tint:
        return x
    return tint(x)
