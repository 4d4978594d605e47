"""What a person sees while a run goes on.

A live line in a terminal, plain lines in a file, nothing if quiet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from fedloom.data.progress import listening
from fedloom.federation.server.events import ClientEvaluated, Event, Notice, RoundEnded
from fedloom.metrics.metric import METRICS
from fedloom.records.rows import Evaluation
from fedloom.report.tables import amount, duration, percent

SECONDS = 10.0  # between two plain lines about one long work


class Quiet:
    """Says nothing but what nobody may miss.

    That is: a file was damaged, or several versions took part.
    """

    def __init__(self, label: str = "fedloom") -> None:
        self.label = label

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice):
            print(f"{self.label}: {event.text}", file=sys.stderr, flush=True)


class Plain:
    """A line a round, at most about ten a run."""

    def __init__(self, label: str, stream: TextIO) -> None:
        self.label = label
        self.stream = stream
        self.clock = Clock()
        self.tenths_shown = -1  # of the budget, when the latest line was printed

    def __call__(self, event: Event) -> None:
        self.clock.note(event)
        if isinstance(event, Notice):
            print(f"{self.label}: {event.text}", file=self.stream, flush=True)
        if isinstance(event, RoundEnded) and int(10 * event.share) > self.tenths_shown:
            self.tenths_shown = int(10 * event.share)
            print(f"{self.label}: {describe(event, self.clock)}", file=self.stream, flush=True)


class Live:
    """One line that stays: bar, round, metric, bytes, time left."""

    def __init__(self, label: str, progress: Progress) -> None:
        self.label = label
        self.progress = progress
        self.clock = Clock()
        self.line = progress.add_task(label, total=1.0, what="starting")

    def __call__(self, event: Event) -> None:
        self.clock.note(event)
        if isinstance(event, Notice):
            text = f"{self.label}: {event.text}"
            self.progress.console.print(text, highlight=False, markup=False)
        elif isinstance(event, RoundEnded):
            self.progress.update(self.line, completed=event.share, what=describe(event, self.clock))
        elif isinstance(event, ClientEvaluated) and event.round == self.clock.last_round:
            self.progress.update(self.line, what=f"evaluating {event.of} clients")


class Clock:
    """Time left, from the share of the budget done since this process began."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.share = 0.0
        self.first = 0.0  # the share of the budget that earlier processes spent
        self.last_round = 0
        self.figure: str | None = None  # the last evaluation's, in words

    def note(self, event: Event) -> None:
        if not isinstance(event, RoundEnded):
            return
        number = event.row.round
        if self.last_round == 0:
            self.first = event.share * (number - 1) / number  # where a resumed run began
        self.share = event.share
        self.last_round = number
        if event.row.evaluation is None:
            return
        figure = in_words(event.row.evaluation)
        if figure is not None:
            self.figure = figure

    def left(self) -> float:
        """Seconds; 0 as long as nobody can tell."""
        done = self.share - self.first
        if done <= 0:
            return 0.0
        return (time.monotonic() - self.start) * (1 - self.share) / done


def in_words(evaluation: Evaluation) -> str | None:
    """`test accuracy 81.3 % (balanced 75.0)`; None if nobody could be evaluated."""
    if evaluation.value is None:
        return None
    metric = METRICS[evaluation.metric]
    text = f"{evaluation.part} {metric.title} {metric.text(evaluation.value)}{metric.unit}"
    if evaluation.balanced_accuracy is None:
        return text
    return f"{text} (balanced {percent(evaluation.balanced_accuracy)})"


def describe(event: RoundEnded, clock: Clock) -> str:
    row = event.row
    parts = [f"{row.stage} round {row.round}"]
    if clock.figure is not None:
        parts.append(clock.figure)
    parts.append(f"{amount(row.totals.traffic)}B")
    if row.refused:
        parts.append(f"{len(row.refused)} refused")
    if event.share < 1:
        parts.append(f"{duration(clock.left())} left")
    else:
        parts.append("done")
    return ", ".join(parts)


class Screen:
    """Gives each run of a command its listener."""

    def __init__(self, progress: Progress | None, stream: TextIO | None) -> None:
        self.progress = progress
        self.stream = stream
        self.spoke = time.monotonic()  # when the latest plain line was printed

    def working(self, what: str, done: int, total: int) -> None:
        """Long work on data, before a run: a bar while it lasts, or a plain line now and then."""
        if self.progress is not None:
            bar = self._bar(self.progress, what)
            self.progress.update(bar, completed=done, total=total, visible=done < total)
        elif self.stream is not None and time.monotonic() - self.spoke > SECONDS:
            self.spoke = time.monotonic()
            print(f"{what}: {done:,} of {total:,}", file=self.stream, flush=True)

    def _bar(self, progress: Progress, what: str) -> TaskID:
        """The bar of this work, which its first report adds."""
        for task in progress.tasks:
            if task.description == what:
                return task.id
        return progress.add_task(what, what="")

    def listener(self, label: str) -> Quiet | Plain | Live:
        if self.progress is not None:
            return Live(label, self.progress)
        if self.stream is not None:
            return Plain(label, self.stream)
        return Quiet(label)


@contextmanager
def screen(*, quiet: bool, stream: TextIO | None = None) -> Iterator[Screen]:
    """Progress goes to standard error: standard output is for results."""
    if stream is None:
        stream = sys.stderr
    if quiet:
        yield Screen(None, None)
    elif stream.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[what]}"),
        )
        with Progress(*columns, console=Console(file=stream), refresh_per_second=4) as progress:
            shown = Screen(progress, None)
            with listening(shown.working):
                yield shown
    else:
        shown = Screen(None, stream)
        with listening(shown.working):
            yield shown
