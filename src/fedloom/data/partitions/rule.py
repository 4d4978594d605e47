"""A parsed `--partition`, what a partition decides from, and the values that its text may have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedloom.data.source import Source
from fedloom.errors import FedloomError

LEAST_MIN_SAMPLES = 4  # the lowest --min-samples that is accepted


@dataclass(frozen=True)
class Transform:
    """A change of every sample of one client by an exact amount: `rotation:-90`."""

    name: str
    amount: float

    def __str__(self) -> str:
        return f"{self.name}:{plain(self.amount)}"


@dataclass(frozen=True)
class Change:
    """A transform whose amounts are spread over the clients, from −value to +value."""

    name: str
    value: float

    def __str__(self) -> str:
        return f"{self.name}:{plain(self.value)}"


@dataclass(frozen=True)
class Each:
    """One transform for each client in turn. None: the client's samples stay as they are."""

    transforms: tuple[Transform | None, ...]
    name = "each"

    def __str__(self) -> str:
        texts = []
        for transform in self.transforms:
            texts.append("none" if transform is None else str(transform))
        return f"{self.name}:{'/'.join(texts)}"


@dataclass(frozen=True)
class Tint:
    """Gives the grey images of all clients the same colour, in red, green and blue."""

    name = "tint"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Rule:
    """A parsed `--partition`; `str` gives its one canonical spelling."""

    name: str
    value: float | None = None
    changes: tuple[Change | Each | Tint, ...] = ()

    def __str__(self) -> str:
        first = self.name
        if self.value is not None:
            first = f"{self.name}:{plain(self.value)}"
        return "+".join([first, *map(str, self.changes)])

    @property
    def has_tint(self) -> bool:
        return any(isinstance(change, Tint) for change in self.changes)


class Assignment(NamedTuple):
    """Which client each sample goes to."""

    owner: np.ndarray  # [n], the client of each sample
    clients: int


@dataclass(frozen=True)
class PartitionRequest:
    """A request to a partition: all that it decides from."""

    rule: Rule
    source: Source
    indices: np.ndarray  # the samples to deal out, sorted
    clients: int | None
    seed: int
    min_samples: int

    @property
    def requirement(self) -> str:
        """The rule that errors about too few samples begin with."""
        share = f"each of {self.clients} clients at least {max(1, self.min_samples)} samples"
        return f"`--partition {self.rule}` must give {share}"

    @property
    def y(self) -> np.ndarray:
        """The labels of the samples to deal out."""
        labels: np.ndarray = self.source.y[self.indices]
        return labels


def plain(value: float) -> str:
    """Writes 2.0 as `2`, and other numbers as they are."""
    return str(value).removesuffix(".0")


def client_count(request: PartitionRequest) -> int:
    """Returns the number of clients. Refuses it if there are too few samples."""
    clients = request.clients
    if clients is None or clients < 1:
        rule = f"`--partition {request.rule}` must have at least 1 client"
        raise FedloomError(rule, f"got {clients}", "give --clients")
    samples = len(request.indices)
    if clients * max(1, request.min_samples) > samples:
        problem = f"there are {samples} samples"
        raise FedloomError(request.requirement, problem, how_to_fit(request, samples))
    return clients


def how_to_fit(request: PartitionRequest, samples: int) -> str:
    most = samples // max(1, request.min_samples)
    if most:
        return f"try {counted(most)} or fewer"
    if samples >= LEAST_MIN_SAMPLES:
        return f"lower min_samples to {samples} or less"
    return "add samples"


def counted(clients: int) -> str:
    if clients == 1:
        return "1 client"
    return f"{clients} clients"


# Values


def no_value(text: str, value: str | None) -> None:
    if value is not None:
        rule = f"`--partition {text}` must have no value"
        raise FedloomError(rule, f"got {value!r}", f"try {text.partition(':')[0].strip()}")


def number(text: str, value: str | None, allowed: str, example: str) -> float:
    try:
        return float(value or "")
    except ValueError:
        rule = f"`--partition {text}` must have {allowed}"
        problem = f"got {value!r}, which is not a number" if value else "it has no value"
        raise FedloomError(rule, problem, f"try {example}") from None


def out_of_range(text: str, value: str | None, allowed: str, example: str) -> FedloomError:
    rule = f"`--partition {text}` must have {allowed}"
    return FedloomError(rule, f"got {value}", f"try {example}")


def concentration(text: str, value: str | None) -> float:
    name = text.strip().partition(":")[0]
    alpha = number(text, value, "a concentration above 0", f"{name}:0.5")
    if not (alpha > 0 and math.isfinite(alpha)):
        example = "iid" if alpha == math.inf else f"{name}:0.5"
        raise out_of_range(text, value, "a concentration above 0 and finite", example)
    return alpha


def class_count(text: str, value: str | None) -> float:
    allowed = "a whole number of classes per client, 1 or more"
    classes = number(text, value, allowed, "label-skew:2")
    if not (1 <= classes < 1e9 and classes == int(classes)):
        raise out_of_range(text, value, allowed, "label-skew:2")
    return classes


def dominant_share(text: str, value: str | None) -> float:
    allowed = "a share above 0 and at most 1: how many of a client's samples have one class"
    share = number(text, value, allowed, "dominant:0.6")
    if not 0 < share <= 1:
        raise out_of_range(text, value, allowed, "dominant:0.6")
    return share


def missing_share(text: str, value: str | None) -> float:
    allowed = "a share from 0 to below 1: how many of the classes each client lacks"
    share = number(text, value, allowed, "missing:0.3")
    if not 0 <= share < 1:
        raise out_of_range(text, value, allowed, "missing:0.3")
    return share
