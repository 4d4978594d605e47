"""Colours of whole batches [n,c,h,w] changed, one amount a sample."""

from __future__ import annotations

import torch
from torch.nn import functional

from fedloom.data.augmenting.geometry import Amount, each, like
from fedloom.errors import FedloomError


def shift_hue(x: torch.Tensor, turns: Amount) -> torch.Tensor:
    """Colours moved round the circle of hues: a third of a turn makes red green.

    HSV's other two, the largest of the three values (brightness) and the spread to the smallest,
    stay; so does grey. Any range of values will do.
    """
    if x.shape[1] != 3:
        rule = "a shift of hue must be of images with 3 colour channels"
        raise FedloomError(rule, f"these have {x.shape[1]}", "leave it out for such data")
    turns = each(x, turns)
    part = (turns - turns.floor()).to(x.device, torch.float32)[:, None, None]
    values = x.to(torch.float32)
    brightest = values.amax(1)
    spread = brightest - values.amin(1)
    sector = hue(values, brightest, spread) + 6 * part
    moved = [brightest - spread * absence(sector + start) for start in (5, 3, 1)]
    return torch.where(part[:, None] == 0, x, like(x, torch.stack(moved, 1)))


def hue(values: torch.Tensor, brightest: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    """In sixths of a turn: red at 0, green at 2, blue at 4. Grey is anywhere, here at 0."""
    red, green, blue = values.unbind(1)
    scale = torch.where(spread > 0, spread, 1)
    of_red = (green - blue) / scale
    of_green = 2 + (blue - red) / scale
    of_blue = 4 + (red - green) / scale
    of_others = torch.where(green == brightest, of_green, of_blue)
    return torch.where(red == brightest, of_red, of_others)


def absence(sector: torch.Tensor) -> torch.Tensor:
    """How much of a channel is missing, 0 to 1, at this distance round the circle."""
    place = sector.remainder(6)
    return torch.minimum(place, 4 - place).clamp(0, 1)


# The rest is what RandAugment needs: bytes as floats, 0 to 255, in and out. Each does what Pillow's
# function of that name does, except that values are not cut off to whole numbers in between.


def grey(values: torch.Tensor) -> torch.Tensor:
    """Luma, as ITU-R 601-2 weighs the colours; one channel is its own."""
    if values.shape[1] == 1:
        return values
    weights = torch.tensor((0.299, 0.587, 0.114), device=values.device).view(1, 3, 1, 1)
    return (values * weights).sum(1, keepdim=True)


def blend(plain: torch.Tensor, values: torch.Tensor, factor: Amount) -> torch.Tensor:
    """0: the plain one; 1: as it was; above 1: away from the plain one."""
    share = each(values, factor).to(values.device, torch.float32)[:, None, None, None]
    return (plain + share * (values - plain)).clamp(0, 255)


def colour(values: torch.Tensor, factor: Amount) -> torch.Tensor:
    return blend(grey(values), values, factor)


def contrast(values: torch.Tensor, factor: Amount) -> torch.Tensor:
    return blend(grey(values).mean((1, 2, 3), keepdim=True).round(), values, factor)


def brightness(values: torch.Tensor, factor: Amount) -> torch.Tensor:
    return blend(torch.zeros_like(values), values, factor)


def sharpness(values: torch.Tensor, factor: Amount) -> torch.Tensor:
    """The plain one is smoothed by a 3×3 kernel, 5 in the middle, 1 around it; the border stays."""
    smooth = values.clone()
    if min(values.shape[-2:]) > 2:
        inner = values[..., 1:-1, 1:-1]
        smooth[..., 1:-1, 1:-1] = (9 * functional.avg_pool2d(values, 3, stride=1) + 4 * inner) / 13
    return blend(smooth, values, factor)


def solarize(values: torch.Tensor, threshold: float) -> torch.Tensor:
    """What is not below the threshold is inverted."""
    return torch.where(values < threshold, values, 255 - values)


def posterize(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Only the first bits of a byte are kept."""
    step = 1 << (8 - bits)
    return (values.round() / step).floor() * step


def autocontrast(values: torch.Tensor) -> torch.Tensor:
    """Each channel is stretched to 0..255, if it has two values."""
    low = values.amin((2, 3), keepdim=True)
    high = values.amax((2, 3), keepdim=True)
    return torch.where(high > low, (values - low) * (255 / (high - low)), values)


def equalize(values: torch.Tensor) -> torch.Tensor:
    """Each channel's values are spread so that all are about as frequent.

    An image of few pixels stays.
    """
    bytes_ = values.round().long().flatten(2)
    counts = torch.zeros(*bytes_.shape[:2], 256, dtype=torch.long, device=values.device)
    counts.scatter_add_(2, bytes_, torch.ones_like(bytes_))
    last = counts.gather(2, bytes_.amax(2, keepdim=True))
    step = (bytes_.shape[2] - last) // 255
    table = (step // 2 + counts.cumsum(2) - counts) // step.clamp_min(1)
    spread = table.clamp(0, 255).gather(2, bytes_).view_as(values).to(values.dtype)
    return torch.where(step[..., None] > 0, spread, values)
