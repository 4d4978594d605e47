"""Who is there, by the simulated clock, and who leaves during its work: all by the seed.

`duty:600,300`: every client is there for 600 seconds and away for 300, again and again; when it
begins is drawn. A file says it of every client, and begins anew after its period, or, without one,
after its last interval:

    client,begin,end
    0,0,3600
    1,1800,7200
    period,0,86400

A file of faults names clients that are gone from a hop on, to the end of that round:

    round,hop,client
    2,0,3
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path

from fedloom import reading
from fedloom.config.models import ClockConfig
from fedloom.errors import FedloomError, unknown
from fedloom.federation.server.clock import Departure
from fedloom.rng import rng

ALWAYS = "always"
DUTY = "duty"
INTERVAL_COLUMNS = ("client", "begin", "end")
FAULT_COLUMNS = ("round", "hop", "client")
PERIOD = "period"
# Seconds: sums of floats may miss the beginning or the end of an interval by this little.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Interval:
    """Seconds in which a client is there."""

    begin: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """When every client is there. It begins anew after each period."""

    period: float
    of_client: tuple[tuple[Interval, ...], ...]  # ascending, apart from one another

    def is_there(self, client: int, now: float) -> bool:
        return self._current(client, now) is not None

    def leaves_after(self, client: int, now: float) -> float:
        """The seconds that a client who is there stays; infinity: it never leaves."""
        current = self._current(client, now)
        assert current is not None
        if current.end - current.begin >= self.period:
            return inf
        left = current.end - self._phase(now)
        first = self.of_client[client][0]
        if current.end >= self.period - ROUNDING and first.begin <= ROUNDING:
            left += first.end  # it is there when the period begins anew
        return left

    def returns_at(self, client: int, now: float) -> float:
        """When a client is there next: now, if it is."""
        if self.is_there(client, now):
            return now
        phase = self._phase(now)
        for interval in self.of_client[client]:
            if interval.begin > phase:
                return now + (interval.begin - phase)
        return now + (self.period - phase + self.of_client[client][0].begin)

    def _current(self, client: int, now: float) -> Interval | None:
        phase = self._phase(now)
        for interval in self.of_client[client]:
            if interval.begin - ROUNDING <= phase < interval.end - ROUNDING:
                return interval
        return None

    def _phase(self, now: float) -> float:
        """Where in the period it is; a rounding error before the next one is its beginning."""
        phase = now % self.period
        if phase > self.period - ROUNDING:
            return 0.0
        return phase


@dataclass(frozen=True)
class Fault:
    """A client that is gone from a hop on, to the end of its round."""

    round: int
    hop: int
    client: int


@dataclass(frozen=True)
class Attendance:
    """Who can be asked, and who will not bring back what it was asked for."""

    population: int
    seed: int = 0
    schedule: Schedule | None = None  # None: everybody is always there
    dropout: float = 0.0  # the probability that a client leaves during its work of a round
    faults: Mapping[tuple[int, int], int] = field(default_factory=dict)  # hop, by round and client

    def present(self, now: float) -> frozenset[int] | None:
        """None: everybody."""
        if self.schedule is None:
            return None
        clients = range(self.population)
        return frozenset(client for client in clients if self.schedule.is_there(client, now))

    def first_return(self, clients: Iterable[int], now: float) -> float:
        """When the first of these is there."""
        if self.schedule is None:
            return now
        return min(self.schedule.returns_at(client, now) for client in clients)

    def stays(self, clients: Iterable[int], now: float) -> dict[int, float]:
        """For how many seconds each of these, who are there, will be; those who leave."""
        if self.schedule is None:
            return {}
        seconds = {}
        for client in clients:
            left = self.schedule.leaves_after(client, now)
            if isfinite(left):
                seconds[client] = left
        return seconds

    def departures(self, number: int, clients: Iterable[int], hops: int) -> dict[int, Departure]:
        """Those who leave during their work of a round of so many hops."""
        leaving = {}
        for client in clients:
            departure = self._departure(number, client, hops)
            if departure is not None:
                leaving[client] = departure
        return leaving

    def _departure(self, number: int, client: int, hops: int) -> Departure | None:
        fault = self.faults.get((number, client))
        drawn = None
        if self.dropout > 0:
            draws = rng(self.seed, number, "dropout", client)
            if draws.random() < self.dropout:
                drawn = Departure(int(draws.integers(hops)), float(draws.random()))
        if fault is None:
            return drawn
        if drawn is not None and drawn.hop <= fault:
            return drawn
        return Departure(fault)  # when it has done that hop's work


# What the command line says


def is_file(availability: str) -> bool:
    return availability.endswith(".csv") or "/" in availability


def schedule_in(
    availability: str,
    of_file: Schedule | None,
    clients: int,
    seed: int,
) -> Schedule | None:
    """`always`, `duty:ON,OFF` or what a file says. None: everybody is always there."""
    if availability == ALWAYS:
        return None
    if of_file is not None:
        if len(of_file.of_client) != clients:
            raise FedloomError(
                f"{availability} must say of each of the {clients} clients when it is there",
                f"it has {len(of_file.of_client)}",
                "mend it",
            )
        return of_file
    return duty_in(availability, clients, seed)


def schedule_of(config: ClockConfig) -> Schedule | None:
    """What a file said, as a run's configuration keeps it; None: there is none."""
    if config.intervals is None or config.period is None:
        return None
    of_client: dict[int, list[Interval]] = {}
    for row in config.intervals:
        of_client.setdefault(row.client, []).append(Interval(row.begin, row.end))
    ascending = [tuple(of_client[client]) for client in sorted(of_client)]
    return Schedule(config.period, tuple(ascending))


def duty_in(availability: str, clients: int, seed: int) -> Schedule:
    name, _, value = availability.partition(":")
    if name != DUTY:
        raise unknown("--availability, unless it is a .csv file,", availability, (ALWAYS, DUTY))
    on, comma, off = value.partition(",")
    seconds = (seconds_in(on), seconds_in(off))
    if not comma or None in seconds or not seconds[0]:
        raise FedloomError(
            f"--availability {availability} must say for how many seconds a client is there, "
            "above 0, and for how many it is away",
            f"got {value!r}",
            "try duty:600,300",
        )
    return duty(float(on), float(off), clients, seed)


def duty(on: float, off: float, clients: int, seed: int) -> Schedule:
    """Every client begins at a time of its own."""
    period = on + off
    of_client = []
    for client in range(clients):
        begin = float(rng(seed, "duty", client).random()) * period
        of_client.append(wrapped(begin, on, period))
    return Schedule(period, tuple(of_client))


def wrapped(begin: float, seconds: float, period: float) -> tuple[Interval, ...]:
    """An interval that may end in the next period."""
    end = begin + seconds
    if seconds >= period:
        return (Interval(0.0, period),)
    if end <= period:
        return (Interval(begin, end),)
    return (Interval(0.0, end - period), Interval(begin, period))


def seconds_in(text: str) -> float | None:
    """None: it is no number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    if not 0 <= seconds < inf:
        return None
    return seconds


# Files


def read_schedule(path: Path) -> Schedule:
    """When every client is there, from client 0 on."""
    rows = rows_of(path, INTERVAL_COLUMNS, "--availability")
    intervals: dict[int, list[Interval]] = {}
    period = None
    for where, row in rows:
        begin = seconds_in(row[1])
        end = seconds_in(row[2])
        if begin is None or end is None or begin >= end:
            rule = f"{where} must have an interval that begins before it ends, in seconds"
            raise FedloomError(rule, f"got {row[1]!r} and {row[2]!r}", "mend it")
        if row[0] == PERIOD:
            period = end
            continue
        client = number_in(row[0], f"the client in {where}", 0)
        intervals.setdefault(client, []).append(Interval(begin, end))
    if not intervals:
        raise FedloomError(f"{path} must say when clients are there", "it says nothing", "mend it")
    for client in range(max(intervals) + 1):
        if client not in intervals:
            rule = f"{path} must say of every client when it is there"
            raise FedloomError(rule, f"client {client} never is", "add a row")
    last = max(interval.end for own in intervals.values() for interval in own)
    if period is None:
        period = last
    if last > period:
        rule = f"the intervals in {path} must end within its period"
        raise FedloomError(rule, f"one ends at {last:g}, the period at {period:g}", "mend it")
    of_client = [joined(intervals[client], client, path) for client in sorted(intervals)]
    return Schedule(period, tuple(of_client))


def joined(intervals: Sequence[Interval], client: int, path: Path) -> tuple[Interval, ...]:
    """In order, and those that touch as one."""
    ascending: list[Interval] = []
    for interval in sorted(intervals, key=lambda interval: interval.begin):
        if ascending and interval.begin < ascending[-1].end:
            raise FedloomError(
                f"the intervals of a client in {path} must not overlap",
                f"client {client} is there from {interval.begin:g} on twice",
                "mend it",
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


def faults_in(
    faults: Collection[Fault],
    clients: int,
    hops: int,
) -> dict[tuple[int, int], int]:
    """The first hop in which each is gone, by round and client."""
    first: dict[tuple[int, int], int] = {}
    for fault in faults:
        if fault.client >= clients:
            rule = f"--faults must name clients below {clients}"
            raise FedloomError(rule, f"got client {fault.client}", "mend the file")
        if fault.hop >= hops:
            rule = f"--faults must name hops below {hops}, of which a round has so many"
            raise FedloomError(rule, f"got hop {fault.hop}", "mend the file")
        place = (fault.round, fault.client)
        first[place] = min(fault.hop, first.get(place, fault.hop))
    return first


def rows_of(path: Path, columns: Sequence[str], flag: str) -> list[tuple[str, list[str]]]:
    """Every row after the names of the columns, with where it stands."""
    rule = f"{path} must be a CSV file with the columns {', '.join(columns)}"
    advice = f"mend it, or check {flag}"
    try:
        text = reading.read_text(path)
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (reading.Unreadable, csv.Error) as error:
        raise FedloomError(rule, str(error), advice) from None
    if not rows or tuple(rows[0]) != tuple(columns):
        found = "it is empty"
        if rows:
            found = f"it begins with {', '.join(rows[0])}"
        raise FedloomError(rule, found, advice)
    placed = []
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        where = f"line {number} of {path}"
        if len(row) != len(columns):
            rule = f"{where} must have {len(columns)} values"
            raise FedloomError(rule, f"it has {len(row)}", "mend it")
        placed.append((where, row))
    return placed


def number_in(text: str, what: str, least: int) -> int:
    digits = text.isascii() and text.isdecimal() and len(text) < 10
    if not digits or int(text) < least:
        rule = f"{what} must be a whole number of {least} or more"
        raise FedloomError(rule, f"got {text!r}", "mend it")
    return int(text)
