"""RandAugment: Cubuk, Zoph, Shlens, Le, 2019.

The paper is "RandAugment: Practical Automated Data Augmentation with a Reduced Search Space". Each
image goes through N operations, drawn with replacement from fourteen, all at one magnitude M of 30.
At M = 30:

    identity, autocontrast, equalize   have no magnitude
    rotate                             30 degrees, either way
    shear-x, shear-y                   0.3, either way
    translate-x, translate-y           150/331 of the width or height, either way
    colour, contrast, brightness, sharpness   a factor of 1 + 0.9 or 1 − 0.9
    posterize                          4 bits are kept (at M = 0: 8)
    solarize                           everything is inverted (at M = 0: nothing but white)

Amounts are proportional for smaller M. Pixels that come in from outside are black; values between
pixels are interpolated bilinearly.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedloom.data.augmenting import colour
from fedloom.data.augmenting.geometry import like, rotate, shear, translate
from fedloom.errors import FedloomError

MOST = 30
# The value of white in the scales that images come in: 0 to 1, scikit-learn's digits, bytes.
WHITES = (1, 16, 255)
# (images with values 0..255, ±M/30 for each image) -> images
Operation = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

OPERATIONS: dict[str, Operation] = {
    "identity": lambda x, amount: x,
    "autocontrast": lambda x, amount: colour.autocontrast(x),
    "equalize": lambda x, amount: colour.equalize(x),
    "rotate": lambda x, amount: rotate(x, 30 * amount),
    "solarize": lambda x, amount: colour.solarize(x, 255 * (1 - strength(amount))),
    "colour": lambda x, amount: colour.colour(x, 1 + 0.9 * amount),
    "posterize": lambda x, amount: colour.posterize(x, 8 - round(4 * strength(amount))),
    "contrast": lambda x, amount: colour.contrast(x, 1 + 0.9 * amount),
    "brightness": lambda x, amount: colour.brightness(x, 1 + 0.9 * amount),
    "sharpness": lambda x, amount: colour.sharpness(x, 1 + 0.9 * amount),
    "shear-x": lambda x, amount: shear(x, across=0.3 * amount),
    "shear-y": lambda x, amount: shear(x, down=0.3 * amount),
    "translate-x": lambda x, amount: translate(x, across=150 / 331 * x.shape[3] * amount),
    "translate-y": lambda x, amount: translate(x, down=150 / 331 * x.shape[2] * amount),
}


def strength(amount: torch.Tensor) -> float:
    """Returns the magnitude, which is the same for all images except for its sign."""
    return abs(float(amount[0]))


def white_of(x: torch.Tensor) -> int:
    """Returns the value of white in the scale of these images, which the operations must know."""
    if not x.numel():
        return WHITES[0]
    low = float(x.min())
    high = float(x.max())
    if low < 0 or high > WHITES[-1]:
        rule = "randaugment must have pixels from 0 to 1, 16 or 255"
        problem = f"they run from {low:g} to {high:g}"
        advice = "save them on one of these scales, and let the model normalise"
        raise FedloomError(rule, problem, advice)
    return next(white for white in WHITES if high <= white)


def randaugment(
    x: torch.Tensor,
    generator: torch.Generator,
    count: int,
    magnitude: float,
    white: int = 255,
) -> torch.Tensor:
    """Applies `count` operations to every image. They are drawn for each image."""
    values = x.to(torch.float32) * (255 / white)
    for _ in range(count):
        which = torch.randint(len(OPERATIONS), (len(x),), generator=generator)
        sign = 2 * torch.randint(2, (len(x),), generator=generator) - 1
        amount = sign * (magnitude / MOST)
        for number, operation in enumerate(OPERATIONS.values()):
            chosen = (which == number).nonzero()[:, 0]
            if len(chosen):
                on_device = chosen.to(x.device)
                values[on_device] = operation(values[on_device], amount[chosen])
    return like(x, values * (white / 255))
