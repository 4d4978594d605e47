"""Transforms of a partition: how it changes samples besides dealing them out.

`+rotation:DEGREES` and `+hue:TURNS`: each client has one fixed amount for all its samples,
training, validation and test alike. The amounts are spread evenly from −value to +value in the
order of clients, so five clients of `iid+rotation:30` have −30, −15, 0, 15 and 30 degrees, as in
FedPNAS (§4). If both ends are the same place on the circle, only the first is used. A single client
has +value.

`+each:hue:-0.33/none/rotation:90`: the first client gets the first change of the list, and so on;
further clients start at the beginning of the list again. Amounts are exact and have a sign.

`+tint`: grey images get a colour (`tint.py`).

Changes are applied in the order of the text, when a client reads its samples: files and digests
stay as they are. The server's validation set is tinted, and not changed otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedloom.data.partitions.rule import (
    Change,
    Each,
    Rule,
    Tint,
    Transform,
    no_value,
    number,
    out_of_range,
    plain,
)
from fedloom.data.partitions.tint import SHARES, tint
from fedloom.data.source import Source
from fedloom.errors import FedloomError, unknown

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ChangeKind:
    """One kind of change, by its name in `CHANGES`."""

    about: str  # one line for `fedloom list partitions`
    apply: Callable[[torch.Tensor, float], torch.Tensor]
    unit: str
    default: float
    most: float  # half the circle: −most and +most are the same
    example: float  # an exact amount, for errors
    channels: tuple[int, ...]


def rotate(x: torch.Tensor, degrees: float) -> torch.Tensor:
    from fedloom.data.augmenting import geometry  # imported late: reading a rule needs no torch

    return geometry.rotate(x, degrees)


def shift_hue(x: torch.Tensor, turns: float) -> torch.Tensor:
    from fedloom.data.augmenting import colour  # imported late, as above

    return colour.shift_hue(x, turns)


CHANGES: Mapping[str, ChangeKind] = {
    "rotation": ChangeKind(
        about="each client's images are rotated by its own angle, within ±DEGREES (30)",
        apply=rotate,
        unit="degrees",
        default=30.0,
        most=180.0,
        example=90.0,
        channels=(1, 2, 3, 4),
    ),
    "hue": ChangeKind(
        about="each client's hues are shifted by its own amount, within ±TURNS (0.5)",
        apply=shift_hue,
        unit="turns",
        default=0.5,
        most=0.5,
        example=0.33,
        channels=(3,),
    ),
}


NONE = "none"  # in a list of changes: samples stay as they are
OTHER_CHANGES: Mapping[str, str] = {  # with a one-line description
    Each.name: "+each:CHANGE/CHANGE/…, one for each client in turn: hue:-0.33, none, rotation:90",
    Tint.name: "grey images get a colour, so that hue can be shifted",
}


def parse_change(text: str, part: str) -> Change | Each | Tint:
    name, colon, value = part.strip().partition(":")
    if name == Each.name:
        return parse_each(text, value)
    if name == Tint.name:
        no_value(part.strip(), value if colon else None)
        return Tint()
    if name not in CHANGES:
        raise unknown(f"a transform of `--partition {text}`", name, [*CHANGES, *OTHER_CHANGES])
    kind = CHANGES[name]
    if not colon:
        return Change(name, kind.default)
    allowed = f"{name} by more than 0 and at most {kind.most:g} {kind.unit}"
    example = f"{name}:{kind.default:g}"
    amount = number(text, value, allowed, example)
    if not 0 < amount <= kind.most:
        raise out_of_range(text, value, allowed, example)
    return Change(name, amount)


def parse_each(text: str, listed: str) -> Each:
    """Reads a list such as `hue:-0.33/none/rotation:90`."""
    where = f"`--partition {text}`"
    if not listed.strip():
        raise FedloomError(
            f"{where} must list a change for each client",
            "there is none",
            "try each:rotation:-90/none/rotation:90",
        )
    transforms = []
    for change in listed.split("/"):
        transforms.append(parse_transform(where, change))
    return Each(tuple(transforms))


def parse_transform(where: str, text: str) -> Transform | None:
    """Reads a change by an exact amount, with its sign. `none` gives None. Errors name `where`."""
    name, colon, value = text.strip().partition(":")
    if name not in (*CHANGES, NONE):
        raise unknown(f"a change in {where}", name, [*CHANGES, NONE])
    if name == NONE:
        if colon:
            rule = f"`{NONE}` in {where} must have no amount"
            raise FedloomError(rule, f"got {value!r}", f"try {NONE}")
        return None
    kind = CHANGES[name]
    rule = f"{name} in {where} must say by how many {kind.unit}, from "
    rule += f"{-kind.most:g} to {kind.most:g}"
    advice = f"try {name}:{kind.example:g}"
    if not value.strip():
        raise FedloomError(rule, "it has no amount", advice)
    try:
        amount = float(value)
    except ValueError:
        raise FedloomError(rule, f"got {value!r}, which is not a number", advice) from None
    if not -kind.most <= amount <= kind.most:
        raise FedloomError(rule, f"got {plain(amount)}", advice)
    return Transform(name, amount)


def check_changes(rule: Rule, source: Source) -> None:
    """Refuses transforms that these samples cannot have, in the order of the text."""
    if not rule.changes:
        return
    where = f"`--partition {rule}`"
    check_images(where, source, f"leave +{rule.changes[0].name} out")
    channels = int(source.x.shape[1])
    for change in rule.changes:
        if isinstance(change, Tint):
            check_grey(where, source, channels)
            channels = len(SHARES)
        elif isinstance(change, Each):
            for transform in change.transforms:
                if transform is not None:
                    check_channels(where, source, transform.name, channels)
        else:
            check_channels(where, source, change.name, channels)


def check_images(where: str, source: Source, advice: str) -> None:
    if source.kind != "image":
        rule = f"{where} must have images"
        raise FedloomError(rule, f"{source.name} is {source.kind}", advice)


def check_grey(where: str, source: Source, channels: int) -> None:
    if channels != 1:
        rule = f"{where} must have grey images for +tint"
        problem = f"those of {source.name} have {counted_channels(channels)}"
        raise FedloomError(rule, problem, "leave +tint out")


def check_transform(where: str, transform: Transform, source: Source, channels: int) -> None:
    """Refuses a transform for samples of a finished run, which have this many channels."""
    check_images(where, source, "adapt to samples that were changed beforehand: --data")
    advice = "take rotation, or a run with +tint in its --partition"
    check_channels(where, source, transform.name, channels, advice)


def check_channels(
    where: str,
    source: Source,
    name: str,
    channels: int,
    advice: str | None = None,
) -> None:
    """Refuses a change that images with this many channels cannot have: grey has no hue."""
    if channels in CHANGES[name].channels:
        return
    if advice is None:
        advice = f"leave {name} out"
        if channels == 1:
            advice = f"put +tint before it, or {advice}"
    raise FedloomError(
        f"{where} must have images in red, green and blue",
        f"those of {source.name} have {counted_channels(channels)}, which have no hue",
        advice,
    )


def counted_channels(channels: int) -> str:
    if channels == 1:
        return "1 channel"
    return f"{channels} channels"


def amount_of(change: Change, client: int, clients: int) -> float:
    """Returns by how much this client's samples are changed."""
    if clients == 1:
        return change.value
    steps = clients if change.value == CHANGES[change.name].most else clients - 1
    return change.value * (2 * client - steps) / steps


def transform_of(change: Change | Each, client: int, clients: int) -> Transform | None:
    """Returns what a change does to this client's samples. None: it does nothing."""
    if isinstance(change, Each):
        return change.transforms[client % len(change.transforms)]
    return Transform(change.name, amount_of(change, client, clients))


def transforms_of(rule: Rule, client: int, clients: int) -> tuple[Transform, ...]:
    """Returns this client's own transforms. The tint is not among them: all clients have it."""
    transforms = []
    for change in rule.changes:
        if isinstance(change, Tint):
            continue
        transform = transform_of(change, client, clients)
        if transform is not None:
            transforms.append(transform)
    return tuple(transforms)


def changed(x: torch.Tensor, rule: Rule, client: int, clients: int) -> torch.Tensor:
    """Applies all transforms of a partition to a client's samples."""
    for change in rule.changes:
        if isinstance(change, Tint):
            x = tint(x)
            continue
        transform = transform_of(change, client, clients)
        if transform is not None and transform.amount and len(x):
            x = CHANGES[transform.name].apply(x, transform.amount)
    return x
