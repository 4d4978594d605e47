"""Progress of downloads: a bar in a terminal, plain lines in a file, nothing if quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class DownloadScreen:
    """Where the progress of downloads is shown. This one shows nothing."""

    def say(self, text: str) -> None:
        """Shows a sentence that stays on the screen."""

    def step(self, label: str, done: int, total: int) -> None:
        """Shows how many bytes of a file are done."""


class Lines(DownloadScreen):
    """Prints plain lines, about ten per file at most."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.label = ""  # of the file in the last line
        self.tenth = -1  # how many tenths of it were done

    def say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def step(self, label: str, done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if label != self.label or tenth > self.tenth:
            self.label = label
            self.tenth = tenth
            self.say(f"{label}: {megabytes(done)} of {megabytes(total)}")


class Bar(DownloadScreen):
    """Shows a progress bar per file."""

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
def download_screen(*, quiet: bool) -> Iterator[DownloadScreen]:
    """Shows progress on standard error, because standard output is for results."""
    if quiet:
        yield DownloadScreen()
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
