"""A federation small enough for tests: made-up images, four clients, one process, one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

import torch

from fedloom.config.histograms import HistogramRule
from fedloom.config.models import Experiment, TiersConfig
from fedloom.cost.devices import PHONES, devices_of
from fedloom.data.samples import ClientData, Samples
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.protocol.histograms import simulated_secret
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.protocol.parcels import Engine
from fedloom.federation.protocol.wire import state_chunks
from fedloom.federation.server.archive import Archive
from fedloom.federation.server.availability import Attendance, duty
from fedloom.federation.server.checkpoint import Checkpoint
from fedloom.federation.server.events import Listener
from fedloom.federation.server.loop import Loop, Outcome
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import Spool
from fedloom.federation.server.topology import Flat, Topology
from fedloom.methods import recipe, stages
from fedloom.options import Options
from fedloom.records.rows import MetricsRow, read_rows
from fedloom.records.totals import Totals
from fedloom.registry import absolute
from fedloom.rng import rng
from fedloom.runs.clusters import topology_of, with_topology
from fedloom.runs.configure import resolve_options
from fedloom.runs.tiers import deal_of
from fedloom.spaces.options import SpaceChoice, choice_of_space
from fedloom.testing.engines import Exchange, Recorder
from fedloom.threads import one_thread
from fedloom.types import Meta, State, Task, TierDeal

SHAPE = (1, 6, 6)
LABELS = ("circle", "cross", "star")
# By the simulated clock; a few messages of a toy take about as long.
ON_SECONDS = 1.0
OFF_SECONDS = 0.5
DROPOUT = 0.4
# Training samples by client. With batches of 4, the last batches have 3, 1, 4 and 2 samples.
SIZES = (7, 5, 8, 6)
TINY: Meta = {  # set where a method has such an option
    "width": 0.125,
    "batch": 4,
    "epochs": 1,
    "cells": 3,
    "channels": 2,
}

K = TypeVar("K")
Wrap = Callable[[Engine], Engine]
Watch = Callable[[Method], Method]


def unchanged(inner: Engine) -> Engine:
    return inner


def samples(count: int, *path: int | str) -> Samples:
    """Noise whose mean depends on the label; `path` names the random stream."""
    generator = rng(0, "toy", *path)
    y = generator.integers(len(LABELS), size=count)
    x = generator.normal(100 * y[:, None, None, None], 50.0, size=(count, *SHAPE))
    return Samples(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


def made_up(sizes: Sequence[int] = SIZES, test: str = "test") -> tuple[ClientData, ...]:
    """Clients with these numbers of training samples. `test` names the draw of the test parts."""
    clients = []
    for client, size in enumerate(sizes):
        data = ClientData(
            train=samples(size, client, "train"),
            validation=samples(3, client, "validation"),
            test=samples(4, client, test),
        )
        clients.append(data)
    return tuple(clients)


@dataclass(frozen=True)
class Toy:
    """The description of one run. Use `dataclasses.replace` for variants of it."""

    task: Task
    rounds: int = 4
    participation: float = 0.75
    data: tuple[ClientData, ...] = field(default_factory=made_up)
    identity: Callable[[int], int] = int  # what names a client's random draws
    topology: Topology = field(default_factory=Flat)
    histograms: HistogramRule | None = None  # how clients report their label counts
    evaluate_every: int = 3  # does not divide `rounds`, so that the final evaluation is separate
    select: Literal["last", "best"] = "last"
    lost_state: Literal["refuse", "fresh"] = "refuse"
    max_weight_share: float | None = None
    # Whether clients have different devices, come and go, and leave during their work.
    by_clock: bool = False

    @classmethod
    def of(cls, method: str, options: Meta | None = None, rounds: int = 4, seed: int = 7) -> Toy:
        """A run of this method, with further options that make it tiny."""
        name = absolute(method)
        asked_for = options or {}
        schema = recipe(name).options
        accepted = schema.fields_beside(asked_for)
        tiny = {**TINY, **tiny_parameters(schema, asked_for)}
        chosen_options = {}
        for option, value in tiny.items():
            if option in accepted:
                chosen_options[option] = value
        chosen_options.update(asked_for)
        task = Task(
            method=name,
            options=resolve_options(name, chosen_options),
            kind="image",
            shape=SHAPE,
            labels=LABELS,
            seed=seed,
            mean=(100.0,),
            std=(80.0,),
        )
        toy = cls(task, rounds)
        config = with_topology(Experiment(method=name), task.options, len(toy.data))
        return replace(
            toy,
            topology=topology_of(config, task),
            histograms=config.topology.histogram_rule,
        )

    @property
    def stages(self) -> tuple[Stage, ...]:
        return stages(self.task)

    @property
    def tiers(self) -> TierDeal | None:
        """The default tiers, if the method supports tiers."""
        tiered = recipe(self.task.method).tiered
        if tiered is None:
            return None
        return deal_of(TiersConfig(), tiered(self.task), len(self.data), self.task.seed)

    def site(self, folder: Path, watch: Watch = lambda method: method) -> Site:
        """The clients' side; `watch` may wrap the method."""

        def resolve(task: Task) -> tuple[Stage, ...]:
            return watched(stages(task), watch)

        return Site(
            data=self.data.__getitem__,
            store=ClientStore(folder / "clients"),
            resolve=resolve,
            shape=self.task.shape,
            labels=self.task.labels,
            identity=self.identity,
            secret=partial(simulated_secret, self.task.seed),
        )

    def loop(self, folder: Path, engine: Engine, listen: Listener, watch: Watch) -> Loop:
        """The server's side; `watch` may wrap the method."""
        settings = Settings(
            experiment="toy",
            task=self.task,
            population=len(self.data),
            rounds=self.rounds,
            select=self.select,
            participation=self.participation,
            evaluate_every=self.evaluate_every,
            lost_state=self.lost_state,
            max_weight_share=self.max_weight_share,
            tiers=self.tiers,
            histograms=self.histograms,
        )
        if self.by_clock:
            settings = replace(settings, **clock_of(len(self.data), self.task.seed))
            if not isinstance(self.topology, Flat):
                settings = replace(settings, overselect=1.0)  # the clients of a cluster stay
        return Loop(
            settings=settings,
            stages=watched(self.stages, watch),
            engine=engine,
            spool=Spool(folder / "spool"),
            topology=self.topology,
            archive=Archive(folder),
            server_data=samples(9, "server"),
            holds_back=self.select == "best",
            listen=listen,
        )

    def run(
        self,
        folder: Path,
        *,
        engine: Wrap = unchanged,
        listen: Listener = lambda event: None,
        server: Watch = lambda method: method,
        client: Watch = lambda method: method,
    ) -> Trace:
        """Run to the end, continuing an earlier attempt in this folder if there is one."""
        recorder = Recorder(engine(InlineEngine(self.site(folder, client))))
        with one_thread():
            outcome = self.loop(folder, recorder, listen, server).run()
        return Trace.read(folder, outcome, tuple(recorder.exchanges))

    def run_apart(
        self,
        *,
        engine: Wrap = unchanged,
        server: Watch = lambda method: method,
        client: Watch = lambda method: method,
    ) -> Trace:
        """Run in a folder that is removed afterwards."""
        with TemporaryDirectory(prefix="fedloom-toy-") as folder:
            return self.run(Path(folder), engine=engine, server=server, client=client)


def clock_of(clients: int, seed: int) -> dict[str, Any]:
    """Loop settings for clients that are phones, come and go, and leave during their work."""
    schedule = duty(ON_SECONDS, OFF_SECONDS, clients, seed)
    return {
        "devices": devices_of(PHONES, clients, seed),
        "attendance": Attendance(clients, seed, schedule, DROPOUT),
        "overselect": 1.3,
    }


def tiny_parameters(schema: type[Options], asked_for: Meta) -> Meta:
    """The parameters that make the space that a method searches tiny."""
    if not issubclass(schema, SpaceChoice):
        return {}
    choice = choice_of_space(schema, asked_for)
    if choice is None:
        return {}
    return choice.family.tiny


def watched(method_stages: Sequence[Stage], watch: Watch) -> tuple[Stage, ...]:
    return tuple(stage._replace(method=watch(stage.method)) for stage in method_stages)


@dataclass(frozen=True)
class Trace:
    """Everything that a run leaves behind."""

    outcome: Outcome
    rows: tuple[MetricsRow, ...]
    checkpoints: Mapping[int, Checkpoint]
    owns: Mapping[tuple[int, str], State]  # by (client, version), for all that checkpoints name
    exchanges: tuple[Exchange, ...]  # of the last attempt only, if the run was resumed

    @classmethod
    def read(cls, folder: Path, outcome: Outcome, exchanges: tuple[Exchange, ...]) -> Trace:
        archive = Archive(folder)
        store = ClientStore(folder / "clients")
        checkpoints = {number: archive.load(number) for number in archive.rounds()}
        versions = set[tuple[int, str]]()  # pairs of a client and a version of its state
        for checkpoint in checkpoints.values():
            versions.update(checkpoint.versions.items())
        owns = {}
        for client, version in sorted(versions):
            owns[client, version] = store.read(client, version)
        rows = tuple(read_rows(archive.metrics))
        return cls(outcome, rows, checkpoints, owns, exchanges)

    @property
    def last(self) -> Checkpoint:
        return self.checkpoints[max(self.checkpoints)]

    @property
    def states(self) -> dict[int, State]:
        """The server's states, by round."""
        return {number: checkpoint.state for number, checkpoint in self.checkpoints.items()}

    def own(self, client: int) -> State | None:
        """A client's state at the end."""
        version = self.last.versions.get(client)
        if version is None:
            return None
        return self.owns[client, version]


def differences(first: Trace, second: Trace, *, ledger: bool = True) -> list[str]:
    """What is not equal to the bit in two runs, except for measured seconds.

    Without `ledger`, costs and refusals are not compared either.
    """
    first_end = first.outcome
    second_end = second.outcome
    unequal = [f"final {name}" for name in unlike(first_end.state, second_end.state)]
    if first_end.clients != second_end.clients:
        unequal.append("the final figures")
    if first_end.rounds != second_end.rounds or first_end.selected != second_end.selected:
        unequal.append("the number of rounds, or the one selected")
    unequal += _unequal_states("checkpoint", first.states, second.states)
    unequal += _unequal_states("client state", first.owns, second.owns)
    if len(first.rows) != len(second.rows):
        unequal.append(f"{len(first.rows)} rows of metrics against {len(second.rows)}")
        return unequal
    for row, twin in zip(first.rows, second.rows, strict=True):
        if comparable(row, ledger=ledger) != comparable(twin, ledger=ledger):
            unequal.append(f"metrics of round {row.round}")
    if ledger and timeless(first_end.totals) != timeless(second_end.totals):
        unequal.append("the totals")
    return unequal


def _unequal_states(
    kind: str,
    first: Mapping[K, State],
    second: Mapping[K, State],
) -> Iterator[str]:
    for key in sorted({*first, *second}, key=str):
        if key not in first or key not in second:
            yield f"{kind} {key} exists in one only"
        else:
            for name in unlike(first[key], second[key]):
                yield f"{kind} {key}: {name}"


def unlike(first: State, second: State) -> list[str]:
    """The names of what is not equal to the bit in two states (a NaN equals itself)."""
    unequal = unlike_tensors(first, second)
    if first.meta != second.meta:
        unequal.append("meta")
    return unequal


def unlike_tensors(first: State, second: State) -> list[str]:
    """The names of the tensors that are not equal to the bit, or that only one state has."""
    unequal = []
    for name in sorted({*first.tensors, *second.tensors}):
        if content(first, name) != content(second, name):
            unequal.append(name)
    return unequal


def content(state: State, name: str) -> bytes | None:
    """A tensor's bytes; None: the state has no such tensor."""
    if name not in state.tensors:
        return None
    return b"".join(state_chunks(State({name: state.tensors[name]})))


def comparable(row: MetricsRow, *, ledger: bool) -> MetricsRow:
    """A row without measured values; without `ledger`, also without costs and refusals."""
    if not ledger:
        return replace(
            row,
            ledger=(),
            totals=Totals(),
            refused=(),
            replies=0,
            updates={},
            clusters=(),
            simulated=None,
        )
    lines = [replace(line, seconds=None, memory=None) for line in row.ledger]
    return replace(row, ledger=tuple(lines), totals=timeless(row.totals))


def timeless(totals: Totals) -> Totals:
    return replace(totals, seconds=0.0, measured_clock=0.0, wall=0.0)
