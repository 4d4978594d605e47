"""What a run is judged by: accuracy for images and speech, perplexity for text.

Everything that compares two figures, names one or prints one asks the `Metric`, so a further one is
a value here and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fedloom.metrics import classification, perplexity
from fedloom.metrics.figures import Figures


@dataclass(frozen=True)
class Metric:
    name: str  # its key wherever figures are written
    short: str  # in the head of a narrow column
    lower_is_better: bool
    bounds: tuple[float, float]  # of an honest figure
    scale: float  # what a person reads is scale × figure …
    digits: int  # … with so many decimals below 10 …
    unit: str  # … and this behind it
    beside: tuple[str, ...]  # further figures of a client, each between 0 and 1
    columns: tuple[str, ...]  # those of them that tables show
    counts_answers: bool  # whether figures say how many different answers were given
    # Scores, truth and the number of classes → figures.
    measure: Callable[[NDArray[Any], NDArray[Any], int], Figures]
    pooled: Callable[[Sequence[Figures]], float | None]  # over all samples of several clients

    def better(self, one: float, other: float) -> bool:
        if self.lower_is_better:
            return one < other
        return one > other

    def text(self, value: float | None, sign: str = "") -> str:
        """As a person reads it, without the unit; `sign` "+" shows a difference."""
        if value is None:
            return "–"
        shown = self.scale * value
        if abs(shown) < 10:
            return f"{shown:{sign}.{self.digits}f}"
        if abs(shown) < 1e6:
            return f"{shown:{sign}.1f}"
        return f"{shown:{sign}.1e}"


ACCURACY = Metric(
    name=classification.NAME,
    short="acc.",
    lower_is_better=False,
    bounds=(0.0, 1.0),
    scale=100.0,
    digits=1,
    unit=" %",
    beside=("f1", "balanced_accuracy", "auc"),
    columns=("balanced_accuracy", "auc"),
    counts_answers=True,
    measure=classification.classify,
    pooled=classification.share_correct,
)
PERPLEXITY = Metric(
    name=perplexity.NAME,
    short="ppl.",
    lower_is_better=True,
    bounds=(1.0, perplexity.WORST),
    scale=1.0,
    digits=2,
    unit="",
    beside=("accuracy",),
    columns=("accuracy",),
    counts_answers=False,
    measure=perplexity.foretell,
    pooled=perplexity.pooled,
)
METRICS = {metric.name: metric for metric in (ACCURACY, PERPLEXITY)}
KINDS = {"text": PERPLEXITY}  # of data; any other is classified


def metric_of(kind: str) -> Metric:
    """What a task of this kind is judged by."""
    return KINDS.get(kind, ACCURACY)
