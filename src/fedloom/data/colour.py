"""Colours of whole batches [n,c,h,w] changed, one amount a sample."""

from __future__ import annotations

import torch

from fedloom.data.geometry import Amount, each, like
from fedloom.errors import FedloomError


def shift_hue(x: torch.Tensor, turns: Amount) -> torch.Tensor:
    """Colours moved round the circle of hues: a third of a turn makes red green. HSV's other two, the largest of the
    three values (brightness) and the spread to the smallest, stay; so does grey. Any range of values will do.
    """
    if x.shape[1] != 3:
        must = "a shift of hue must be of images with 3 colour channels"
        raise FedloomError(must, f"these have {x.shape[1]}", "leave it out for such data")
    turns = each(x, turns)
    part = (turns - turns.floor()).to(x.device, torch.float32)[:, None, None]
    values = x.to(torch.float32)
    brightest, spread = values.amax(1), values.amax(1) - values.amin(1)
    sector = hue(values, brightest, spread) + 6 * part
    moved = [brightest - spread * absence(sector + start) for start in (5, 3, 1)]
    return torch.where(part[:, None] == 0, x, like(x, torch.stack(moved, 1)))


def hue(values: torch.Tensor, brightest: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    """In sixths of a turn: red at 0, green at 2, blue at 4. Grey is anywhere, here at 0."""
    red, green, blue = values.unbind(1)
    scale = torch.where(spread > 0, spread, 1)
    of_green, of_blue = 2 + (blue - red) / scale, 4 + (red - green) / scale
    rest = torch.where(green == brightest, of_green, of_blue)
    return torch.where(red == brightest, (green - blue) / scale, rest)


def absence(sector: torch.Tensor) -> torch.Tensor:
    """How much of a channel is missing, 0 to 1, at this distance round the circle."""
    place = sector.remainder(6)
    return torch.minimum(place, 4 - place).clamp(0, 1)
