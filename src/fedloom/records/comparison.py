"""The types by which a comparison's result.json is written and read.

It has the comparison's runs, and a row of figures for each method. As in a run's file, the field
that is `figure` here has the name of the metric in the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Self

from fedloom.metrics.metric import METRICS, Metric
from fedloom.reading import Unreadable, bounded, read_json
from fedloom.records.cautions import Cautions
from fedloom.records.record import (
    LARGEST_COUNT,
    Count,
    Figure,
    PositiveCount,
    Record,
    Seconds,
    metric_in,
    object_in,
    plain_of,
    renamed,
)
from fedloom.types import Json

SIGNIFICANT = 0.05  # a difference with an adjusted p below this is beyond chance
ROUNDING = 1e-9  # an interval narrower than this, relative to its ends, has no width


class OverSeeds(Record):
    """A figure over the runs of a method."""

    mean: Figure | None
    std: Figure | None  # ddof 1, because seeds are a sample; None: there is one run only


class Holm(Record):
    """The verdict on a difference, adjusted for all differences to the first method.

    The adjustment is Holm's step-down procedure.
    """

    p: Figure
    significant: bool  # p is below SIGNIFICANT


class Difference(Record):
    """The difference to the first method, paired by seed, with a 95 % interval."""

    mean: Figure
    low: Figure | None  # None: one seed, or equal differences, have no interval
    high: Figure | None
    better: bool | None = None  # None: the interval includes 0, or there is none
    p: Figure | None = None  # two-sided, by Student's t
    holm: Holm | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the interval.

        None: there is none, or it has no width, as in files of earlier versions.
        """
        if self.low is None or self.high is None:
            return None
        if self.high - self.low <= ROUNDING * max(abs(self.low), abs(self.high)):
            return None
        return self.low, self.high

    @property
    def is_improvement(self) -> bool | None:
        """Whether the difference is an improvement; None: the interval includes 0 or is missing."""
        if self.interval is None:
            return None
        return self.better


class TierRow(Record):
    """The networks of one tier of devices, over the seeds of one method."""

    tier: PositiveCount  # counted from the tier of the smallest devices
    own: OverSeeds  # mean over the tier's own clients
    balanced_accuracy: OverSeeds | None = None  # likewise; None: unknown, or the data is text
    auc: OverSeeds | None = None  # likewise, where there are two classes
    worst: OverSeeds  # of its own clients
    pooled: OverSeeds  # over the test samples of all clients of all tiers
    supernet: OverSeeds  # the same before tuning
    # For `pooled` (`global_…`) and `supernet`, the means over all clients; None: unknown, or the
    # data is text. AUC is given where there are two classes.
    global_balanced_accuracy: OverSeeds | None = None
    global_auc: OverSeeds | None = None
    supernet_balanced_accuracy: OverSeeds | None = None
    supernet_auc: OverSeeds | None = None
    difference: Difference | None = None  # of `pooled` to the same tier of the first method
    params: Figure
    macs: Figure  # of one sample


class StageRow(Record):
    """The figures at the end of an earlier stage of a method, over its seeds.

    For a search they are the figures of its supernet.
    """

    stage: str
    part: str  # the part of the clients' data that its last round was evaluated on
    figure: OverSeeds  # of the metric; mean over clients, each with the model it would use then
    balanced_accuracy: OverSeeds | None = None  # likewise; None: unknown, or the data is text
    auc: OverSeeds | None = None  # likewise, where there are two classes


class Target(Record):
    """What was spent until the validation figure reached the target.

    The initial descriptions of the clients are not charged.
    """

    seconds: Seconds  # simulated
    wan: Figure  # bytes
    bytes: Figure  # of all links
    macs: Figure
    rounds: Figure


class MethodRow(Record):
    """One method over its seeds. Costs are means over its runs."""

    method: str
    name: str  # how tables and figures call it
    runs: Count
    tuned: dict[str, Json] | None  # options that were chosen by a grid search
    metric: str
    lower_is_better: bool
    figure: OverSeeds  # of the metric, mean over clients
    difference: Difference | None
    pooled: OverSeeds
    worst: OverSeeds  # of each run's worst client
    shared: OverSeeds  # of the shared model, pooled
    balanced_accuracy: OverSeeds | None = None  # mean over clients; None: unknown, or text
    auc: OverSeeds | None = None  # likewise, where there are two classes
    mae: OverSeeds | None = None  # likewise, where labels are numbers
    pooled_balanced_accuracy: OverSeeds | None = None  # over all test samples; None: as above
    shared_balanced_accuracy: OverSeeds | None = None  # of the shared model, mean over clients
    shared_auc: OverSeeds | None = None
    # The figure of always answering each client's most common class.
    most_common_class: OverSeeds | None = None
    cautions: Cautions | None = None  # over all runs
    # What personal models gain over the shared one; None: unknown, or there are none.
    personal_gain: OverSeeds | None = None
    params: Figure | None
    rounds: Figure
    macs: Figure | None
    bytes: Figure
    seconds: Seconds
    memory: Count | None = None  # the peak of any client
    # Test samples that the weights of `--init` were trained on: the largest number of any run.
    seen: Count | None = None
    tiers: list[TierRow] = []  # for methods that support tiers of devices
    stages: list[StageRow] = []  # the stages before the last one, where they were evaluated
    # For a comparison with a target; None: at least one of the runs did not reach it.
    target: Target | None = None
    target_reached: Count | None = None  # how many runs reached it

    @property
    def judged_by(self) -> Metric:
        return METRICS[self.metric]

    def to_json(self) -> dict[str, Json]:
        """This row as the file has it."""
        names = {"figure": self.metric, "shared": "global"}
        return {
            names.get(name, name): plain_of(value) for name, value in self.given_fields().items()
        }

    @classmethod
    def from_json(cls, raw: Json, place: str = "") -> MethodRow:
        """Read a row of the file. Raises Unreadable; `place` is the row's place in the file."""
        metric = metric_in(object_in(raw, f"`{place}`"), f"{place}.")
        fields = renamed({metric.name: "figure", "global": "shared"}, raw)
        return cls.checked(fields, {"figure": metric.name, "shared": "global"}, place)


class ComparisonResult(Record):
    runs: list[str]  # their folders: all seeds of the first method, then those of the next
    methods: list[MethodRow]

    @classmethod
    def from_json(cls, raw: Json) -> Self:
        """Read the content of the file. Raises Unreadable, with the first place that is wrong."""
        bounded(object_in(raw, "it"), LARGEST_COUNT)
        fields = dict(raw)
        if isinstance(raw.get("methods"), list):
            rows = []
            for number, row in enumerate(raw["methods"]):
                rows.append(MethodRow.from_json(row, f"methods.{number}"))
            fields["methods"] = rows
        result = cls.checked(fields, {})
        if sum(row.runs for row in result.methods) != len(result.runs):
            raise Unreadable("`methods` count other runs than `runs` names")
        if len({row.metric for row in result.methods}) > 1:
            raise Unreadable("`methods` are judged by several metrics")
        return result

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file. Raises Unreadable."""
        return cls.from_json(read_json(path))

    def folders_of(self, comparison: Path) -> dict[str, list[Path]]:
        """The folders of each method's runs, by its name, even if the comparison was moved."""
        folders = {}
        runs = iter(self.runs)
        for row in self.methods:
            folders[row.name] = [comparison / Path(run).name for run in islice(runs, row.runs)]
        return folders


def folder_labels(methods: Sequence[str]) -> dict[str, str]:
    """Folder names for variants.

    A number is added to those that are equal without their path.
    """
    names = [folder_name(method) for method in methods]
    labels = {}
    for number, method in enumerate(methods, start=1):
        label = folder_name(method)
        if names.count(label) > 1:
            label = f"{label}-{number}"
        labels[method] = label
    return labels


def folder_name(method: str) -> str:
    """The name without the path of a file, and without characters that file systems may refuse."""
    name = re.sub(r"^.*\.py:", "", method)
    return re.sub(r"[^\w.=,-]+", "_", name)
