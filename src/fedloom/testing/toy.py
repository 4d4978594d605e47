"""A federation small enough for a test: made-up images, four clients, one process, a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeVar

import torch

from fedloom.data.samples import ClientData, Samples
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.inline import InlineEngine
from fedloom.federation.protocol.method import Method, Stage
from fedloom.federation.protocol.wire import state_chunks
from fedloom.federation.server.checkpoint import Archive, Checkpoint
from fedloom.federation.server.events import Listener
from fedloom.federation.server.loop import Loop, Outcome
from fedloom.federation.server.parcels import Engine
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import Spool
from fedloom.federation.server.topology import Flat, Topology
from fedloom.methods import recipe, stages
from fedloom.records.rows import MetricsRow, read_rows
from fedloom.records.totals import Totals
from fedloom.registry import absolute
from fedloom.rng import rng
from fedloom.runs.configure import resolve_options
from fedloom.testing.engines import Exchange, Recorder
from fedloom.threads import one_thread
from fedloom.types import Meta, State, Task

SHAPE, LABELS = (1, 6, 6), ("circle", "cross", "star")
SIZES = (7, 5, 8, 6)  # samples to train on, a client; batches of 4 leave rests of 3, 1, 0 and 2
TINY: Meta = {  # set where a method has such an option
    "width": 0.125, "batch": 4, "epochs": 1, "ops": "s2", "cells": 3, "nodes": 2, "channels": 2,
}  # fmt: skip

K = TypeVar("K")
Wrap = Callable[[Engine], Engine]
Watch = Callable[[Method], Method]


def samples(count: int, *path: int | str) -> Samples:
    """Noise with a trace of its label; `path` names the draw."""
    generator = rng(0, "toy", *path)
    y = generator.integers(len(LABELS), size=count)
    x = generator.normal(100 * y[:, None, None, None], 50.0, size=(count, *SHAPE))
    return Samples(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


def made_up(sizes: Sequence[int] = SIZES, test: str = "test") -> tuple[ClientData, ...]:
    """Clients of these sizes. Another name for the test part makes another one, of the same size."""
    return tuple(
        ClientData(samples(size, k, "train"), samples(3, k, "validation"), samples(4, k, test))
        for k, size in enumerate(sizes)
    )


@dataclass(frozen=True)
class Toy:
    """One run, not yet made. `dataclasses.replace` makes variants of it."""

    task: Task
    rounds: int = 4
    participation: float = 0.75
    data: tuple[ClientData, ...] = field(default_factory=made_up)
    identity: Callable[[int], int] = int  # what names a client's random draws
    topology: Topology = field(default_factory=Flat)
    evaluate_every: int = 3  # not a divisor of `rounds`, so that the final evaluation has a number of its own
    select: Literal["last", "best"] = "last"
    lost_state: Literal["refuse", "fresh"] = "refuse"
    max_weight_share: float | None = None

    @classmethod
    def of(cls, method: str, options: Meta | None = None, rounds: int = 4, seed: int = 7) -> Toy:
        known = recipe(absolute(method)).options.model_fields
        small = {name: value for name, value in TINY.items() if name in known}
        chosen = resolve_options(absolute(method), {**small, **(options or {})})
        return cls(Task(absolute(method), chosen, "image", SHAPE, LABELS, seed, mean=(100.0,), std=(80.0,)), rounds)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return stages(self.task)

    def site(self, folder: Path, watch: Watch = lambda method: method) -> Site:
        """The clients' side; `watch` may stand between it and the method."""
        store, task = ClientStore(folder / "clients"), self.task
        return Site(
            self.data.__getitem__, store, lambda task: watched(stages(task), watch), task.shape, task.labels,
            identity=self.identity,
        )  # fmt: skip

    def loop(self, folder: Path, engine: Engine, listen: Listener, watch: Watch) -> Loop:
        settings = Settings(
            experiment="toy", task=self.task, population=len(self.data), rounds=self.rounds, select=self.select,
            participation=self.participation, evaluate_every=self.evaluate_every, lost_state=self.lost_state,
            max_weight_share=self.max_weight_share,
        )  # fmt: skip
        return Loop(
            settings=settings, stages=watched(self.stages, watch), engine=engine, spool=Spool(folder / "spool"),
            topology=self.topology, archive=Archive(folder), server_data=samples(9, "server"),
            holds_back=self.select == "best", listen=listen,
        )  # fmt: skip

    def run(
        self, folder: Path, *, engine: Wrap = lambda inner: inner, listen: Listener = lambda event: None,
        server: Watch = lambda method: method, client: Watch = lambda method: method,
    ) -> Trace:  # fmt: skip
        """To the end, from wherever an earlier try in this folder left off."""
        recorder = Recorder(engine(InlineEngine(self.site(folder, client))))
        with one_thread():
            outcome = self.loop(folder, recorder, listen, server).run()
        return Trace.read(folder, outcome, tuple(recorder.exchanges))

    def run_apart(self, *, server: Watch = lambda method: method, client: Watch = lambda method: method) -> Trace:
        """In a folder that is gone afterwards."""
        with TemporaryDirectory(prefix="fedloom-toy-") as folder:
            return self.run(Path(folder), server=server, client=client)


def watched(given: Sequence[Stage], watch: Watch) -> tuple[Stage, ...]:
    return tuple(stage._replace(method=watch(stage.method)) for stage in given)


@dataclass(frozen=True)
class Trace:
    """All that a run left behind."""

    outcome: Outcome
    rows: tuple[MetricsRow, ...]
    checkpoints: Mapping[int, Checkpoint]
    owns: Mapping[tuple[int, str], State]  # (client, version): every client state that a checkpoint names
    exchanges: tuple[Exchange, ...]  # of the last try only, if the run was resumed

    @classmethod
    def read(cls, folder: Path, outcome: Outcome, exchanges: tuple[Exchange, ...]) -> Trace:
        archive, store = Archive(folder), ClientStore(folder / "clients")
        checkpoints = {number: archive.load(number) for number in archive.rounds()}
        named = {pair for checkpoint in checkpoints.values() for pair in checkpoint.versions.items()}
        owns = {(client, version): store.read(client, version) for client, version in sorted(named)}
        rows = tuple(read_rows(archive.metrics))
        return cls(outcome, rows, checkpoints, owns, exchanges)

    @property
    def last(self) -> Checkpoint:
        return self.checkpoints[max(self.checkpoints)]

    @property
    def states(self) -> dict[int, State]:
        """The server's, by round."""
        return {number: checkpoint.state for number, checkpoint in self.checkpoints.items()}

    def own(self, client: int) -> State | None:
        """A client's state at the end."""
        version = self.last.versions.get(client)
        return None if version is None else self.owns[client, version]


def differences(one: Trace, other: Trace, *, ledger: bool = True) -> list[str]:
    """What is not equal to the bit in two runs, seconds apart; without `ledger`, costs and refusals too."""
    found = [f"final {name}" for name in unlike(one.outcome.state, other.outcome.state)]
    if one.outcome.clients != other.outcome.clients:
        found.append("the final figures")
    if (one.outcome.rounds, one.outcome.selected) != (other.outcome.rounds, other.outcome.selected):
        found.append("the number of rounds, or the one selected")
    found += _compared("checkpoint", one.states, other.states)
    found += _compared("client state", one.owns, other.owns)
    if len(one.rows) != len(other.rows):
        return [*found, f"{len(one.rows)} rows of metrics against {len(other.rows)}"]
    for row, twin in zip(one.rows, other.rows, strict=True):
        if comparable(row, ledger=ledger) != comparable(twin, ledger=ledger):
            found.append(f"metrics of round {row.round}")
    if ledger and timeless(one.outcome.totals) != timeless(other.outcome.totals):
        found.append("the totals")
    return found


def _compared(what: str, these: Mapping[K, State], those: Mapping[K, State]) -> Iterator[str]:
    for key in sorted({*these, *those}, key=str):
        if key not in these or key not in those:
            yield f"{what} {key} exists in one only"
        else:
            yield from (f"{what} {key}: {name}" for name in unlike(these[key], those[key]))


def unlike(one: State, other: State) -> list[str]:
    """The names of what differs between two states, to the bit (a NaN equals itself)."""
    names = sorted({*one.tensors, *other.tensors})
    found = [name for name in names if content(one, name) != content(other, name)]
    return found if one.meta == other.meta else [*found, "meta"]


def content(state: State, name: str) -> bytes | None:
    if name not in state.tensors:
        return None
    return b"".join(state_chunks(State({name: state.tensors[name]})))


def comparable(row: MetricsRow, *, ledger: bool) -> MetricsRow:
    """Without what is measured; without `ledger`, without costs and refusals too."""
    if not ledger:
        return replace(row, ledger=(), totals=Totals(), refused=(), replies=0, updates={})
    lines = [replace(line, seconds=None, memory=None) for line in row.ledger]
    return replace(row, ledger=tuple(lines), totals=timeless(row.totals))


def timeless(totals: Totals) -> Totals:
    return replace(totals, seconds=0.0, clock=0.0, wall=0.0)
