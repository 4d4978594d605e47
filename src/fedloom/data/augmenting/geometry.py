"""Geometric changes of images: rotation, shear, translation.

All functions take whole batches [n,c,h,w] and one amount per sample. Pixels that come in from
outside the image are black (0). Values between pixels are interpolated bilinearly. A move that
lands exactly on pixels (a quarter turn of a square, a whole translation) is exact. Bytes stay
bytes, rounded.
"""

from __future__ import annotations

import torch

Amount = torch.Tensor | float  # one for all samples, or one per sample


def rotate(x: torch.Tensor, degrees: Amount) -> torch.Tensor:
    """Rotates images counter-clockwise around their centre, as `torch.rot90` does.

    The shape stays the same, so corners are lost.
    """
    # In double precision, so that a quarter turn is distinguished from angles near it.
    turn = torch.deg2rad(per_sample(x, degrees).double())
    cosine = turn.cos().round(decimals=12)
    sine = turn.sin().round(decimals=12)
    return warp(x, across=(cosine, -sine), down=(sine, cosine))


def shear(x: torch.Tensor, across: Amount = 0.0, down: Amount = 0.0) -> torch.Tensor:
    """Shears images: a pixel takes the value `across`·row to its right and `down`·column below it.

    Rows and columns are counted from the centre.
    """
    one = per_sample(x, 1.0)
    return warp(x, across=(one, per_sample(x, across)), down=(per_sample(x, down), one))


def translate(x: torch.Tensor, across: Amount = 0.0, down: Amount = 0.0) -> torch.Tensor:
    """Moves images right and down by this many pixels."""
    one = per_sample(x, 1.0)
    zero = per_sample(x, 0.0)
    shift = (-per_sample(x, across), -per_sample(x, down))
    return warp(x, across=(one, zero), down=(zero, one), shift=shift)


def per_sample(x: torch.Tensor, amount: Amount) -> torch.Tensor:
    """Returns one amount per sample, on the CPU, where all amounts are drawn."""
    amounts = torch.as_tensor(amount, dtype=torch.float64, device="cpu")
    if amounts.ndim > 1 or (amounts.ndim and len(amounts) != len(x)):
        shape = tuple(amounts.shape)
        raise ValueError(f"{len(x)} samples need one amount or {len(x)}, not {shape}")
    return amounts.expand(len(x))


Row = tuple[torch.Tensor, torch.Tensor]


def warp(x: torch.Tensor, across: Row, down: Row, shift: Row | None = None) -> torch.Tensor:
    """Gives each pixel the value at another place, which is an affine function of its own place.

    `across` are the factors for the source column, `down` those for the source row. Places are
    counted from the centre of the image. Everything is in float32, in which halves and whole
    numbers are exact.
    """
    height, width = x.shape[-2:]
    if shift is None:
        shift = (per_sample(x, 0.0), per_sample(x, 0.0))
    factors = torch.stack([*across, *down, *shift])
    a, b, c, d, dx, dy = factors.to(x.device, torch.float32)[:, :, None, None]
    row = torch.arange(height, device=x.device, dtype=torch.float32)[:, None] - (height - 1) / 2
    column = torch.arange(width, device=x.device, dtype=torch.float32) - (width - 1) / 2
    source_row = c * column + d * row + dy + (height - 1) / 2
    source_column = a * column + b * row + dx + (width - 1) / 2
    return sample(x, source_row, source_column)


def sample(x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Returns the bilinear values of `x` at these places [n,h,w].

    Each is the weighted sum of four neighbours. Neighbours outside the image are 0.
    """
    values = x.to(torch.float32)
    top = rows.floor()
    left = columns.floor()
    below = rows - top
    right = columns - left
    total = torch.zeros_like(values)
    for row, row_share in ((top, 1 - below), (top + 1, below)):
        for column, column_share in ((left, 1 - right), (left + 1, right)):
            total += pick(values, row, column) * (row_share * column_share)[:, None]
    return like(x, total)


def pick(values: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Returns the pixels at whole places [n,h,w], and 0 outside the image."""
    height, width = values.shape[-2:]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    place = (rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)).long()
    every_channel = place.flatten(1)[:, None].expand(-1, values.shape[1], -1)
    chosen = values.flatten(2).gather(2, every_channel)
    return chosen.view_as(values) * inside[:, None]


def like(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Converts computed values to the type of the images that they were computed from."""
    if x.dtype == torch.uint8:
        values = values.round().clamp(0, 255)
    return values.to(x.dtype)
