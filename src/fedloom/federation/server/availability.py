"""Which clients are available by the simulated clock, and which leave while they work.

Everything that is drawn here depends on the seed alone.

`duty:600,300`: every client is available for 600 seconds, then unavailable for 300, and so on. The
time at which a client's cycle begins is drawn. Alternatively a file lists the intervals in which
each client is available (`availability_files.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite

from fedloom.config.models import ClockConfig
from fedloom.errors import FedloomError, unknown
from fedloom.federation.server.clock import Departure
from fedloom.rng import rng

ALWAYS = "always"
DUTY = "duty"
# Seconds. A sum of floats is rounded, and may miss the beginning or end of an interval by this.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Interval:
    """A time span, in simulated seconds, in which a client is available."""

    begin: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """When every client is available. The schedule repeats after each period."""

    period: float
    of_client: tuple[tuple[Interval, ...], ...]  # by client; ascending, and they do not touch

    def is_there(self, client: int, now: float) -> bool:
        return self._current(client, now) is not None

    def leaves_after(self, client: int, now: float) -> float:
        """How many seconds an available client stays available; infinity if it never leaves."""
        current = self._current(client, now)
        assert current is not None
        if current.end - current.begin >= self.period:
            return inf
        remaining = current.end - self._phase(now)
        first = self.of_client[client][0]
        if current.end >= self.period - ROUNDING and first.begin <= ROUNDING:
            remaining += first.end  # it is still available when the next period begins
        return remaining

    def returns_at(self, client: int, now: float) -> float:
        """The time at which a client is next available: `now` if it already is."""
        if self.is_there(client, now):
            return now
        phase = self._phase(now)
        for interval in self.of_client[client]:
            if interval.begin > phase:
                return now + (interval.begin - phase)
        return now + (self.period - phase + self.of_client[client][0].begin)

    def _current(self, client: int, now: float) -> Interval | None:
        """The interval in which the client is available now, or None if it is not."""
        phase = self._phase(now)
        for interval in self.of_client[client]:
            if interval.begin - ROUNDING <= phase < interval.end - ROUNDING:
                return interval
        return None

    def _phase(self, now: float) -> float:
        """The time since the period began. Just before the next period it counts as 0."""
        phase = now % self.period
        if phase > self.period - ROUNDING:
            return 0.0
        return phase


@dataclass(frozen=True)
class Fault:
    """A client that leaves at a hop and stays away until the end of its round."""

    round: int
    hop: int
    client: int


@dataclass(frozen=True)
class Attendance:
    """Which clients can be asked, and which of them leave before they have answered."""

    population: int
    seed: int = 0
    schedule: Schedule | None = None  # None: all clients are always available
    dropout: float = 0.0  # the probability that a client leaves during its work in a round
    # The hop at which a client leaves, by round and client.
    faults: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def present(self, now: float) -> frozenset[int] | None:
        """The clients that are available now; None stands for all of them."""
        if self.schedule is None:
            return None
        clients = range(self.population)
        return frozenset(client for client in clients if self.schedule.is_there(client, now))

    def first_return(self, clients: Iterable[int], now: float) -> float:
        """The time at which the first of these clients is available."""
        if self.schedule is None:
            return now
        return min(self.schedule.returns_at(client, now) for client in clients)

    def stays(self, clients: Iterable[int], now: float) -> dict[int, float]:
        """How many seconds each of these available clients stays.

        Clients that never leave are left out.
        """
        if self.schedule is None:
            return {}
        seconds = {}
        for client in clients:
            remaining = self.schedule.leaves_after(client, now)
            if isfinite(remaining):
                seconds[client] = remaining
        return seconds

    def departures(self, number: int, clients: Iterable[int], hops: int) -> dict[int, Departure]:
        """Which clients leave while they work in a round of this many hops, and when."""
        leaving = {}
        for client in clients:
            departure = self._departure(number, client, hops)
            if departure is not None:
                leaving[client] = departure
        return leaving

    def _departure(self, number: int, client: int, hops: int) -> Departure | None:
        """When a client leaves, by its fault or by chance, whichever comes first."""
        drawn = self._drawn_departure(number, client, hops)
        fault = self.faults.get((number, client))
        if fault is None:
            return drawn
        if drawn is not None and drawn.hop <= fault:
            return drawn
        return Departure(fault)  # it leaves after its work in that hop

    def _drawn_departure(self, number: int, client: int, hops: int) -> Departure | None:
        if self.dropout == 0:
            return None
        draws = rng(self.seed, number, "dropout", client)
        if draws.random() >= self.dropout:
            return None
        return Departure(int(draws.integers(hops)), float(draws.random()))


# The options of the command line


def schedule_in(
    availability: str,
    of_file: Schedule | None,
    clients: int,
    seed: int,
) -> Schedule | None:
    """The schedule for `always`, `duty:ON,OFF` or a file.

    None: all clients are always available.
    """
    if availability == ALWAYS:
        return None
    if of_file is not None:
        if len(of_file.of_client) != clients:
            raise FedloomError(
                f"{availability} must list when each of the {clients} clients is available",
                f"it lists {len(of_file.of_client)} clients",
                "fix the file",
            )
        return of_file
    return duty_in(availability, clients, seed)


def schedule_of(config: ClockConfig) -> Schedule | None:
    """The schedule of a file, as a run's configuration stores it, or None if there was no file."""
    if config.intervals is None or config.period is None:
        return None
    of_client: dict[int, list[Interval]] = {}
    for row in config.intervals:
        of_client.setdefault(row.client, []).append(Interval(row.begin, row.end))
    ascending = [tuple(of_client[client]) for client in sorted(of_client)]
    return Schedule(config.period, tuple(ascending))


def duty_in(availability: str, clients: int, seed: int) -> Schedule:
    """The schedule that `duty:ON,OFF` describes."""
    name, _, value = availability.partition(":")
    if name != DUTY:
        raise unknown("--availability, unless it is a .csv file,", availability, (ALWAYS, DUTY))
    on_text, _, off_text = value.partition(",")
    on = seconds_in(on_text)
    off = seconds_in(off_text)
    if on is None or off is None or on == 0:
        raise FedloomError(
            f"--availability {availability} must give the seconds for which a client is "
            "available, above 0, and those for which it is not",
            f"got {value!r}",
            "try duty:600,300",
        )
    return duty(on, off, clients, seed)


def duty(on: float, off: float, clients: int, seed: int) -> Schedule:
    """All clients have the same cycle, and each begins it at a time that is drawn for it."""
    period = on + off
    of_client = []
    for client in range(clients):
        begin = float(rng(seed, "duty", client).random()) * period
        of_client.append(wrapped(begin, on, period))
    return Schedule(period, tuple(of_client))


def wrapped(begin: float, seconds: float, period: float) -> tuple[Interval, ...]:
    """One interval of a repeating schedule, split in two if it reaches into the next period."""
    end = begin + seconds
    if seconds >= period:
        return (Interval(0.0, period),)
    if end <= period:
        return (Interval(begin, end),)
    return (Interval(0.0, end - period), Interval(begin, period))


def seconds_in(text: str) -> float | None:
    """The number of seconds that a text stands for, or None if it is not one."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    if not 0 <= seconds < inf:
        return None
    return seconds


def faults_in(
    faults: Collection[Fault],
    clients: int,
    hops: int,
) -> dict[tuple[int, int], int]:
    """The first hop at which each client leaves, by round and client."""
    first: dict[tuple[int, int], int] = {}
    for fault in faults:
        if fault.client >= clients:
            rule = f"--faults must name clients below {clients}"
            raise FedloomError(rule, f"got client {fault.client}", "fix the file")
        if fault.hop >= hops:
            rule = f"--faults must name hops below {hops}, the number of hops in a round"
            raise FedloomError(rule, f"got hop {fault.hop}", "fix the file")
        place = (fault.round, fault.client)
        first[place] = min(fault.hop, first.get(place, fault.hop))
    return first
