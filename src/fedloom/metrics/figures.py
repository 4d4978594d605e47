"""The figures of a model on one client's samples, whatever the metric.

Clients send them and the server reads them through this type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedloom.types import Json

# The keys in JSON that are not the name of a figure.
OWN_NAMES = ("samples", "correct", "interval", "answers")


@dataclass(frozen=True)
class Figures:
    """The metric's figure and others beside it. In JSON they stand under their own names."""

    metric: str
    samples: int
    correct: int
    value: float | None  # the metric's figure; None: there are no samples
    interval: tuple[float, float] | None  # of the value, 95 %
    beside: Mapping[str, float | None]  # other figures, by their names
    answers: int | None = None  # how many different answers were given; None: unknown

    @classmethod
    def of_nothing(cls, metric: str, *beside: str, answers: int | None = None) -> Figures:
        """Returns the figures of no samples. `beside` are the names of the other figures."""
        return cls(metric, 0, 0, None, None, dict.fromkeys(beside), answers)

    def of(self, name: str) -> float | None:
        """Returns the metric's figure or one beside it, or None if there is none of this name."""
        if name == self.metric:
            return self.value
        return self.beside.get(name)

    def to_json(self) -> dict[str, Json]:
        interval = None
        if self.interval is not None:
            interval = list(self.interval)
        plain: dict[str, Json] = {
            "samples": self.samples,
            "correct": self.correct,
            self.metric: self.value,
            "interval": interval,
            **self.beside,
        }
        if self.answers is not None:
            plain["answers"] = self.answers
        return plain

    @classmethod
    def from_json(cls, raw: Mapping[str, Json], metric: str) -> Figures:
        """Reads figures of this metric. Admission has checked `raw` by their schema already."""
        interval = None
        if raw["interval"] is not None:
            low, high = raw["interval"]
            interval = (low, high)
        beside = {}
        for name, value in raw.items():
            if name != metric and name not in OWN_NAMES:
                beside[name] = value
        return cls(
            metric=metric,
            samples=raw["samples"],
            correct=raw["correct"],
            value=raw[metric],
            interval=interval,
            beside=beside,
            answers=raw.get("answers"),
        )
