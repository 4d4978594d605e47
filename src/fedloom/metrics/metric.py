"""The metrics that runs are judged by: accuracy of classes, perplexity of text, error of numbers.

Everything that compares two figures, names one or prints one asks the `Metric`. To add a metric, it
is enough to add a value here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fedloom.metrics import classification, perplexity, regression
from fedloom.metrics.figures import Figures

SHARES = (0.0, 1.0)  # bounds of figures that are shown in percent


@dataclass(frozen=True)
class Metric:
    name: str  # its key wherever figures are written
    title: str  # in a sentence
    short: str  # in the head of a narrow column
    lower_is_better: bool
    bounds: tuple[float, float]  # of an honest figure
    scale: float  # what a person reads is scale × figure …
    digits: int | None  # … with so many decimals below 10; None: four significant digits …
    unit: str  # … followed by this
    beside: tuple[str, ...]  # names of a client's further figures
    columns: tuple[str, ...]  # those of them that tables show
    counts_answers: bool  # whether figures say how many different answers were given
    bounds_beside: tuple[float, float]  # of the figures beside it
    # It takes scores, true labels and the number of classes.
    measure: Callable[[NDArray[Any], NDArray[Any], int], Figures]
    pooled: Callable[[Sequence[Figures]], float | None]  # over all samples of several clients

    def better(self, one: float, other: float) -> bool:
        if self.lower_is_better:
            return one < other
        return one > other

    def text(self, value: float | None, sign: str = "") -> str:
        """Returns a figure as people read it, without the unit. `sign` is "+" for differences."""
        if value is None:
            return "–"
        shown = self.scale * value
        if self.digits is None:
            return with_four_digits(shown, sign)
        if abs(shown) < 10:
            return f"{shown:{sign}.{self.digits}f}"
        if abs(shown) < 1e6:
            return f"{shown:{sign}.1f}"
        return f"{shown:{sign}.1e}"

    @property
    def heading(self) -> str:
        """The title as it stands at the beginning of a sentence."""
        return self.title[0].upper() + self.title[1:]

    @property
    def difference_title(self) -> str:
        """The title of a difference of two figures: that of two percentages is in points."""
        if self.unit == " %":
            return f"{self.title}, points"
        return f"{self.title}{self.unit}"

    @property
    def unit_beside(self) -> str:
        """The unit of the figures beside it: percent for shares, else the metric's own."""
        if self.bounds_beside == SHARES:
            return " %"
        return self.unit

    def text_beside(self, value: float | None, sign: str = "") -> str:
        """Returns a figure beside the metric's as people read it, without the unit."""
        if self.bounds_beside != SHARES:
            return self.text(value, sign)
        if value is None:
            return "–"
        return f"{100 * value:{sign}.1f}"


def with_four_digits(value: float, sign: str) -> str:
    """Returns a number of any size, for a label may be in euros or in nanograms."""
    if 1000 <= abs(value) < 1e6:
        return f"{value:{sign}.0f}"
    return f"{value:{sign}.4g}"


ACCURACY = Metric(
    name=classification.NAME,
    title="accuracy",
    short="acc.",
    lower_is_better=False,
    bounds=(0.0, 1.0),
    scale=100.0,
    digits=1,
    unit=" %",
    beside=("f1", "balanced_accuracy", "auc"),
    columns=("balanced_accuracy", "auc"),
    counts_answers=True,
    bounds_beside=SHARES,
    measure=classification.classify,
    pooled=classification.share_correct,
)
PERPLEXITY = Metric(
    name=perplexity.NAME,
    title="perplexity",
    short="ppl.",
    lower_is_better=True,
    bounds=(1.0, perplexity.WORST),
    scale=1.0,
    digits=2,
    unit="",
    beside=("accuracy",),
    columns=("accuracy",),
    counts_answers=False,
    bounds_beside=SHARES,
    measure=perplexity.measure_perplexity,
    pooled=perplexity.pooled,
)
RMSE = Metric(
    name=regression.NAME,
    title="RMSE",
    short="RMSE",
    lower_is_better=True,
    bounds=(0.0, regression.WORST),
    scale=1.0,
    digits=None,
    unit="",
    beside=(regression.MAE,),
    columns=(regression.MAE,),
    counts_answers=False,
    bounds_beside=(0.0, regression.WORST),
    measure=regression.measure_errors,
    pooled=regression.pooled,
)
METRICS = {metric.name: metric for metric in (ACCURACY, PERPLEXITY, RMSE)}
KINDS = {"text": PERPLEXITY, "regression": RMSE}  # by the kind of data; all others: ACCURACY


def metric_of(kind: str) -> Metric:
    """Returns the metric that a task of this kind is judged by."""
    return KINDS.get(kind, ACCURACY)
