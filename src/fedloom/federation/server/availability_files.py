"""Files that say when clients are available, and which of them leave at a hop.

A schedule lists the intervals in which each client is available. It repeats after the period that
it names, or, without one, after the end of its last interval:

    client,begin,end
    0,0,3600
    1,1800,7200
    period,0,86400

A file of faults names clients that leave at a hop and stay away until the end of that round:

    round,hop,client
    2,0,3
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedloom import reading
from fedloom.errors import FedloomError
from fedloom.federation.server.availability import Fault, Interval, Schedule, seconds_in

INTERVAL_COLUMNS = ("client", "begin", "end")
FAULT_COLUMNS = ("round", "hop", "client")
PERIOD = "period"


def read_schedule(path: Path) -> Schedule:
    """The schedule in a CSV file, which must list every client from 0 on."""
    rows = rows_of(path, INTERVAL_COLUMNS, "--availability")
    intervals: dict[int, list[Interval]] = {}
    period = None
    for where, row in rows:
        begin = seconds_in(row[1])
        end = seconds_in(row[2])
        if begin is None or end is None or begin >= end:
            rule = f"{where} must have an interval that begins before it ends, in seconds"
            raise FedloomError(rule, f"got {row[1]!r} and {row[2]!r}", "fix that line")
        if row[0] == PERIOD:
            period = end
            continue
        client = number_in(row[0], f"the client in {where}", 0)
        intervals.setdefault(client, []).append(Interval(begin, end))
    if not intervals:
        rule = f"{path} must list when clients are available"
        raise FedloomError(rule, "it lists no interval", "add rows")
    last_end = 0.0
    for client in range(max(intervals) + 1):
        if client not in intervals:
            rule = f"{path} must list when each client is available"
            raise FedloomError(rule, f"client {client} never is", "add a row")
        for interval in intervals[client]:
            last_end = max(last_end, interval.end)
    if period is None:
        period = last_end
    if last_end > period:
        rule = f"the intervals in {path} must end within its period"
        problem = f"one ends at {last_end:g}, the period at {period:g}"
        raise FedloomError(rule, problem, "fix the file")
    of_client = [joined(intervals[client], client, path) for client in sorted(intervals)]
    return Schedule(period, tuple(of_client))


def joined(intervals: Sequence[Interval], client: int, path: Path) -> tuple[Interval, ...]:
    """The intervals in ascending order, with those that touch joined into one."""
    ascending: list[Interval] = []
    for interval in sorted(intervals, key=lambda interval: interval.begin):
        if ascending and interval.begin < ascending[-1].end:
            raise FedloomError(
                f"the intervals of a client in {path} must not overlap",
                f"two intervals of client {client} contain second {interval.begin:g}",
                "fix the file",
            )
        if ascending and interval.begin == ascending[-1].end:
            ascending[-1] = Interval(ascending[-1].begin, interval.end)
        else:
            ascending.append(interval)
    return tuple(ascending)


def read_faults(path: Path) -> list[Fault]:
    faults = []
    for where, row in rows_of(path, FAULT_COLUMNS, "--faults"):
        number = number_in(row[0], f"the round in {where}", 1)
        hop = number_in(row[1], f"the hop in {where}", 0)
        client = number_in(row[2], f"the client in {where}", 0)
        faults.append(Fault(number, hop, client))
    return faults


class FileRow(NamedTuple):
    """A row of a file, and how an error names it."""

    where: str  # its line and file
    values: list[str]


def rows_of(path: Path, columns: Sequence[str], flag: str) -> list[FileRow]:
    """The rows below the header."""
    rule = f"{path} must be a CSV file with the columns {', '.join(columns)}"
    advice = f"fix it, or check {flag}"
    try:
        text = reading.read_text(path)
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (reading.Unreadable, csv.Error) as error:
        raise FedloomError(rule, str(error), advice) from None
    if not rows or tuple(rows[0]) != tuple(columns):
        problem = "it is empty"
        if rows:
            problem = f"it begins with {', '.join(rows[0])}"
        raise FedloomError(rule, problem, advice)
    file_rows = []
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        where = f"line {number} of {path}"
        if len(row) != len(columns):
            rule = f"{where} must have {len(columns)} values"
            raise FedloomError(rule, f"it has {len(row)}", "fix that line")
        file_rows.append(FileRow(where, row))
    return file_rows


def number_in(text: str, name: str, least: int) -> int:
    """A whole number that must be at least `least`. An error calls it by `name`."""
    digits = text.isascii() and text.isdecimal() and len(text) < 10
    if not digits or int(text) < least:
        rule = f"{name} must be a whole number of {least} or more"
        raise FedloomError(rule, f"got {text!r}", "fix that line")
    return int(text)
