"""The method under test, and its plain run that many promises look at."""

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
from fedloom.testing.toy import Toy, Trace
from fedloom.testing.watch import ClientLog, ServerLog
from fedloom.types import Json, Reply, Task


class Exempting:
    """Tests that a test class may leave out, with a reason."""

    exempt: ClassVar[Mapping[str, str]] = {}  # a test's name without "test_": why it cannot hold

    @pytest.fixture(autouse=True)
    def _exempted(self, request: pytest.FixtureRequest) -> None:
        reason = self.exempt.get(request.node.originalname.removeprefix("test_"))
        if reason is not None:
            pytest.skip(reason)


class Subject(Exempting):
    """What a test class says of its method."""

    method: ClassVar[str]  # a registered name, or path/file.py:Name
    options: ClassVar[Mapping[str, Json]] = {}  # beyond the tiny ones of the toy
    rounds: ClassVar[int] = 4  # of the whole run, all stages together

    @pytest.fixture
    def toy(self) -> Toy:
        return Toy.of(self.method, self.options, self.rounds)


@dataclass(frozen=True)
class Finished:
    trace: Trace
    server: ServerLog
    clients: ClientLog


def finished(toy: Toy) -> Finished:
    """The run of `Toy.of` with this method, made once for all the tests that look at it."""
    task = toy.task
    options = json.dumps(task.options)
    return _finished(task.method, options, toy.rounds, task.seed, by_clock=toy.by_clock)


@cache
def _finished(
    method: str,
    options: str,
    rounds: int,
    seed: int,
    *,
    by_clock: bool,
) -> Finished:
    server = ServerLog()
    clients = ClientLog()
    toy = replace(Toy.of(method, json.loads(options), rounds, seed), by_clock=by_clock)
    trace = toy.run_apart(server=server.watch, client=clients.watch)
    return Finished(trace, server, clients)


def work_of(trace: Trace) -> list[Exchange]:
    """The exchanges that a method's client side worked for."""
    work = []
    for exchange in trace.exchanges:
        if exchange.order.kind not in ("describe", "evaluate"):
            work.append(exchange)
    return work


def described(task: Task) -> list[Any]:
    """A task's stages as something to compare."""
    rows = []
    for stage in stages(task):
        rows.append((stage.name, stage.share, type(stage.method), vars(stage.method)))
    return rows


def posted(reply: Reply) -> Reply:
    """A reply as the wire would bring it."""
    return read_reply(b"".join(reply_chunks(reply)))
