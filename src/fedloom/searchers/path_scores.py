"""Scores paths through one supernet on one set of samples.

Paths with a common beginning share its layers: for every batch, the paths are sorted, and each
continues from the last layer that it has in common with the path before. The scores are bitwise
those of each path alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import Literal

import numpy as np
import torch
from torch.nn import functional

from fedloom.data.samples import Samples
from fedloom.learning.training import batch_norms
from fedloom.metrics.classification import balanced, ranked
from fedloom.nets.model import Model
from fedloom.searchers.paths import Path
from fedloom.spaces.paths import Passing, PathNetwork

Statistics = Literal["running", "batch", "recalibrated"]
BATCH = 256  # samples per forward pass


@torch.no_grad()
def score_paths(
    model: Model,
    paths: Sequence[Path],
    data: Samples,
    statistics: Statistics = "running",
    device: str = "cpu",
    classes: int | None = None,
) -> list[PathScore]:
    """Returns the score of every path.

    BN uses the merged running statistics ("running"), those of each batch ("batch"), or those of
    `data` ("recalibrated"). `classes` is the number of classes, to count answers by class; None:
    they are not counted.
    """
    net = model.net
    assert isinstance(net, PathNetwork)
    model.to(device)
    if statistics == "recalibrated":
        return [score_recalibrated(model, path, data, device, classes) for path in paths]
    if statistics == "batch":
        keep_running_statistics(model)
    else:
        model.eval()
    order = sorted(range(len(paths)), key=lambda number: paths[number])
    totals = [PathScore(0.0, 0, 0) for _ in paths]
    for batch in parts_of(data, statistics):
        x = model.normalised(batch.x.to(device))
        y = batch.y.to(device)
        states = [net.begin(x)]  # after the stem, and after every layer of the previous path
        previous: Path = ()
        for number in order:
            path = paths[number]
            shared = common_layers(previous, path)
            del states[shared + 1 :]
            for layer in range(shared, len(path)):
                states.append(net.layer(layer, path[layer], states[-1]))
            totals[number] += score_of(net, states[-1], y, classes)
            previous = path
    return totals


@dataclass(frozen=True)
class ClassCounts:
    """Counts of samples by class and, for two classes, the figures from which AUC is computed."""

    present: tuple[int, ...]  # the samples of each class
    correct: tuple[int, ...]  # the correct answers for each class
    # For two classes, per sample: the score of the second class minus that of the first, and
    # whether the sample belongs to the second.
    margins: tuple[float, ...] = ()
    positive: tuple[bool, ...] = ()

    def __add__(self, other: ClassCounts) -> ClassCounts:
        return ClassCounts(
            tuple(map(add, self.present, other.present)),
            tuple(map(add, self.correct, other.correct)),
            self.margins + other.margins,
            self.positive + other.positive,
        )

    @property
    def balanced_accuracy(self) -> float | None:
        """The balanced accuracy; None: all samples belong to one class."""
        return balanced(np.array(self.correct), np.array(self.present))

    @property
    def auc(self) -> float | None:
        """The AUC; None: there are not two classes, or all samples belong to one."""
        if len(self.present) != 2:
            return None
        return ranked(np.array(self.margins), np.array(self.positive))


@dataclass(frozen=True)
class PathScore:
    """Sums over samples, so that scores of several clients can be added."""

    loss: float
    correct: int
    samples: int
    by_class: ClassCounts | None = None  # None: classes were not counted

    def __add__(self, other: PathScore) -> PathScore:
        return PathScore(
            self.loss + other.loss,
            self.correct + other.correct,
            self.samples + other.samples,
            self._classes_with(other),
        )

    def _classes_with(self, other: PathScore) -> ClassCounts | None:
        if not self.samples:
            return other.by_class
        if not other.samples:
            return self.by_class
        if self.by_class is None or other.by_class is None:
            return None
        return self.by_class + other.by_class

    @property
    def mean_loss(self) -> float:
        return self.loss / max(1, self.samples)

    @property
    def accuracy(self) -> float:
        return self.correct / max(1, self.samples)

    @property
    def balanced_accuracy(self) -> float | None:
        """The balanced accuracy; None: classes were not counted, or there is only one."""
        if self.by_class is None:
            return None
        return self.by_class.balanced_accuracy

    @property
    def auc(self) -> float | None:
        """The AUC of two classes; None: classes were not counted, or there are not two."""
        if self.by_class is None:
            return None
        return self.by_class.auc


def parts_of(data: Samples, statistics: Statistics) -> Iterator[Samples]:
    """Returns the batches to score on; with batch statistics, a last single sample is left out."""
    if statistics == "batch":
        return data.batches(BATCH)
    return every_sample(data)


def every_sample(data: Samples) -> Iterator[Samples]:
    if len(data) == 0:
        return
    for x, y in zip(data.x.split(BATCH), data.y.split(BATCH), strict=True):
        yield Samples(x, y)


def common_layers(first: Path, second: Path) -> int:
    """Returns the length of the common beginning of two paths."""
    count = 0
    for first_op, second_op in zip(first, second, strict=False):
        if first_op != second_op:
            break
        count += 1
    return count


def score_of(
    net: PathNetwork,
    state: Passing,
    y: torch.Tensor,
    classes: int | None = None,
) -> PathScore:
    scores: torch.Tensor = net.finish(state)
    loss = functional.cross_entropy(scores, y, reduction="sum")
    is_correct = scores.argmax(dim=1) == y
    by_class = None
    if classes is not None:
        by_class = class_counts(scores, y, is_correct, classes)
    return PathScore(float(loss), int(is_correct.sum()), len(y), by_class)


def class_counts(
    scores: torch.Tensor,
    y: torch.Tensor,
    is_correct: torch.Tensor,
    classes: int,
) -> ClassCounts:
    counts = ClassCounts(
        tuple(torch.bincount(y, minlength=classes).tolist()),
        tuple(torch.bincount(y[is_correct], minlength=classes).tolist()),
    )
    if classes != 2:
        return counts
    margins = scores[:, 1].double() - scores[:, 0].double()
    return replace(counts, margins=tuple(margins.tolist()), positive=tuple((y == 1).tolist()))


def keep_running_statistics(model: Model) -> None:
    """Makes BN normalise by the batch without changing its running statistics."""
    model.train()
    for norm in batch_norms(model):
        norm.momentum = 0.0


def score_recalibrated(
    model: Model,
    path: Path,
    data: Samples,
    device: str,
    classes: int | None,
) -> PathScore:
    """Scores one path, with BN statistics of these samples only."""
    net = model.net
    assert isinstance(net, PathNetwork)
    for norm in batch_norms(model):
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over the batches
    model.train()
    for batch in data.batches(BATCH):
        run_path(net, path, model.normalised(batch.x.to(device)))
    model.eval()
    total = PathScore(0.0, 0, 0)
    for batch in every_sample(data):
        state = run_path(net, path, model.normalised(batch.x.to(device)))
        total += score_of(net, state, batch.y.to(device), classes)
    return total


def run_path(net: PathNetwork, path: Path, x: torch.Tensor) -> Passing:
    state = net.begin(x)
    for layer, op in enumerate(path):
        state = net.layer(layer, op, state)
    return state
