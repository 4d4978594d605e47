"""Show the progress of a run: a live line in a terminal, plain lines in a file, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from fedloom.data.progress import listening
from fedloom.federation.server.events import ClientEvaluated, Event, Listener, Notice, RoundEnded
from fedloom.metrics.metric import METRICS
from fedloom.records.rows import Evaluation
from fedloom.report.numbers import amount, duration, percent

SECONDS = 10.0  # between two plain lines about a long task


class Quiet:
    """Print only notices that nobody may miss.

    For example: a file was damaged, or several versions of fedloom took part.
    """

    def __init__(self, label: str = "fedloom") -> None:
        self.label = label

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice):
            print(f"{self.label}: {event.text}", file=sys.stderr, flush=True)


class Plain:
    """Print about ten plain lines per run, at most one per round."""

    def __init__(self, label: str, stream: TextIO) -> None:
        self.label = label
        self.stream = stream
        self.clock = Clock()
        self.tenths_shown = -1  # how many tenths of the budget the latest printed line showed

    def __call__(self, event: Event) -> None:
        self.clock.note(event)
        if isinstance(event, Notice):
            print(f"{self.label}: {event.text}", file=self.stream, flush=True)
        if isinstance(event, RoundEnded) and int(10 * event.share) > self.tenths_shown:
            self.tenths_shown = int(10 * event.share)
            print(f"{self.label}: {describe(event, self.clock)}", file=self.stream, flush=True)


class Live:
    """Update a single line in place: a bar, round, metric, bytes and time left."""

    def __init__(self, label: str, progress: Progress) -> None:
        self.label = label
        self.progress = progress
        self.clock = Clock()
        self.line = progress.add_task(label, total=1.0, status="starting")

    def __call__(self, event: Event) -> None:
        self.clock.note(event)
        if isinstance(event, Notice):
            text = f"{self.label}: {event.text}"
            self.progress.console.print(text, highlight=False, markup=False)
        elif isinstance(event, RoundEnded):
            status = describe(event, self.clock)
            self.progress.update(self.line, completed=event.share, status=status)
        elif isinstance(event, ClientEvaluated) and event.round == self.clock.last_round:
            self.progress.update(self.line, status=f"evaluating {event.of} clients")


class Clock:
    """Estimate the time left, from the share of the budget spent since this process began."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.share = 0.0  # of the budget, spent so far
        self.first = 0.0  # the share of the budget that earlier processes spent
        self.last_round = 0
        self.figure: str | None = None  # the latest evaluation, in words

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

    def seconds_left(self) -> float:
        """Return the estimate; 0 as long as there is nothing to estimate from."""
        share_since_start = self.share - self.first
        if share_since_start <= 0:
            return 0.0
        return (time.monotonic() - self.start) * (1 - self.share) / share_since_start


def in_words(evaluation: Evaluation) -> str | None:
    """Return `test accuracy 81.3 % (balanced 75.0)`; None if no client could be evaluated."""
    if evaluation.value is None:
        return None
    metric = METRICS[evaluation.metric]
    text = f"{evaluation.part} {metric.title} {metric.text(evaluation.value)}{metric.unit}"
    if evaluation.balanced_accuracy is None:
        return text
    return f"{text} (balanced {percent(evaluation.balanced_accuracy)})"


def describe(event: RoundEnded, clock: Clock) -> str:
    """Describe a finished round in one line."""
    row = event.row
    parts = [f"{row.stage} round {row.round}"]
    if clock.figure is not None:
        parts.append(clock.figure)
    parts.append(f"{amount(row.totals.traffic)}B")
    if row.refused:
        parts.append(f"{len(row.refused)} refused")
    if event.share < 1:
        parts.append(f"{duration(clock.seconds_left())} left")
    else:
        parts.append("done")
    return ", ".join(parts)


class Screen:
    """Where a command shows its progress. Each of its runs gets a listener from here."""

    def __init__(self, progress: Progress | None, stream: TextIO | None) -> None:
        self.progress = progress
        self.stream = stream
        self.notices_shown = set[str]()
        self.last_line_at = time.monotonic()  # when the latest plain line was printed

    def working(self, title: str, done: int, total: int) -> None:
        """Show a long task, such as preparing data: as a bar, or a plain line now and then."""
        if self.progress is not None:
            bar = self._bar(self.progress, title)
            self.progress.update(bar, completed=done, total=total, visible=done < total)
        elif self.stream is not None and time.monotonic() - self.last_line_at > SECONDS:
            self.last_line_at = time.monotonic()
            print(f"{title}: {done:,} of {total:,}", file=self.stream, flush=True)

    def _bar(self, progress: Progress, title: str) -> TaskID:
        """Return the bar of a task; the task's first report adds it."""
        for task in progress.tasks:
            if task.description == title:
                return task.id
        return progress.add_task(title, status="")

    def listener(self, label: str) -> Listener:
        """What shows the events of one run.

        Runs of a comparison have the same data, and so the same notices about them: each is shown
        for the first run alone.
        """
        show = self._display(label)

        def listen(event: Event) -> None:
            if isinstance(event, Notice) and event.once:
                if event.text in self.notices_shown:
                    return
                self.notices_shown.add(event.text)
            show(event)

        return listen

    def _display(self, label: str) -> Quiet | Plain | Live:
        if self.progress is not None:
            return Live(label, self.progress)
        if self.stream is not None:
            return Plain(label, self.stream)
        return Quiet(label)


@contextmanager
def open_screen(*, quiet: bool, stream: TextIO | None = None) -> Iterator[Screen]:
    """Show progress on `stream`, by default standard error: standard output is for results."""
    if stream is None:
        stream = sys.stderr
    if quiet:
        yield Screen(None, None)
    elif stream.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[status]}"),
        )
        with Progress(*columns, console=Console(file=stream), refresh_per_second=4) as progress:
            screen = Screen(progress, None)
            with listening(screen.working):
                yield screen
    else:
        screen = Screen(None, stream)
        with listening(screen.working):
            yield screen
