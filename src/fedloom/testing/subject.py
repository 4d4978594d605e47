"""The method under test, and the plain run of it that many tests look at."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fedloom.federation.protocol.wire import read_reply, reply_chunks
from fedloom.methods import stages
from fedloom.testing.engines import Exchange
from fedloom.testing.toy import Toy, Trace, Wrap, differences, unchanged
from fedloom.testing.watch import ClientLog, ServerLog, stirred
from fedloom.types import Json, Reply, Task

MOST_SHOWN = 5  # differences that a failure names
# Tests that compare the plain run with another one, which must be equal to it.
COMPARISONS = (
    "test_a_network_that_served_before_is_as_good_as_a_new_one",
    "test_a_refused_reply_is_no_reply",
    "test_an_absurd_update_is_no_reply",
    "test_evaluation_only_reads",
    "test_identical_clients_are_one",
    "test_never_sees_the_test_part",
    "test_reply_order_is_irrelevant",
    "test_sealed_state_leaves_no_trace",
    "test_stopped_and_resumed",
    "test_stopped_and_resumed_with_the_best_round",
    "test_two_levels_are_one",
)


class Exempting:
    """Lets a test class skip some tests, with a reason."""

    # By the test's name without "test_", the reason why it cannot hold.
    exempt: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture(autouse=True)
    def _exempted(self, request: pytest.FixtureRequest) -> None:
        reason = self.exempt.get(request.node.originalname.removeprefix("test_"))
        if reason is not None:
            pytest.skip(reason)


def beside(test_class: type, name: str) -> str:
    """`file.py:Name` as it is, or beside the test file if it is there and not in this folder."""
    path, colon, method_name = name.partition(".py:")
    file = Path(f"{path}.py")
    beside_test = Path(inspect.getfile(test_class)).parent / file
    if not colon or file.is_file() or not beside_test.is_file():
        return name
    return f"{beside_test}:{method_name}"


class Subject(Exempting):
    """The attributes by which a test class describes its method."""

    # A registered name, or path/file.py:Name from the current folder or from the test file's.
    method: ClassVar[str]
    options: ClassVar[Mapping[str, Json]] = {}  # in addition to those that make the toy tiny
    rounds: ClassVar[int] = 4  # of the whole run, over all stages

    @pytest.fixture
    def toy(self) -> Toy:
        return Toy.of(beside(type(self), self.method), self.options, self.rounds)

    @pytest.fixture(autouse=True)
    def _run_ends(self, request: pytest.FixtureRequest, toy: Toy) -> None:
        """Skip what can say nothing, so that the test that shows the cause stands out.

        These are all other tests of a method whose plain run fails, and comparisons of two runs
        of a method that does not repeat itself.
        """
        test = request.node.originalname
        if test == "test_a_run_ends":
            return
        if not ends(toy):
            pytest.skip("the plain run fails: test_a_run_ends shows why")
        if test in COMPARISONS and repeated(toy):
            pytest.skip("two runs with the same seed differ: test_deterministic shows how")

    def test_a_run_ends(self, toy: Toy) -> None:
        """A plain run reaches its end. Where it does not, all other tests are skipped."""
        finished(toy)


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


def ends(toy: Toy) -> bool:
    """Whether the plain run of this toy reaches its end."""
    task = toy.task
    return _ends(task.method, json.dumps(task.options), toy.rounds, task.seed, toy.by_clock)


@cache
def _ends(method: str, options: str, rounds: int, seed: int, by_clock: bool) -> bool:
    try:
        _finished(method, options, rounds, seed, by_clock, unchanged)
    except Exception:  # of the method's code too; test_a_run_ends raises it again
        return False
    return True


def repeated(toy: Toy) -> tuple[str, ...]:
    """What differs if the plain run is repeated with other states of the global generators."""
    task = toy.task
    return _repeated(task.method, json.dumps(task.options), toy.rounds, task.seed, toy.by_clock)


@cache
def _repeated(
    method: str,
    options: str,
    rounds: int,
    seed: int,
    by_clock: bool,
) -> tuple[str, ...]:
    plain = _finished(method, options, rounds, seed, by_clock, unchanged)
    with stirred(12345):
        again = plain.toy.run_apart()
    return tuple(differences(plain.trace, again))


def nothing_differs(names: Sequence[str], meaning: str) -> None:
    """Fail if anything differs, with what that means for the author of a method."""
    __tracebackhide__ = True
    if not names:
        return
    shown = ", ".join(names[:MOST_SHOWN])
    if len(names) > MOST_SHOWN:
        shown += f" and {len(names) - MOST_SHOWN} more"
    raise AssertionError(f"{meaning}\nDifferent: {shown}")


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
