"""Sounds as pictures [n, 1, bands, frames], changed as another recording might differ.

They come a little earlier or later, with noise, or with some frames or bands missing (Park et al.,
"SpecAugment", 2019, without its warping of time).
"""

from __future__ import annotations

import torch

from fedloom.data.augmenting.geometry import like

Generator = torch.Generator


def shift_time(
    x: torch.Tensor, generator: Generator, frames: int, fill: torch.Tensor
) -> torch.Tensor:
    """Every sound up to `frames` earlier or later; what comes in is `fill`."""
    length = x.shape[3]
    later = torch.randint(-frames, frames + 1, (len(x), 1), generator=generator)
    sources = torch.arange(length) - later
    is_inside = (sources >= 0) & (sources < length)
    places = sources.clamp(0, length - 1).to(x.device)
    moved = x.gather(3, places[:, None, None, :].expand_as(x))
    inside = is_inside.to(x.device)[:, None, None, :]
    return torch.where(inside, moved, like(x, fill))


def add_noise(x: torch.Tensor, generator: Generator, share: float) -> torch.Tensor:
    """Gaussian noise of a `share` of how much each sound's own values spread."""
    noise = torch.randn(x.shape, generator=generator).to(x.device)
    spread = x.float().std(dim=(1, 2, 3), keepdim=True)
    return like(x, x + share * spread * noise)


def mask(
    x: torch.Tensor, generator: Generator, most: int, axis: int, fill: torch.Tensor
) -> torch.Tensor:
    """Up to `most` neighbouring frames (axis 3) or bands (axis 2) of each sound become `fill`."""
    length = x.shape[axis]
    width = torch.randint(most + 1, (len(x), 1), generator=generator)
    latest = (length - width).clamp(min=0)
    begin = (torch.rand(len(x), 1, generator=generator) * (latest + 1)).long()
    places = torch.arange(length)[None]
    hidden = (places >= begin) & (places < begin + width)
    shape = [len(x), 1, 1, 1]
    shape[axis] = length
    return torch.where(hidden.view(shape).to(x.device), like(x, fill), x)
