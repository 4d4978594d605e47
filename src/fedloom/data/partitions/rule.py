"""What a partition is asked, and the values that its text may have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedloom.data.source import Source
from fedloom.errors import FedloomError


@dataclass(frozen=True)
class Change:
    """A parsed transform: what is done to every sample of a client, and how far it goes at most."""

    name: str
    value: float

    def __str__(self) -> str:
        return f"{self.name}:{plain(self.value)}"


@dataclass(frozen=True)
class Rule:
    """A parsed `--partition`; `str` gives its one canonical spelling."""

    name: str
    value: float | None = None
    changes: tuple[Change, ...] = ()

    def __str__(self) -> str:
        first = self.name if self.value is None else f"{self.name}:{plain(self.value)}"
        return "+".join([first, *map(str, self.changes)])


@dataclass(frozen=True)
class Ask:
    """What a partition decides from."""

    rule: Rule
    source: Source
    indices: np.ndarray  # sorted: the samples to deal out
    clients: int | None
    seed: int
    min_samples: int

    @property
    def must(self) -> str:
        each = f"each of {self.clients} clients at least {max(1, self.min_samples)} samples"
        return f"`--partition {self.rule}` must give {each}"

    @property
    def y(self) -> np.ndarray:
        """The labels of the samples to deal out."""
        labels: np.ndarray = self.source.y[self.indices]
        return labels


def plain(value: float) -> str:
    return str(value).removesuffix(".0")


def client_count(ask: Ask) -> int:
    """The number of clients, if there are samples enough for so many."""
    clients, samples = ask.clients, len(ask.indices)
    if clients is None or clients < 1:
        must = f"`--partition {ask.rule}` must have at least 1 client"
        raise FedloomError(must, f"got {clients}", "give --clients")
    least = max(1, ask.min_samples)
    if clients * least > samples:
        most = samples // least
        lower = f"lower min_samples to {samples} or less" if samples >= 4 else "add samples"  # 4 is its least
        todo = f"try {counted(most)} or fewer" if most else lower
        raise FedloomError(ask.must, f"there are {samples} samples", todo)
    return clients


def counted(clients: int) -> str:
    return f"{clients} client{'s' * (clients != 1)}"


def no_value(text: str, value: str | None) -> None:
    if value is not None:
        must = f"`--partition {text}` must have no value"
        raise FedloomError(must, f"got {value!r}", f"try {text.partition(':')[0].strip()}")


def number(text: str, value: str | None, what: str, example: str) -> float:
    try:
        return float(value or "")
    except ValueError:
        found = f"got {value!r}, which is no number" if value else "has none"
        raise FedloomError(f"`--partition {text}` must have {what}", found, f"try {example}") from None


def concentration(text: str, value: str | None) -> float:
    name = text.strip().partition(":")[0]
    alpha = number(text, value, "a concentration above 0", f"{name}:0.5")
    if not (alpha > 0 and math.isfinite(alpha)):
        todo = "try iid" if alpha == math.inf else f"try {name}:0.5"
        raise FedloomError(f"`--partition {text}` must have a concentration above 0 and finite", f"got {value}", todo)
    return alpha


def class_count(text: str, value: str | None) -> float:
    what, example = "a whole number of classes a client, 1 or more", "label-skew:2"
    classes = number(text, value, what, example)
    if not (1 <= classes < 1e9 and classes == int(classes)):
        raise FedloomError(f"`--partition {text}` must have {what}", f"got {value}", f"try {example}")
    return classes


def dominant_share(text: str, value: str | None) -> float:
    what, example = "a share above 0 and at most 1, of each client's samples that have one class", "dominant:0.6"
    share = number(text, value, what, example)
    if not 0 < share <= 1:
        raise FedloomError(f"`--partition {text}` must have {what}", f"got {value}", f"try {example}")
    return share


def missing_share(text: str, value: str | None) -> float:
    what, example = "a share from 0 to below 1, of the classes that each client lacks", "missing:0.3"
    share = number(text, value, what, example)
    if not 0 <= share < 1:
        raise FedloomError(f"`--partition {text}` must have {what}", f"got {value}", f"try {example}")
    return share
