"""How clients report their number of samples per label: exactly, with noise, or not at all.

Users write `exact`, `laplace:E` or `none`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

Mechanism = Literal["exact", "laplace", "none"]
EXACT: Mechanism = "exact"
LAPLACE: Mechanism = "laplace"
NONE: Mechanism = "none"
USUAL_HISTOGRAMS = "laplace:1.0"
LEAST_EPSILON = 1e-6  # noise of about a million samples: below it, counts say nothing
MOST_EPSILON = 100.0  # above it there is no noise at all, though the name promises some
RULE = f"exact, none, or laplace:E with an E from {LEAST_EPSILON:g} to {MOST_EPSILON:g}"


@dataclass(frozen=True)
class HistogramRule:
    """What a client reveals about its labels."""

    mechanism: Mechanism
    epsilon: float | None = None  # E of the discrete Laplace noise, P(k) ∝ e^(−E|k|)

    def __str__(self) -> str:
        if self.epsilon is None:
            return self.mechanism
        return f"{self.mechanism}:{self.epsilon!r}"

    @property
    def is_noisy(self) -> bool:
        return self.mechanism == LAPLACE

    @classmethod
    def parse(cls, text: str) -> HistogramRule:
        """Parse what a user wrote; a ValueError says what the text must look like."""
        if text == EXACT:
            return cls(EXACT)
        if text == NONE:
            return cls(NONE)
        name, _, value = text.partition(":")
        if name != LAPLACE:
            raise ValueError(RULE)
        return cls(LAPLACE, parse_epsilon(value))


def parse_epsilon(text: str) -> float:
    try:
        epsilon = float(text)
    except ValueError:
        raise ValueError(RULE) from None
    if not isfinite(epsilon) or not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
        raise ValueError(RULE)
    return epsilon


def checked_histograms(text: object) -> str:
    """Return the canonical spelling: `laplace:1` and `laplace:1.0` are the same noise."""
    if not isinstance(text, str):
        raise ValueError(RULE)
    return str(HistogramRule.parse(text))
