"""result.json of a comparison: its runs, and a row of figures for each method.

It is written and read through these types.

As in a run's file, figures stand there by the name of their metric, and are `figure` here.
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

SIGNIFICANT = 0.05  # an adjusted p below it: beyond chance
ROUNDING = 1e-9  # an interval that is narrower beside its ends has no width


class OverSeeds(Record):
    """A figure over the runs of a method."""

    mean: Figure | None
    std: Figure | None  # ddof 1: seeds are a sample; None: there is one


class Holm(Record):
    """The verdict on a difference beside all others to the first method: Holm's step-down."""

    p: Figure
    significant: bool  # p is below SIGNIFICANT


class Difference(Record):
    """To the first method, paired by seed, with a 95 % interval."""

    mean: Figure
    low: Figure | None  # None: one seed, or equal differences, have no interval
    high: Figure | None
    better: bool | None = None  # None: the interval holds 0, or there is none
    p: Figure | None = None  # two-sided, of Student's t
    holm: Holm | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """None: it cannot be told, nor can that of older files without width."""
        if self.low is None or self.high is None:
            return None
        if self.high - self.low <= ROUNDING * max(abs(self.low), abs(self.high)):
            return None
        return self.low, self.high

    @property
    def is_improvement(self) -> bool | None:
        """None: the interval holds 0, or it cannot be told."""
        if self.interval is None:
            return None
        return self.better


class TierRow(Record):
    """The networks of one tier of devices, over the seeds of one method."""

    tier: PositiveCount  # from the smallest devices on
    own: OverSeeds  # mean over the tier's own clients
    balanced_accuracy: OverSeeds | None = None  # the same; None: not known, or of text
    auc: OverSeeds | None = None  # the same, where there are two classes
    worst: OverSeeds  # of its own clients
    pooled: OverSeeds  # over the test samples of all clients, whatever their tier is
    supernet: OverSeeds  # the same before tuning
    # Of both, means over all clients; None: not known, or of text. AUC where there are two classes.
    global_balanced_accuracy: OverSeeds | None = None
    global_auc: OverSeeds | None = None
    supernet_balanced_accuracy: OverSeeds | None = None
    supernet_auc: OverSeeds | None = None
    difference: Difference | None = None  # of `pooled`, to the same tier of the first method
    params: Figure
    macs: Figure  # of one sample


class StageRow(Record):
    """What an earlier stage of a method ended with, over its seeds: of a search, its supernet."""

    stage: str
    part: str  # of the clients' data that its last round was evaluated on
    figure: OverSeeds  # of the metric, mean over clients, each with the model it would use then
    balanced_accuracy: OverSeeds | None = None  # the same; None: not known, or of text
    auc: OverSeeds | None = None  # the same, where there are two classes


class Target(Record):
    """What was spent until the validation figure reached the target; describing is not charged."""

    seconds: Seconds  # simulated
    wan: Figure  # bytes
    bytes: Figure  # of all links
    macs: Figure
    rounds: Figure


class MethodRow(Record):
    """One method over its seeds. Costs are means over its runs."""

    method: str
    name: str  # what to call it
    runs: Count
    tuned: dict[str, Json] | None  # options that a grid chose
    metric: str
    lower_is_better: bool
    figure: OverSeeds  # of the metric, mean over clients
    difference: Difference | None
    pooled: OverSeeds
    worst: OverSeeds  # of each run's worst client
    shared: OverSeeds  # of the shared model alone, pooled
    balanced_accuracy: OverSeeds | None = None  # mean over clients; None: not known, or of text
    auc: OverSeeds | None = None  # the same, where there are two classes
    mae: OverSeeds | None = None  # the same, where labels are numbers
    pooled_balanced_accuracy: OverSeeds | None = None  # over all test samples; None: as above
    shared_balanced_accuracy: OverSeeds | None = None  # of the shared model, mean over clients
    shared_auc: OverSeeds | None = None
    # what answering each client's most common class would give
    most_common_class: OverSeeds | None = None
    cautions: Cautions | None = None  # over all runs
    # what personal models are worth against the shared one; None: there are none, or not known
    personal_gain: OverSeeds | None = None
    params: Figure | None
    rounds: Figure
    macs: Figure | None
    bytes: Figure
    seconds: Seconds
    memory: Count | None = None  # at most, of a client
    seen: Count | None = None  # the most test samples that `--init` had trained on, of its runs
    tiers: list[TierRow] = []  # of a method that knows tiers of devices
    stages: list[StageRow] = []  # before the last one, those that were evaluated
    # Of a comparison with a target; None: one of its runs did not reach it.
    target: Target | None = None
    target_reached: Count | None = None  # by how many runs

    @property
    def judged_by(self) -> Metric:
        return METRICS[self.metric]

    def to_json(self) -> dict[str, Json]:
        """As the file has it."""
        names = {"figure": self.metric, "shared": "global"}
        return {names.get(name, name): plain_of(value) for name, value in self.given().items()}

    @classmethod
    def from_json(cls, raw: Json, place: str = "") -> MethodRow:
        """Raises Unreadable; `place`: where in the file it stands."""
        metric = metric_in(object_in(raw, f"`{place}`"), f"{place}.")
        fields = renamed({metric.name: "figure", "global": "shared"}, raw)
        return cls.checked(fields, {"figure": metric.name, "shared": "global"}, place)


class ComparisonResult(Record):
    runs: list[str]  # their folders: all seeds of the first method, then of the next
    methods: list[MethodRow]

    @classmethod
    def from_json(cls, raw: Json) -> Self:
        """Raises Unreadable, with the first place that is wrong."""
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
        """Raises Unreadable."""
        return cls.from_json(read_json(path))

    def folders_of(self, comparison: Path) -> dict[str, list[Path]]:
        """Where each method's runs are, by its name: the comparison may have been moved since."""
        folders = {}
        runs = iter(self.runs)
        for row in self.methods:
            folders[row.name] = [comparison / Path(run).name for run in islice(runs, row.runs)]
        return folders


def folder_labels(methods: Sequence[str]) -> dict[str, str]:
    """Variants' names as folders' names.

    A number tells apart those that look alike without their path.
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
    """Without the path of a file, and without signs that a file system may not like."""
    name = re.sub(r"^.*\.py:", "", method)
    return re.sub(r"[^\w.=,-]+", "_", name)
