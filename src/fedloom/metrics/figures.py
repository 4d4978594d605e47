"""What a model is worth to one client, by whichever metric.

A client sends these figures and a server reads them through this type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedloom.types import Json

OWN_NAMES = ("samples", "correct", "interval", "answers")  # in JSON, beside figures by their names


@dataclass(frozen=True)
class Figures:
    """In JSON the metric's figure, and those beside it, stand under their own names."""

    metric: str
    samples: int
    correct: int
    value: float | None  # of the metric; None: there are no samples
    interval: tuple[float, float] | None  # of the value, 95 %
    beside: Mapping[str, float | None]  # other figures, by their names
    answers: int | None = None  # how many different ones were given; None: not told

    @classmethod
    def of_nothing(cls, metric: str, *beside: str, answers: int | None = None) -> Figures:
        """Those of no samples; `beside` are the names of the other figures."""
        return cls(metric, 0, 0, None, None, dict.fromkeys(beside), answers)

    def of(self, name: str) -> float | None:
        """The metric's figure, or one beside it; None where there is none of this name."""
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
        """Of what is known to be figures by this metric: admission has a schema for them."""
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
