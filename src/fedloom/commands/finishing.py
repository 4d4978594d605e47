"""How commands end: they print their result, or after an interruption how to resume."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from fedloom.errors import FedloomError

A_MINUTE = 60.0


class Printable(Protocol):
    """The result of a command."""

    def to_json(self) -> Any: ...
    def table(self) -> None: ...


def finish(options: argparse.Namespace, work: Callable[[], Printable]) -> int:
    """Call `work`, and print its result as a table or as one JSON object."""
    result = work()
    if options.json:
        print(json.dumps(result.to_json(), allow_nan=False), file=options.stream)
    else:
        result.table()
        for line in next_lines(result):
            print(line)
    return 0


def next_lines(result: Printable) -> list[str]:
    """Where the report is and what to do with the models, if the result has such advice."""
    if not hasattr(result, "next_steps"):
        return []
    lines: list[str] = result.next_steps()
    return lines


def tell(options: argparse.Namespace, text: str) -> None:
    if not (options.quiet or options.json):
        print(text, file=sys.stderr, flush=True)


def tell_time(options: argparse.Namespace, seconds: float) -> None:
    """Say how long a command will take, if it is longer than a minute."""
    if seconds <= A_MINUTE:
        return
    from fedloom.report.numbers import duration

    text = f"this takes about {duration(seconds)} here; Ctrl-C stops it, and nothing is lost"
    tell(options, text)


class interruptible:
    """After Ctrl-C, SIGTERM or an error that stopped the run, say how to resume it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        self.before = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: object,
    ) -> None:
        signal.signal(signal.SIGTERM, self.before)
        if kind is KeyboardInterrupt or (isinstance(error, FedloomError) and error.code == 3):
            print(f"fedloom: continue with `fedloom resume {self.path}`", file=sys.stderr)
