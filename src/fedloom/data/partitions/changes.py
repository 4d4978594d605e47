"""What a partition does to the samples beside dealing them out: `+rotation:DEGREES`, `+hue:TURNS`.

Every client has one fixed amount for all its samples, train, validation and test alike. The amounts
are spread evenly from −value to +value in the order of clients, so five clients of
`iid+rotation:30` have −30, −15, 0, 15 and 30 degrees, as in FedPNAS (§4). Where both ends are the
same place on the circle, only the first is used; one client alone has +value. Samples are changed
when a client reads them: files, digests and the server's own set stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedloom.data.partitions.rule import Change, Rule, number, out_of_range
from fedloom.data.source import Source
from fedloom.errors import FedloomError, unknown

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ChangeKind:
    about: str  # one line for `fedloom list partitions`
    apply: Callable[[torch.Tensor, float], torch.Tensor]
    unit: str
    default: float
    most: float  # half the circle: −most and +most are the same
    channels: tuple[int, ...]


def rotate(x: torch.Tensor, degrees: float) -> torch.Tensor:
    from fedloom.data.augmenting import geometry  # late: who only reads a rule needs no torch

    return geometry.rotate(x, degrees)


def shift_hue(x: torch.Tensor, turns: float) -> torch.Tensor:
    from fedloom.data.augmenting import colour  # late, as above

    return colour.shift_hue(x, turns)


CHANGES: Mapping[str, ChangeKind] = {
    "rotation": ChangeKind(
        about="each client's images turned by its own angle, within ±DEGREES (30)",
        apply=rotate,
        unit="degrees",
        default=30.0,
        most=180.0,
        channels=(1, 2, 3, 4),
    ),
    "hue": ChangeKind(
        about="each client's colours moved round the circle, within ±TURNS (0.5)",
        apply=shift_hue,
        unit="turns",
        default=0.5,
        most=0.5,
        channels=(3,),
    ),
}


def parse_change(text: str, part: str) -> Change:
    name, colon, value = part.strip().partition(":")
    if name not in CHANGES:
        raise unknown(f"a transform of `--partition {text}`", name, CHANGES)
    kind = CHANGES[name]
    if not colon:
        return Change(name, kind.default)
    what = f"{name} by more than 0 and at most {kind.most:g} {kind.unit}"
    example = f"{name}:{kind.default:g}"
    amount = number(text, value, what, example)
    if not 0 < amount <= kind.most:
        raise out_of_range(text, value, what, example)
    return Change(name, amount)


def check_changes(rule: Rule, source: Source) -> None:
    """Whether these transforms make sense for such samples."""
    for change in rule.changes:
        advice = f"leave +{change.name} out"
        if source.kind != "image":
            images = f"`--partition {rule}` must have images"
            raise FedloomError(images, f"{source.name} is {source.kind}", advice)
        channels = source.x.shape[1]
        if channels not in CHANGES[change.name].channels:
            count = "1 channel" if channels == 1 else f"{channels} channels"
            raise FedloomError(
                f"`--partition {rule}` must have images in red, green and blue",
                f"those of {source.name} have {count}, which have no hue",
                advice,
            )


def amount_of(change: Change, client: int, clients: int) -> float:
    """How far this client's samples are changed."""
    if clients == 1:
        return change.value
    steps = clients if change.value == CHANGES[change.name].most else clients - 1
    return change.value * (2 * client - steps) / steps


def changed(x: torch.Tensor, rule: Rule, client: int, clients: int) -> torch.Tensor:
    """A client's samples as it sees them."""
    for change in rule.changes:
        amount = amount_of(change, client, clients)
        if amount and len(x):
            x = CHANGES[change.name].apply(x, amount)
    return x
