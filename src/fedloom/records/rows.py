"""The types by which a row of metrics.jsonl, the record of one round, is written and read.

An empty field is left out of the JSON, for example if no client was capped or nothing was
evaluated. What a method notes about a round stands in the same object, under names that the method
chooses; fields of later versions are kept there too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, Strict, TypeAdapter, ValidationError

from fedloom.errors import FedloomError
from fedloom.metrics.metric import METRICS
from fedloom.reading import Unreadable, bounded, parse_json
from fedloom.records.mistakes import first_mistake
from fedloom.records.record import LARGEST_COUNT, Count, Figure, PositiveCount, Seconds
from fedloom.records.totals import Totals
from fedloom.types import Json

METRICS_FILE = "metrics.jsonl"
# The fields that every row has.
ALWAYS = ("stage", "round", "progress", "meta", "replies", "refused", "ledger", "totals")
ClientName = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]  # a text in JSON, as all keys are
# Numbers below 0 stand for orders to describe, to evaluate and to forget.
Hop = Annotated[int, Strict(), Field(ge=-3, le=LARGEST_COUNT)]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Share = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
ExitCode = Annotated[int, Strict(), Field(ge=-LARGEST_COUNT, le=LARGEST_COUNT)]
Part = Literal["validation", "test"]


@dataclass(frozen=True)
class LedgerLine:
    """The cost of one exchange with one client.

    In JSON it is a list in this order, because there are many.
    """

    client: Count
    hop: Hop
    down: Count  # bytes
    up: Count
    macs: Count | None  # None: not measured, or not reported
    seconds: Seconds | None
    memory: Count | None = None  # the peak of its process in bytes; old rows do not have it
    cluster: Count | None = None  # None: the round had no clusters
    simulated: Seconds | None = None  # by the simulated clock, until its reply came or it left

    def to_json(self) -> list[Json]:
        columns = list(vars(self).values())
        if self.cluster is None and self.simulated is None:
            return columns[:-2]
        return columns


@dataclass(frozen=True)
class Refusal:
    """A reply that was not used."""

    client: Count
    reason: str

    def to_json(self) -> dict[str, Json]:
        return {"client": self.client, "reason": self.reason}


@dataclass(frozen=True)
class WorkerDeath:
    """A worker process that died while it worked for a client, by a signal or an exit code."""

    client: Count
    signal: str | None = None  # such as `SIGSEGV`; None: it was not a signal
    exit: ExitCode | None = None  # None: it stopped responding

    def to_json(self) -> dict[str, Json]:
        if self.signal is not None:
            return {"client": self.client, "signal": self.signal}
        return {"client": self.client, "exit": self.exit}


@dataclass(frozen=True)
class UpdateNorms:
    """The size of updates of a group of tensors: the usual one, and the largest of the round."""

    usual: Number
    largest: Number

    def to_json(self) -> dict[str, Json]:
        return {"usual": self.usual, "largest": self.largest}


Doing = Literal["training", "transfer", "aggregation", "heartbeat"]


@dataclass(frozen=True)
class TimeStep:
    """A step of a round, in simulated seconds. In JSON it is a list, because there are many.

    `transfer` is between members and their aggregator (without clusters: the server),
    `aggregation` between an aggregator and the server, and `heartbeat` the time before the loss of
    an aggregator was noticed. Averaging itself takes no simulated time.
    """

    doing: Doing
    seconds: Seconds


def steps_in(raw: Json) -> Json:
    """Name the items of steps, which are `[["transfer", 0.5], ["training", 2.0]]` in JSON."""
    if not isinstance(raw, list):
        return raw
    steps = []
    for step in raw:
        if isinstance(step, list):
            steps.append(dict(zip(("doing", "seconds"), step, strict=False)))
        else:
            steps.append(step)
    return steps


def steps_to_json(steps: Sequence[TimeStep]) -> Json:
    return [[step.doing, step.seconds] for step in steps]


Steps = Annotated[tuple[TimeStep, ...], BeforeValidator(steps_in)]


@dataclass(frozen=True)
class Pace:
    """The steps of one client in a round without clusters, if its reply was used."""

    client: Count
    steps: Steps

    def to_json(self) -> dict[str, Json]:
        return {**vars(self), "steps": steps_to_json(self.steps)}


@dataclass(frozen=True)
class ClusterNote:
    """A method's note about the sub-space that it allots to a cluster (FINCH, Algorithm 3)."""

    space: Json  # an `Arch` in plain form: the sub-space that the cluster works in
    c: Number | None = None  # its accuracy before the round; None: it was not scored
    R: Number | None = None  # its cost, by Eq. 12
    worth: Number | None = None  # c/R, by which sub-spaces are ordered; 1/R without c


@dataclass(frozen=True)
class ClusterRow:
    """One cluster in one round."""

    cluster: Count
    members: tuple[Count, ...]  # in the order in which they joined
    aggregator: Count | None  # the last one; None: no member was left to be it
    replaced: tuple[Count, ...] = ()  # aggregators that were lost, in order
    level: Number | None = None  # distance of its labels to the population's (FINCH, Eq. 7)
    macs: Count = 0
    lan_down: Count = 0  # bytes
    lan_up: Count = 0
    wan_down: Count = 0
    wan_up: Count = 0
    seconds: Seconds = 0.0  # simulated
    steps: Steps = ()  # these seconds in order; empty: an earlier version's row
    # Of its labels, as the server saw them; only in the first round after a clustering.
    histogram: tuple[Count, ...] | None = None
    # For methods that allot sub-spaces: see `ClusterNote`.
    space: Json = None
    c: Number | None = None
    R: Number | None = None
    worth: Number | None = None

    def with_note(self, note: ClusterNote | None) -> ClusterRow:
        if note is None:
            return self
        return replace(self, **vars(note))

    def to_json(self) -> dict[str, Json]:
        row = {**vars(self), "members": list(self.members), "replaced": list(self.replaced)}
        del row["steps"], row["histogram"]
        if self.steps:
            row["steps"] = steps_to_json(self.steps)
        if self.histogram is not None:
            row["histogram"] = list(self.histogram)
        if self.space is None:
            for name in vars(ClusterNote(None)):
                del row[name]
        return row


@dataclass(frozen=True)
class Span:
    """The beginning and end of a round by the simulated clock."""

    begin: Seconds
    end: Seconds

    def to_json(self) -> dict[str, Json]:
        return {"begin": self.begin, "end": self.end}


BESIDE = ("balanced_accuracy", "auc")  # the means of an evaluation other than its metric's
SHARED_BESIDE = tuple(f"shared_{name}" for name in BESIDE)  # the same for the shared model


@dataclass(frozen=True)
class Evaluation:
    """Means over the clients that were evaluated after the round."""

    part: Part  # of the clients' data
    clients: Count
    metric: str  # also the name of `value` in JSON
    value: Number | None  # of each client's final model; None: no client could be evaluated
    shared: Number | None = None  # of the shared model
    balanced_accuracy: Number | None = None  # of each client's final model; None: unknown
    auc: Number | None = None  # likewise; None: there are not two classes
    shared_balanced_accuracy: Number | None = None  # of the shared model; None: unknown
    shared_auc: Number | None = None  # likewise; None: there are not two classes
    deaths: tuple[WorkerDeath, ...] = ()  # in JSON they follow those at work

    @property
    def beside(self) -> dict[str, float]:
        """The known means other than the metric's, by their names."""
        return self._known(BESIDE)

    @property
    def shared_beside(self) -> dict[str, float]:
        """The known means of the shared model other than the metric's, by their names."""
        return self._known(SHARED_BESIDE)

    def _known(self, names: Sequence[str]) -> dict[str, float]:
        means = {}
        for name in names:
            if getattr(self, name) is not None:
                means[name] = getattr(self, name)
        return means

    def to_json(self) -> dict[str, Json]:
        return {
            "part": self.part,
            "clients": self.clients,
            "metric": self.metric,
            self.metric: self.value,
            "shared": self.shared,
            **self.beside,
            **self.shared_beside,
        }


@dataclass(frozen=True)
class MetricsRow:
    stage: str
    round: PositiveCount
    progress: Number  # of the stage, from 0 to 1, when the round began
    meta: Mapping[str, Figure] = field(default_factory=dict)  # means over replies, such as a loss
    replies: Count = 0  # accepted ones
    refused: tuple[Refusal, ...] = ()
    ledger: tuple[LedgerLine, ...] = ()
    fresh: tuple[Count, ...] = ()  # clients that lost their state and continued with a fresh one
    capped: Mapping[ClientName, Share] = field(default_factory=dict)  # the weight they claimed
    updates: Mapping[str, UpdateNorms] = field(default_factory=dict)  # by group of tensors
    observed: Mapping[ClientName, Json] = field(default_factory=dict)  # by a simulation's observer
    deaths: tuple[WorkerDeath, ...] = ()  # during the round's work
    server_macs: Count = 0  # of the server itself: planning, merging, scoring
    # Whether the ledger's MACs are the network's times the number of samples, because clients do
    # not report theirs.
    macs_by_formula: bool = False
    evaluation: Evaluation | None = None  # None: this round was not evaluated
    clusters: tuple[ClusterRow, ...] = ()  # empty: the round had no clusters
    # Label counts of all clients that reported theirs, as the server saw them; given where clusters
    # have a `histogram`.
    population: tuple[Count, ...] | None = None
    # In a round without clusters: the slowest and the median client by the simulated clock.
    paces: tuple[Pace, ...] = ()
    simulated: Span | None = None  # None: an earlier version's row, or a federation
    totals: Totals = field(default_factory=Totals)  # of the run up to this round
    notes: Mapping[str, Json] = field(default_factory=dict)  # by the method, such as its phase

    OWN: ClassVar[frozenset[str]]  # names in JSON that no note may have

    @property
    def phase(self) -> str:
        """The method's name for this part of its schedule, or the stage."""
        return str(self.notes.get("phase") or self.stage)

    @property
    def all_deaths(self) -> tuple[WorkerDeath, ...]:
        """The deaths during the round's work and during the evaluation."""
        if self.evaluation is None:
            return self.deaths
        return (*self.deaths, *self.evaluation.deaths)

    def to_json(self) -> dict[str, Json]:
        row: dict[str, Json] = {
            **self.notes,
            "stage": self.stage,
            "round": self.round,
            "progress": self.progress,
            "meta": dict(self.meta),
            "replies": self.replies,
            "refused": [refusal.to_json() for refusal in self.refused],
            "ledger": [line.to_json() for line in self.ledger],
        }
        if self.fresh:
            row["fresh"] = list(self.fresh)
        if self.capped:
            row["capped"] = {str(client): share for client, share in self.capped.items()}
        if self.updates:
            row["updates"] = {group: norms.to_json() for group, norms in self.updates.items()}
        if self.observed:
            row["observed"] = {str(client): facts for client, facts in self.observed.items()}
        if self.server_macs:
            row["server_macs"] = self.server_macs
        if self.macs_by_formula:
            row["macs_by_formula"] = True
        deaths = [death.to_json() for death in self.all_deaths]
        if self.deaths:
            row["deaths"] = deaths
        if self.evaluation is not None:
            row["evaluation"] = self.evaluation.to_json()
        if deaths:
            row["deaths"] = deaths  # comes after the evaluation if only that one had deaths
        if self.clusters:
            row["clusters"] = [cluster.to_json() for cluster in self.clusters]
        if self.population is not None:
            row["population"] = list(self.population)
        if self.paces:
            row["paces"] = [pace.to_json() for pace in self.paces]
        if self.simulated is not None:
            row["simulated"] = self.simulated.to_json()
        row["totals"] = self.totals.to_json()
        return row

    def to_line(self) -> bytes:
        return json.dumps(self.to_json(), allow_nan=False).encode() + b"\n"

    @classmethod
    def from_json(cls, raw: Json, *, with_ledger: bool = True) -> MetricsRow:
        """Read a row. Raises Unreadable.

        Ledgers can be left out, because those of a large run would fill the memory.
        """
        if not isinstance(raw, dict):
            raise Unreadable("it is not an object of JSON")
        for name in ALWAYS:
            if name not in raw:
                raise Unreadable(f"it lacks `{name}`")
        # The ledger has many lines, and totals may have numbers beyond 64 bits.
        checked_separately = ("ledger", "totals")
        others = {name: raw[name] for name in raw if name not in checked_separately}
        parts: dict[str, Json] = {}
        notes: dict[str, Json] = {}
        for name, value in bounded(others).items():
            if name in cls.OWN:
                parts[name] = value
            else:
                notes[name] = value
        parts["notes"] = notes
        parts["totals"] = Totals.from_json(raw["totals"])
        parts["ledger"] = ()
        if with_ledger:
            parts["ledger"] = ledger_in(raw)
        parts["evaluation"] = evaluation_in(raw)
        if parts["evaluation"] is not None and follows(raw, "deaths", "evaluation"):
            parts["evaluation"]["deaths"] = parts.pop("deaths")
        try:
            return row_checker().validate_python(parts)
        except ValidationError as error:
            raise Unreadable(first_mistake(error)) from None

    @classmethod
    def from_line(cls, line: bytes, *, with_ledger: bool = True) -> MetricsRow:
        """Read a line of the file. Raises Unreadable."""
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise Unreadable("it is not text in UTF-8") from None
        return cls.from_json(parse_json(text), with_ledger=with_ledger)


MetricsRow.OWN = frozenset(part.name for part in fields(MetricsRow)) - {"notes"}
LEDGER_NAMES = tuple(part.name for part in fields(LedgerLine))


@cache
def row_checker() -> TypeAdapter[MetricsRow]:
    """The validator of rows, built when the first row is read: many commands read none."""
    return TypeAdapter(MetricsRow)


def ledger_in(row: Mapping[str, Json]) -> list[dict[str, Json]]:
    """The lines of a row's ledger, with names.

    Lines of an earlier version may be shorter, and those of a later version longer.
    """
    lines = row["ledger"]
    if not isinstance(lines, list) or not all(isinstance(line, list) for line in lines):
        raise Unreadable("its ledger is not a list of lists")
    return [dict(zip(LEDGER_NAMES, line, strict=False)) for line in lines]


def evaluation_in(row: Mapping[str, Json]) -> dict[str, Json] | None:
    """The fields of a row's evaluation. In JSON the figure has the name of the metric."""
    evaluation = row.get("evaluation")
    if evaluation is None:
        return None
    if not isinstance(evaluation, dict):
        raise Unreadable("its evaluation is not an object")
    metric = evaluation.get("metric")
    if not isinstance(metric, str) or metric not in METRICS:
        raise Unreadable("its evaluation names no metric that this version knows")
    if metric not in evaluation:
        raise Unreadable(f"its evaluation lacks `{metric}`")
    names = ("part", "clients", "metric", "shared", *BESIDE, *SHARED_BESIDE)
    parts = {name: evaluation.get(name) for name in names}
    return {**parts, "value": evaluation[metric]}


def follows(row: Mapping[str, Json], name: str, earlier: str) -> bool:
    """Whether the row has `name` after `earlier`."""
    names = list(row)
    return name in row and earlier in row and names.index(name) > names.index(earlier)


def are_by_formula(rows: Iterable[MetricsRow]) -> bool:
    """Whether the MACs of all work come from the method's formula, and not from a meter.

    A run that was started by an earlier version has rounds without any MACs.
    """
    working = [row for row in rows if row.replies]
    return bool(working) and all(row.macs_by_formula for row in working)


def read_rows(path: Path) -> Iterator[MetricsRow]:
    """All rows of a metrics.jsonl. An incomplete last line, left by a kill, does not count."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield MetricsRow.from_line(line)
            except Unreadable as error:
                rule = f"line {number} of {path} must describe a round"
                advice = "take the file from a backup, or resume the run if it is not finished"
                raise FedloomError(rule, f"{error}", advice) from None
