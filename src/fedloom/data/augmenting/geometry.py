"""Images moved about: rotated, sheared, translated, cropped, flipped.

All take whole batches [n,c,h,w] and one amount a sample. What comes in from outside the image is
black (0). Values between pixels are bilinear; a move that lands on pixels (a quarter turn of a
square, a whole translation) is exact. Bytes come out as bytes, rounded.
"""

from __future__ import annotations

import torch

Amount = torch.Tensor | float  # one for all samples, or one each


def rotate(x: torch.Tensor, degrees: Amount) -> torch.Tensor:
    """Turned counter-clockwise about the middle, as `torch.rot90` does.

    The shape stays, so corners are lost.
    """
    # In double, so that a quarter turn can be told from its neighbours.
    turn = torch.deg2rad(each(x, degrees).double())
    cosine = turn.cos().round(decimals=12)
    sine = turn.sin().round(decimals=12)
    return warp(x, across=(cosine, -sine), down=(sine, cosine))


def shear(x: torch.Tensor, across: Amount = 0.0, down: Amount = 0.0) -> torch.Tensor:
    """Every pixel takes the value `across`·(its row) to its right and `down`·(its column) below it.

    Rows and columns are counted from the middle.
    """
    one = each(x, 1.0)
    return warp(x, across=(one, each(x, across)), down=(each(x, down), one))


def translate(x: torch.Tensor, across: Amount = 0.0, down: Amount = 0.0) -> torch.Tensor:
    """Moved right and down by this many pixels."""
    one = each(x, 1.0)
    zero = each(x, 0.0)
    shift = (-each(x, across), -each(x, down))
    return warp(x, across=(one, zero), down=(zero, one), shift=shift)


def each(x: torch.Tensor, amount: Amount) -> torch.Tensor:
    """One amount a sample, on the CPU, where all amounts are drawn."""
    amounts = torch.as_tensor(amount, dtype=torch.float64, device="cpu")
    if amounts.ndim > 1 or (amounts.ndim and len(amounts) != len(x)):
        shape = tuple(amounts.shape)
        raise ValueError(f"{len(x)} samples take one amount or {len(x)}, not {shape}")
    return amounts.expand(len(x))


Row = tuple[torch.Tensor, torch.Tensor]


def warp(x: torch.Tensor, across: Row, down: Row, shift: Row | None = None) -> torch.Tensor:
    """Each pixel's value is that at a linear function of its place.

    `across` gives the column, `down` the row. Places are counted from the middle of the image. All
    of it in float32: halves and whole numbers stay exact.
    """
    height, width = x.shape[-2:]
    if shift is None:
        shift = (each(x, 0.0), each(x, 0.0))
    factors = torch.stack([*across, *down, *shift])
    a, b, c, d, dx, dy = factors.to(x.device, torch.float32)[:, :, None, None]
    row = torch.arange(height, device=x.device, dtype=torch.float32)[:, None] - (height - 1) / 2
    column = torch.arange(width, device=x.device, dtype=torch.float32) - (width - 1) / 2
    source_row = c * column + d * row + dy + (height - 1) / 2
    source_column = a * column + b * row + dx + (width - 1) / 2
    return sample(x, source_row, source_column)


def sample(x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """The bilinear values of `x` at these places [n,h,w].

    Each is the sum of four neighbours, those outside being 0.
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
    """The pixels at whole places [n,h,w]; 0 where there is none."""
    height, width = values.shape[-2:]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    place = (rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)).long()
    every_channel = place.flatten(1)[:, None].expand(-1, values.shape[1], -1)
    chosen = values.flatten(2).gather(2, every_channel)
    return chosen.view_as(values) * inside[:, None]


def like(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Computed values in the type of the images they were computed from."""
    if x.dtype == torch.uint8:
        values = values.round().clamp(0, 255)
    return values.to(x.dtype)
