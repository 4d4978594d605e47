"""Augmentation of training batches in plain torch: `crop:4+flip+cutout:16`, `randaugment:2:9` or `none`.

Whole batches [n,c,h,w] in raw units, as Samples hold them, on whichever device; type, shape and range stay. Every image
draws its own amounts, all from the generator handed in, which is the CPU's: the draws do not depend on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from fedloom.data.augmenting.colour import shift_hue
from fedloom.data.augmenting.geometry import like, pick, rotate
from fedloom.data.augmenting.randaugment import MOST, randaugment, white_of
from fedloom.errors import FedloomError, unknown

__all__ = ["Augmenter", "augmenter", "check", "crop", "cutout", "flip", "parse", "rotate", "shift_hue"]

Generator = torch.Generator


@dataclass(frozen=True)
class About:
    """What an operation may have to know of the data beyond the batch."""

    mean: Sequence[float] = (0.0,)  # per channel, in raw units
    white: int = 255


@dataclass(frozen=True)
class Limit:
    """What one amount of an operation may be."""

    what: str
    above: float
    most: float = math.inf
    whole: bool = True

    def read(self, text: str) -> float | None:
        try:
            value = float(text)
        except ValueError:
            return None
        fits = self.above < value <= self.most and math.isfinite(value)
        return value if fits and (not self.whole or value == int(value)) else None

    def __str__(self) -> str:
        most = "" if self.most == math.inf else f" to {self.most:g}"
        return f"{self.what} ({'a whole number ' * self.whole}above {self.above:g}{most})"


@dataclass(frozen=True)
class Operation:
    about: str
    example: str
    limits: tuple[Limit, ...]
    apply: Callable[..., torch.Tensor]  # of the batch, a generator, what is known of the data, and the amounts
    kinds: tuple[str, ...] = ("image",)
    channels: tuple[int, ...] = (1, 2, 3, 4)


def crop(x: torch.Tensor, generator: Generator, pixels: int) -> torch.Tensor:
    """A window of the same size, somewhere in the image with so many black pixels around it."""
    down, across = (torch.randint(-pixels, pixels + 1, (len(x), 1, 1), generator=generator) for _ in "yx")
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape[2:])
    full = (len(x), *x.shape[2:])
    return pick(x, (rows[:, None] + down.to(x.device)).expand(full), (columns[None] + across.to(x.device)).expand(full))


def flip(x: torch.Tensor, generator: Generator) -> torch.Tensor:
    """Left and right exchanged, for every second image."""
    coin = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(coin.to(x.device)[:, None, None, None], x.flip(3), x)


def cutout(x: torch.Tensor, generator: Generator, side: int, fill: Sequence[float] = (0.0,)) -> torch.Tensor:
    """A square about a random pixel, or what of it lies in the image, gets the value `fill`; DeVries, Taylor, 2017."""
    within = [
        (torch.arange(size) - torch.randint(size, (len(x), 1), generator=generator) + side // 2).to(x.device)
        for size in x.shape[2:]
    ]
    rows, columns = ((place >= 0) & (place < side) for place in within)
    box = rows[:, None, :, None] & columns[:, None, None, :]
    return torch.where(box, like(x, torch.tensor(fill, device=x.device).view(1, -1, 1, 1)), x)


def uniform(x: torch.Tensor, generator: Generator, most: float) -> torch.Tensor:
    """An amount a sample, up to `most` either way."""
    return (2 * torch.rand(len(x), generator=generator) - 1) * most


OPERATIONS = {
    "crop": Operation(
        "a window somewhere in the image with a black border of PIXELS", "crop:4", (Limit("pixels", 0),),
        lambda x, generator, about, pixels: crop(x, generator, int(pixels)),
    ),
    "flip": Operation(
        "left and right exchanged in half of the images", "flip", (),
        lambda x, generator, about: flip(x, generator),
    ),
    "cutout": Operation(
        "a square of SIDE pixels becomes the data set's mean", "cutout:16", (Limit("pixels", 0),),
        lambda x, generator, about, side: cutout(x, generator, int(side), about.mean), kinds=("image", "speech"),
    ),
    "rotate": Operation(
        "turned by up to DEGREES, either way", "rotate:15", (Limit("degrees", 0, 180, whole=False),),
        lambda x, generator, about, degrees: rotate(x, uniform(x, generator, degrees)),
    ),
    "hue": Operation(
        "colours moved round the circle by up to TURNS, either way", "hue:0.1", (Limit("turns", 0, 0.5, whole=False),),
        lambda x, generator, about, turns: shift_hue(x, uniform(x, generator, turns)), channels=(3,),
    ),
    "randaugment": Operation(
        "COUNT random operations of MAGNITUDE (of 30)", "randaugment:2:9",
        (Limit("operations", 0, 14), Limit("magnitude", 0, MOST, whole=False)),
        lambda x, generator, about, count, magnitude: randaugment(x, generator, int(count), magnitude, about.white),
        channels=(1, 3),
    ),
}  # fmt: skip

Step = tuple[str, tuple[float, ...]]  # an operation's name and its amounts


@cache
def parse(text: str) -> tuple[Step, ...]:
    """`name[:amount…][+…]` in the order of application; `none` is no step at all."""
    return () if text.strip() == "none" else tuple(step(text, part.strip()) for part in text.split("+"))


def step(text: str, part: str) -> Step:
    name, *amounts = part.split(":")
    if name not in OPERATIONS:
        raise unknown(f"an operation of `augment` {text!r}", name, [*OPERATIONS, *(["none"] if part == text else [])])
    operation = OPERATIONS[name]
    values = [limit.read(amount) for limit, amount in zip(operation.limits, amounts, strict=False)]
    if len(amounts) != len(operation.limits) or None in values:
        needs = " and ".join(str(limit) for limit in operation.limits) or "no amount"
        found = f"got {part!r} in {text!r}" if part != text else f"got {part!r}"
        raise FedloomError(f"`augment` {name} must have {needs}", found, f"try {operation.example}")
    return name, tuple(value for value in values if value is not None)


def check(text: str, kind: str, shape: Sequence[int]) -> None:
    """Whether every operation makes sense for such samples."""
    for name, amounts in parse(text):
        operation, todo = OPERATIONS[name], "leave it out, or use augment=none"
        if kind not in operation.kinds:
            fitting = [other for other, one in OPERATIONS.items() if kind in one.kinds]
            allowed = f"one of {', '.join(fitting)}" if fitting else "none"
            raise FedloomError(f"`augment` must be {allowed} for {kind}", f"got {text!r}", todo)
        if shape[0] not in operation.channels:
            needs = " or ".join(map(str, operation.channels))
            raise FedloomError(f"`augment` {name} must have images of {needs} channels", f"they have {shape[0]}", todo)
        if name in ("crop", "cutout") and amounts[0] > max(shape[1:]):
            sides = "×".join(map(str, shape[1:]))
            must = f"`augment` {name} must not be larger than the {kind}s of {sides}"
            raise FedloomError(must, f"got {amounts[0]:g}", f"try {name}:{max(1, min(shape[1:]) // 4)}")


@dataclass(frozen=True)
class Augmenter:
    steps: tuple[Step, ...]
    about: About = About()

    def __call__(self, x: torch.Tensor, generator: Generator) -> torch.Tensor:
        for name, amounts in self.steps:
            x = OPERATIONS[name].apply(x, generator, self.about, *amounts)
        return x


def augmenter(text: str, kind: str, mean: Sequence[float], x: torch.Tensor) -> Augmenter:
    """The augmentation of samples such as these: all a client trains on, so that their scale can be told."""
    steps = parse(text)
    if steps:
        check(text, kind, x.shape[1:])
    white = white_of(x) if any(name == "randaugment" for name, _ in steps) else 255
    return Augmenter(steps, About(tuple(mean), white))
