"""What a person sees while files are fetched.

That is a bar in a terminal, plain lines in a file, and nothing if quiet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Silent:
    def say(self, text: str) -> None:
        """A sentence that stays."""

    def step(self, label: str, done: int, total: int) -> None:
        """So many bytes of a file are there."""


class Lines(Silent):
    """At most about ten lines a file."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.label = ""  # of the file that the last line was about
        self.tenth = -1

    def say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def step(self, label: str, done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if label != self.label or tenth > self.tenth:
            self.label = label
            self.tenth = tenth
            self.say(f"{label}: {megabytes(done)} of {megabytes(total)}")


class Bar(Silent):
    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.lines: dict[str, TaskID] = {}

    def say(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)

    def step(self, label: str, done: int, total: int) -> None:
        if label not in self.lines:
            self.lines[label] = self.progress.add_task(label, total=total)
        self.progress.update(self.lines[label], completed=done, total=total)


def megabytes(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


@contextmanager
def shown(*, quiet: bool) -> Iterator[Silent]:
    """Progress goes to standard error: standard output is for results."""
    if quiet:
        yield Silent()
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as progress:
            yield Bar(progress)
    else:
        yield Lines(sys.stderr)
