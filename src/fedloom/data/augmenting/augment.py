"""Augmentation of training batches: `crop:4+flip+cutout:16`, `randaugment:2:9` or `none`.

In plain torch, on whole batches [n,c,h,w] in raw units, as Samples hold them, on whichever device;
type, shape and range stay. Every image draws its own amounts, all from the generator handed in,
which is the CPU's: the draws do not depend on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch

from fedloom.data.augmenting.colour import shift_hue
from fedloom.data.augmenting.geometry import like, pick, rotate
from fedloom.data.augmenting.randaugment import MOST, randaugment, white_of
from fedloom.data.augmenting.sound import add_noise, mask, shift_time
from fedloom.errors import FedloomError, unknown

__all__ = [
    "Augmenter",
    "augmenter",
    "check",
    "crop",
    "cutout",
    "flip",
    "parse",
    "rotate",
    "shift_hue",
]

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
        if not (self.above < value <= self.most and math.isfinite(value)):
            return None
        if self.whole and value != int(value):
            return None
        return value

    def __str__(self) -> str:
        interval = f"above {self.above:g}"
        if self.most != math.inf:
            interval = f"{interval} to {self.most:g}"
        if self.whole:
            interval = f"a whole number {interval}"
        return f"{self.what} ({interval})"


@dataclass(frozen=True)
class Operation:
    about: str
    example: str
    limits: tuple[Limit, ...]
    apply: Callable[..., torch.Tensor]  # of the batch, a generator, `About` and the amounts
    kinds: tuple[str, ...] = ("image",)
    channels: tuple[int, ...] = (1, 2, 3, 4)


def crop(x: torch.Tensor, generator: Generator, pixels: int) -> torch.Tensor:
    """A window of the same size, somewhere in the image with so many black pixels around it."""
    height, width = x.shape[2:]
    down = torch.randint(-pixels, pixels + 1, (len(x), 1, 1), generator=generator)
    across = torch.randint(-pixels, pixels + 1, (len(x), 1, 1), generator=generator)
    rows = torch.arange(height, device=x.device)[:, None] + down.to(x.device)
    columns = torch.arange(width, device=x.device)[None] + across.to(x.device)
    full = (len(x), height, width)
    return pick(x, rows.expand(full), columns.expand(full))


def flip(x: torch.Tensor, generator: Generator) -> torch.Tensor:
    """Left and right exchanged, for every second image."""
    coin = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(coin.to(x.device)[:, None, None, None], x.flip(3), x)


def cutout(
    x: torch.Tensor,
    generator: Generator,
    side: int,
    fill: Sequence[float] = (0.0,),
) -> torch.Tensor:
    """A square about a random pixel, or what of it lies in the image, gets the value `fill`.

    DeVries, Taylor, 2017.
    """
    height, width = x.shape[2:]
    rows = cut_out(height, len(x), side, generator).to(x.device)
    columns = cut_out(width, len(x), side, generator).to(x.device)
    box = rows[:, None, :, None] & columns[:, None, None, :]
    value = torch.tensor(fill, device=x.device).view(1, -1, 1, 1)
    return torch.where(box, like(x, value), x)


def cut_out(size: int, count: int, side: int, generator: Generator) -> torch.Tensor:
    """Which rows (or columns) of each image lie in its square [image, row]."""
    middle = torch.randint(size, (count, 1), generator=generator)
    place = torch.arange(size) - middle + side // 2
    return (place >= 0) & (place < side)


def uniform(x: torch.Tensor, generator: Generator, most: float) -> torch.Tensor:
    """An amount a sample, up to `most` either way."""
    return (2 * torch.rand(len(x), generator=generator) - 1) * most


def mean_of(about: About, x: torch.Tensor) -> torch.Tensor:
    """The data set's mean, a number a channel."""
    return torch.tensor(about.mean, device=x.device).view(1, -1, 1, 1)


OPERATIONS = {
    "crop": Operation(
        about="a window somewhere in the image with a black border of PIXELS",
        example="crop:4",
        limits=(Limit("pixels", 0),),
        apply=lambda x, generator, about, pixels: crop(x, generator, int(pixels)),
    ),
    "flip": Operation(
        about="left and right exchanged in half of the images",
        example="flip",
        limits=(),
        apply=lambda x, generator, about: flip(x, generator),
    ),
    "cutout": Operation(
        about="a square of SIDE pixels becomes the data set's mean",
        example="cutout:16",
        limits=(Limit("pixels", 0),),
        apply=lambda x, generator, about, side: cutout(x, generator, int(side), about.mean),
        kinds=("image", "speech"),
    ),
    "rotate": Operation(
        about="turned by up to DEGREES, either way",
        example="rotate:15",
        limits=(Limit("degrees", 0, 180, whole=False),),
        apply=lambda x, generator, about, degrees: rotate(x, uniform(x, generator, degrees)),
    ),
    "hue": Operation(
        about="colours moved round the circle by up to TURNS, either way",
        example="hue:0.1",
        limits=(Limit("turns", 0, 0.5, whole=False),),
        apply=lambda x, generator, about, turns: shift_hue(x, uniform(x, generator, turns)),
        channels=(3,),
    ),
    "timeshift": Operation(
        about="a sound up to FRAMES earlier or later",
        example="timeshift:5",
        limits=(Limit("frames", 0),),
        apply=lambda x, generator, about, frames: shift_time(
            x, generator, int(frames), mean_of(about, x)
        ),
        kinds=("speech",),
    ),
    "hiss": Operation(
        about="hiss of a SHARE of a sound's own spread",
        example="hiss:0.1",
        limits=(Limit("share", 0, 10, whole=False),),
        apply=lambda x, generator, about, share: add_noise(x, generator, share),
        kinds=("speech",),
    ),
    "timemask": Operation(
        about="up to FRAMES neighbouring frames of a sound become the data set's mean",
        example="timemask:8",
        limits=(Limit("frames", 0),),
        apply=lambda x, generator, about, frames: mask(
            x, generator, int(frames), 3, mean_of(about, x)
        ),
        kinds=("speech",),
    ),
    "bandmask": Operation(
        about="up to BANDS neighbouring bands of a sound become the data set's mean",
        example="bandmask:6",
        limits=(Limit("bands", 0),),
        apply=lambda x, generator, about, bands: mask(
            x, generator, int(bands), 2, mean_of(about, x)
        ),
        kinds=("speech",),
    ),
    "randaugment": Operation(
        about="COUNT random operations of MAGNITUDE (of 30)",
        example="randaugment:2:9",
        limits=(Limit("operations", 0, 14), Limit("magnitude", 0, MOST, whole=False)),
        apply=lambda x, generator, about, count, magnitude: randaugment(
            x,
            generator,
            int(count),
            magnitude,
            about.white,
        ),
        channels=(1, 3),
    ),
}


SIZED = ("crop", "cutout", "timeshift", "timemask", "bandmask")  # their amount is a length


class Step(NamedTuple):
    """An operation and its amounts."""

    name: str
    amounts: tuple[float, ...]


@cache
def parse(text: str) -> tuple[Step, ...]:
    """`name[:amount…][+…]` in the order of application; `none` is no step at all."""
    if text.strip() == "none":
        return ()
    return tuple(step(text, part.strip()) for part in text.split("+"))


def step(text: str, part: str) -> Step:
    name, *amounts = part.split(":")
    if name not in OPERATIONS:
        names = list(OPERATIONS)
        if part == text:
            names.append("none")
        raise unknown(f"an operation of `augment` {text!r}", name, names)
    limits = OPERATIONS[name].limits
    values = []
    for limit, amount in zip(limits, amounts, strict=False):
        value = limit.read(amount)
        if value is not None:
            values.append(value)
    if len(amounts) != len(limits) or len(values) != len(limits):
        needs = " and ".join(str(limit) for limit in limits) or "no amount"
        found = f"got {part!r}"
        if part != text:
            found = f"{found} in {text!r}"
        rule = f"`augment` {name} must have {needs}"
        raise FedloomError(rule, found, f"try {OPERATIONS[name].example}")
    return Step(name, tuple(values))


def check(text: str, kind: str, shape: Sequence[int]) -> None:
    """Whether every operation makes sense for such samples."""
    advice = "leave it out, or use augment=none"
    for name, amounts in parse(text):
        operation = OPERATIONS[name]
        if kind not in operation.kinds:
            rule = f"`augment` must be {allowed_for(kind)} for {kind}"
            raise FedloomError(rule, f"got {text!r}", advice)
        if shape[0] not in operation.channels:
            needs = " or ".join(map(str, operation.channels))
            rule = f"`augment` {name} must have images of {needs} channels"
            raise FedloomError(rule, f"they have {shape[0]}", advice)
        if name in SIZED and amounts[0] > max(shape[1:]):
            sides = "×".join(map(str, shape[1:]))
            rule = f"`augment` {name} must not be larger than the {kind}s of {sides}"
            quarter = max(1, min(shape[1:]) // 4)
            raise FedloomError(rule, f"got {amounts[0]:g}", f"try {name}:{quarter}")


def allowed_for(kind: str) -> str:
    names = [name for name, operation in OPERATIONS.items() if kind in operation.kinds]
    if not names:
        return "none"
    return f"one of {', '.join(names)}"


@dataclass(frozen=True)
class Augmenter:
    steps: tuple[Step, ...]
    about: About = About()

    def __call__(self, x: torch.Tensor, generator: Generator) -> torch.Tensor:
        for name, amounts in self.steps:
            x = OPERATIONS[name].apply(x, generator, self.about, *amounts)
        return x


def augmenter(text: str, kind: str, mean: Sequence[float], x: torch.Tensor) -> Augmenter:
    """The augmentation of samples such as these.

    They are all that a client trains on, so that their scale can be told.
    """
    steps = parse(text)
    if steps:
        check(text, kind, x.shape[1:])
    if any(step.name == "randaugment" for step in steps):
        return Augmenter(steps, About(tuple(mean), white_of(x)))
    return Augmenter(steps, About(tuple(mean)))
