"""Augmentation of training batches: `crop:4+flip+cutout:16`, `randaugment:2:9` or `none`.

Operations are plain torch and work on whole batches [n,c,h,w] in raw units, as Samples hold them,
on any device. They keep type, shape and range. Each image draws its own amounts, all from the given
generator. That is a generator of the CPU, so the draws do not depend on the device.
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
class DataFacts:
    """What an operation may have to know about the data besides the batch."""

    mean: Sequence[float] = (0.0,)  # per channel, in raw units
    white: int = 255  # the value of white pixels


@dataclass(frozen=True)
class Limit:
    """The range of one amount of an operation: above `above`, and at most `most`."""

    name: str
    above: float
    most: float = math.inf
    whole: bool = True

    def read(self, text: str) -> float | None:
        """Returns the number in a text. None: it is no number, or out of range."""
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
        return f"{self.name} ({interval})"


@dataclass(frozen=True)
class Operation:
    """One operation that `augment` can name."""

    about: str  # one line for `fedloom list augmentations`
    example: str
    limits: tuple[Limit, ...]  # one for each amount
    apply: Callable[..., torch.Tensor]  # (batch, generator, data facts, *amounts) -> batch
    kinds: tuple[str, ...] = ("image",)
    channels: tuple[int, ...] = (1, 2, 3, 4)


def crop(x: torch.Tensor, generator: Generator, pixels: int) -> torch.Tensor:
    """Cuts a window of the same size out of the image with this many black pixels around it."""
    height, width = x.shape[2:]
    down = torch.randint(-pixels, pixels + 1, (len(x), 1, 1), generator=generator)
    across = torch.randint(-pixels, pixels + 1, (len(x), 1, 1), generator=generator)
    rows = torch.arange(height, device=x.device)[:, None] + down.to(x.device)
    columns = torch.arange(width, device=x.device)[None] + across.to(x.device)
    full = (len(x), height, width)
    return pick(x, rows.expand(full), columns.expand(full))


def flip(x: torch.Tensor, generator: Generator) -> torch.Tensor:
    """Mirrors each image left to right with a probability of one half."""
    coin = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(coin.to(x.device)[:, None, None, None], x.flip(3), x)


def cutout(
    x: torch.Tensor,
    generator: Generator,
    side: int,
    fill: Sequence[float] = (0.0,),
) -> torch.Tensor:
    """Sets a square around a random pixel to `fill`; parts outside the image are cut off.

    DeVries, Taylor, 2017.
    """
    height, width = x.shape[2:]
    rows = inside_square(height, len(x), side, generator).to(x.device)
    columns = inside_square(width, len(x), side, generator).to(x.device)
    box = rows[:, None, :, None] & columns[:, None, None, :]
    value = torch.tensor(fill, device=x.device).view(1, -1, 1, 1)
    return torch.where(box, like(x, value), x)


def inside_square(size: int, count: int, side: int, generator: Generator) -> torch.Tensor:
    """Draws which rows (or columns) of each image lie in its square: booleans [image, row]."""
    middle = torch.randint(size, (count, 1), generator=generator)
    place = torch.arange(size) - middle + side // 2
    return (place >= 0) & (place < side)


def uniform(x: torch.Tensor, generator: Generator, most: float) -> torch.Tensor:
    """Draws one amount per sample, between −most and +most."""
    return (2 * torch.rand(len(x), generator=generator) - 1) * most


def mean_of(facts: DataFacts, x: torch.Tensor) -> torch.Tensor:
    """Returns the data set's mean, one number per channel, to be broadcast over a batch."""
    return torch.tensor(facts.mean, device=x.device).view(1, -1, 1, 1)


OPERATIONS = {
    "crop": Operation(
        about="a random window of the image with a black border of PIXELS",
        example="crop:4",
        limits=(Limit("pixels", 0),),
        apply=lambda x, generator, facts, pixels: crop(x, generator, int(pixels)),
    ),
    "flip": Operation(
        about="half of the images are mirrored left to right",
        example="flip",
        limits=(),
        apply=lambda x, generator, facts: flip(x, generator),
    ),
    "cutout": Operation(
        about="a square of SIDE pixels becomes the data set's mean",
        example="cutout:16",
        limits=(Limit("pixels", 0),),
        apply=lambda x, generator, facts, side: cutout(x, generator, int(side), facts.mean),
        kinds=("image", "speech"),
    ),
    "rotate": Operation(
        about="rotated by up to DEGREES, either way",
        example="rotate:15",
        limits=(Limit("degrees", 0, 180, whole=False),),
        apply=lambda x, generator, facts, degrees: rotate(x, uniform(x, generator, degrees)),
    ),
    "hue": Operation(
        about="hues shifted by up to TURNS of the colour circle, either way",
        example="hue:0.1",
        limits=(Limit("turns", 0, 0.5, whole=False),),
        apply=lambda x, generator, facts, turns: shift_hue(x, uniform(x, generator, turns)),
        channels=(3,),
    ),
    "timeshift": Operation(
        about="a sound is moved up to FRAMES earlier or later",
        example="timeshift:5",
        limits=(Limit("frames", 0),),
        apply=lambda x, generator, facts, frames: shift_time(
            x, generator, int(frames), mean_of(facts, x)
        ),
        kinds=("speech",),
    ),
    "hiss": Operation(
        about="hiss whose standard deviation is SHARE of the sound's own",
        example="hiss:0.1",
        limits=(Limit("share", 0, 10, whole=False),),
        apply=lambda x, generator, facts, share: add_noise(x, generator, share),
        kinds=("speech",),
    ),
    "timemask": Operation(
        about="up to FRAMES consecutive frames of a sound become the data set's mean",
        example="timemask:8",
        limits=(Limit("frames", 0),),
        apply=lambda x, generator, facts, frames: mask(
            x, generator, int(frames), 3, mean_of(facts, x)
        ),
        kinds=("speech",),
    ),
    "bandmask": Operation(
        about="up to BANDS adjacent bands of a sound become the data set's mean",
        example="bandmask:6",
        limits=(Limit("bands", 0),),
        apply=lambda x, generator, facts, bands: mask(
            x, generator, int(bands), 2, mean_of(facts, x)
        ),
        kinds=("speech",),
    ),
    "randaugment": Operation(
        about="COUNT random operations of MAGNITUDE (at most 30)",
        example="randaugment:2:9",
        limits=(Limit("operations", 0, 14), Limit("magnitude", 0, MOST, whole=False)),
        apply=lambda x, generator, facts, count, magnitude: randaugment(
            x,
            generator,
            int(count),
            magnitude,
            facts.white,
        ),
        channels=(1, 3),
    ),
}


# Operations whose amount is a length in the sample.
SIZED = ("crop", "cutout", "timeshift", "timemask", "bandmask")


class Step(NamedTuple):
    """An operation and its amounts."""

    name: str
    amounts: tuple[float, ...]


@cache
def parse(text: str) -> tuple[Step, ...]:
    """Reads `name[:amount…][+…]`, in the order of application. `none` has no steps."""
    if text.strip() == "none":
        return ()
    return tuple(parse_step(text, part.strip()) for part in text.split("+"))


def parse_step(text: str, part: str) -> Step:
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
        problem = f"got {part!r}"
        if part != text:
            problem = f"{problem} in {text!r}"
        rule = f"`augment` {name} must have {needs}"
        raise FedloomError(rule, problem, f"try {OPERATIONS[name].example}")
    return Step(name, tuple(values))


def check(text: str, kind: str, shape: Sequence[int]) -> None:
    """Refuses operations that samples of this kind and shape cannot have."""
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
    """Applies the steps of an augmentation to a batch."""

    steps: tuple[Step, ...]
    facts: DataFacts = DataFacts()

    def __call__(self, x: torch.Tensor, generator: Generator) -> torch.Tensor:
        for name, amounts in self.steps:
            x = OPERATIONS[name].apply(x, generator, self.facts, *amounts)
        return x


def augmenter(text: str, kind: str, mean: Sequence[float], x: torch.Tensor) -> Augmenter:
    """Returns the augmenter for samples like `x`.

    `x` must be all samples that a client trains on: RandAugment tells their scale by them.
    """
    steps = parse(text)
    if steps:
        check(text, kind, x.shape[1:])
    if any(step.name == "randaugment" for step in steps):
        return Augmenter(steps, DataFacts(tuple(mean), white_of(x)))
    return Augmenter(steps, DataFacts(tuple(mean)))
