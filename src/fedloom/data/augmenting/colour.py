"""Changes of colour of whole batches [n,c,h,w], with one amount per sample."""

from __future__ import annotations

import torch
from torch.nn import functional

from fedloom.data.augmenting.geometry import Amount, like, per_sample
from fedloom.errors import FedloomError


def shift_hue(x: torch.Tensor, turns: Amount) -> torch.Tensor:
    """Shifts hues along the colour circle: a third of a turn turns red into green.

    The largest of the three channel values (brightness, HSV's V) and its distance to the smallest
    stay the same, and so does grey. Values may have any range.
    """
    if x.shape[1] != 3:
        rule = "a shift of hue must have images with 3 colour channels"
        raise FedloomError(rule, f"these have {x.shape[1]}", "leave it out for such data")
    turns = per_sample(x, turns)
    fraction = (turns - turns.floor()).to(x.device, torch.float32)[:, None, None]
    values = x.to(torch.float32)
    brightest = values.amax(1)
    spread = brightest - values.amin(1)
    sector = hue(values, brightest, spread) + 6 * fraction
    moved = [brightest - spread * absence(sector + start) for start in (5, 3, 1)]
    return torch.where(fraction[:, None] == 0, x, like(x, torch.stack(moved, 1)))


def hue(values: torch.Tensor, brightest: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    """Returns hues in sixths of a turn: red at 0, green at 2, blue at 4.

    Grey has no hue, and is put at 0.
    """
    red, green, blue = values.unbind(1)
    scale = torch.where(spread > 0, spread, 1)
    near_red = (green - blue) / scale
    near_green = 2 + (blue - red) / scale
    near_blue = 4 + (red - green) / scale
    not_red = torch.where(green == brightest, near_green, near_blue)
    return torch.where(red == brightest, near_red, not_red)


def absence(sector: torch.Tensor) -> torch.Tensor:
    """Returns how much of a channel is missing, 0 to 1, at this distance along the circle."""
    place = sector.remainder(6)
    return torch.minimum(place, 4 - place).clamp(0, 1)


# The functions below are for RandAugment. They take and return byte values, 0 to 255, as floats.
# Each does what Pillow's function of that name does, except that intermediate values are not
# truncated to whole numbers.


def grey(values: torch.Tensor) -> torch.Tensor:
    """Returns luma, with the weights of ITU-R 601-2. A single channel is returned as it is."""
    if values.shape[1] == 1:
        return values
    weights = torch.tensor((0.299, 0.587, 0.114), device=values.device).view(1, 3, 1, 1)
    return (values * weights).sum(1, keepdim=True)


def blend(plain: torch.Tensor, values: torch.Tensor, factor: Amount) -> torch.Tensor:
    """Blends an image with a plain version of it.

    Factor 0 gives the plain version and factor 1 the image. Above 1, differences from the plain
    version grow.
    """
    share = per_sample(values, factor).to(values.device, torch.float32)[:, None, None, None]
    return (plain + share * (values - plain)).clamp(0, 255)


def colour(values: torch.Tensor, factor: Amount) -> torch.Tensor:
    return blend(grey(values), values, factor)


def contrast(values: torch.Tensor, factor: Amount) -> torch.Tensor:
    return blend(grey(values).mean((1, 2, 3), keepdim=True).round(), values, factor)


def brightness(values: torch.Tensor, factor: Amount) -> torch.Tensor:
    return blend(torch.zeros_like(values), values, factor)


def sharpness(values: torch.Tensor, factor: Amount) -> torch.Tensor:
    """Blends the image with a smoothed version of it.

    The kernel is 3×3, with 5 in the centre and 1 around it. The border is not smoothed.
    """
    smooth = values.clone()
    if min(values.shape[-2:]) > 2:
        inner = values[..., 1:-1, 1:-1]
        smooth[..., 1:-1, 1:-1] = (9 * functional.avg_pool2d(values, 3, stride=1) + 4 * inner) / 13
    return blend(smooth, values, factor)


def solarize(values: torch.Tensor, threshold: float) -> torch.Tensor:
    """Inverts values that are not below the threshold."""
    return torch.where(values < threshold, values, 255 - values)


def posterize(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Keeps only the highest bits of each byte."""
    step = 1 << (8 - bits)
    return (values.round() / step).floor() * step


def autocontrast(values: torch.Tensor) -> torch.Tensor:
    """Stretches each channel to 0..255, unless all its values are equal."""
    low = values.amin((2, 3), keepdim=True)
    high = values.amax((2, 3), keepdim=True)
    return torch.where(high > low, (values - low) * (255 / (high - low)), values)


def equalize(values: torch.Tensor) -> torch.Tensor:
    """Equalises the histogram of each channel. An image of few pixels stays as it is."""
    bytes_ = values.round().long().flatten(2)
    counts = torch.zeros(*bytes_.shape[:2], 256, dtype=torch.long, device=values.device)
    counts.scatter_add_(2, bytes_, torch.ones_like(bytes_))
    last_count = counts.gather(2, bytes_.amax(2, keepdim=True))
    step = (bytes_.shape[2] - last_count) // 255
    mapped = (step // 2 + counts.cumsum(2) - counts) // step.clamp_min(1)
    spread = mapped.clamp(0, 255).gather(2, bytes_).view_as(values).to(values.dtype)
    return torch.where(step[..., None] > 0, spread, values)
