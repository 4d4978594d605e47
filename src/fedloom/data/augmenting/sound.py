"""Augmentation of sounds, as spectrograms [n, 1, bands, frames].

They are changed as another recording might differ: a little earlier or later, with noise, or with
some frames or bands missing (Park et al., "SpecAugment", 2019, without its time warping).
"""

from __future__ import annotations

import torch

from fedloom.data.augmenting.geometry import like

Generator = torch.Generator


def shift_time(
    x: torch.Tensor, generator: Generator, frames: int, fill: torch.Tensor
) -> torch.Tensor:
    """Moves every sound up to `frames` earlier or later. Frames that come in are `fill`."""
    length = x.shape[3]
    later = torch.randint(-frames, frames + 1, (len(x), 1), generator=generator)
    sources = torch.arange(length) - later
    is_inside = (sources >= 0) & (sources < length)
    places = sources.clamp(0, length - 1).to(x.device)
    moved = x.gather(3, places[:, None, None, :].expand_as(x))
    inside = is_inside.to(x.device)[:, None, None, :]
    return torch.where(inside, moved, like(x, fill))


def add_noise(x: torch.Tensor, generator: Generator, share: float) -> torch.Tensor:
    """Adds Gaussian noise whose standard deviation is `share` of the sound's own."""
    noise = torch.randn(x.shape, generator=generator).to(x.device)
    spread = x.float().std(dim=(1, 2, 3), keepdim=True)
    return like(x, x + share * spread * noise)


def mask(
    x: torch.Tensor, generator: Generator, most: int, axis: int, fill: torch.Tensor
) -> torch.Tensor:
    """Sets up to `most` consecutive frames (axis 3) or bands (axis 2) of each sound to `fill`."""
    length = x.shape[axis]
    width = torch.randint(most + 1, (len(x), 1), generator=generator)
    latest = (length - width).clamp(min=0)
    begin = (torch.rand(len(x), 1, generator=generator) * (latest + 1)).long()
    places = torch.arange(length)[None]
    hidden = (places >= begin) & (places < begin + width)
    shape = [len(x), 1, 1, 1]
    shape[axis] = length
    return torch.where(hidden.view(shape).to(x.device), like(x, fill), x)
