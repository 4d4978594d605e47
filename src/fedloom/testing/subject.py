"""The method under test, and the plain run of it that many tests look at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import pytest

from fedloom.federation.protocol.wire import read_reply, reply_chunks
from fedloom.methods import stages
from fedloom.testing.engines import Exchange
from fedloom.testing.toy import Toy, Trace, Wrap, unchanged
from fedloom.testing.watch import ClientLog, ServerLog
from fedloom.types import Json, Reply, Task


class Exempting:
    """Lets a test class skip some tests, with a reason."""

    # By the test's name without "test_", the reason why it cannot hold.
    exempt: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture(autouse=True)
    def _exempted(self, request: pytest.FixtureRequest) -> None:
        reason = self.exempt.get(request.node.originalname.removeprefix("test_"))
        if reason is not None:
            pytest.skip(reason)


class Subject(Exempting):
    """The attributes by which a test class describes its method."""

    method: ClassVar[str]  # a registered name, or path/file.py:Name
    options: ClassVar[Mapping[str, Json]] = {}  # in addition to those that make the toy tiny
    rounds: ClassVar[int] = 4  # of the whole run, over all stages

    @pytest.fixture
    def toy(self) -> Toy:
        return Toy.of(self.method, self.options, self.rounds)


@dataclass(frozen=True)
class Finished:
    """A run that has ended, which many tests read."""

    toy: Toy
    trace: Trace
    server: ServerLog
    clients: ClientLog


def finished(toy: Toy, engine: Wrap = unchanged) -> Finished:
    """The run of this toy with this engine, made once for all tests that look at it."""
    task = toy.task
    options = json.dumps(task.options)
    return _finished(task.method, options, toy.rounds, task.seed, toy.by_clock, engine)


@cache
def _finished(
    method: str,
    options: str,
    rounds: int,
    seed: int,
    by_clock: bool,
    engine: Wrap,
) -> Finished:
    server = ServerLog()
    clients = ClientLog()
    toy = replace(Toy.of(method, json.loads(options), rounds, seed), by_clock=by_clock)
    trace = toy.run_apart(engine=engine, server=server.watch, client=clients.watch)
    return Finished(toy, trace, server, clients)


def work_of(trace: Trace) -> list[Exchange]:
    """The exchanges for which a method's client side worked."""
    work = []
    for exchange in trace.exchanges:
        if exchange.order.kind not in ("describe", "evaluate"):
            work.append(exchange)
    return work


def described(task: Task) -> list[Any]:
    """A task's stages as values that can be compared."""
    rows = []
    for stage in stages(task):
        rows.append((stage.name, stage.share, type(stage.method), vars(stage.method)))
    return rows


def posted(reply: Reply) -> Reply:
    """A reply after it has passed through the wire format."""
    return read_reply(b"".join(reply_chunks(reply)))
