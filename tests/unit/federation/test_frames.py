"""Messages between the server and its workers: whole, in order, however they arrive."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field
from multiprocessing import Pipe

import pytest

from fedloom.federation.engines.frames import AT_ONCE, Inbox, framed, write_all
from fedloom.federation.engines.local import MANY, LocalEngine, is_readable
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.protocol.envelope import Envelope
from fedloom.federation.protocol.parcels import Parcel, Slot
from fedloom.federation.protocol.wire import Body

MESSAGES = [b"first", b"", b"x" * 3000, b"last\n"]


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def test_messages_that_came_together_are_taken_one_by_one(pipe):
    reading, writing = pipe
    write_all(writing, b"".join(map(framed, MESSAGES)))
    inbox = Inbox(reading)
    assert inbox.take() == b"first"
    assert list(inbox.messages) == MESSAGES[1:]
    assert [inbox.take() for _ in MESSAGES[1:]] == MESSAGES[1:]
    os.close(writing)
    with pytest.raises(EOFError):
        inbox.take()


def test_a_message_may_come_in_any_pieces(pipe, monkeypatch):
    reading, writing = pipe
    write_all(writing, b"".join(map(framed, MESSAGES)))
    os.close(writing)
    read = os.read
    monkeypatch.setattr(os, "read", lambda handle, most: read(handle, 3))
    inbox = Inbox(reading)
    assert [inbox.take() for _ in MESSAGES] == MESSAGES
    with pytest.raises(EOFError):
        inbox.take()


def test_what_came_whole_is_there_after_the_sender_died_in_the_middle_of_the_next(pipe):
    reading, writing = pipe
    write_all(writing, framed(b"whole") + framed(b"torn by a kill")[:-1])
    os.close(writing)
    inbox = Inbox(reading)
    assert inbox.take() == b"whole"
    with pytest.raises(EOFError):
        inbox.take()


def test_a_message_larger_than_a_read_is_whole():
    ours, theirs = Pipe()
    large = bytes(range(256)) * (AT_ONCE // 100)
    pid = os.fork()
    if pid == 0:
        write_all(theirs.fileno(), framed(large))
        os._exit(0)
    assert Inbox(ours.fileno()).take() == large
    os.waitpid(pid, 0)


# How many orders a worker gets at first


@dataclass
class AnsweringWorker:
    """Notes how many orders it had when it was first sent some; its answers are there at once."""

    seconds: float
    up: bool = True
    jobs: deque = field(default_factory=deque)
    dealt: list = field(default_factory=list)
    has_answered = True

    def give(self, job, site, body):
        self.jobs.append(job)

    def send(self):
        self.dealt.append(len(self.jobs))

    def result(self):
        self.jobs.popleft()
        return Envelope(self.seconds)


def asked(engine, kind, count=10):
    worker = engine.pool.workers[0]
    worker.dealt.clear()
    parcels = [Parcel(client, b"", Body({}), Slot("", ""), kind) for client in range(count)]
    assert len(list(engine.ask(parcels, 60.0))) == count
    return worker.dealt[0]


def test_a_kind_of_order_that_took_a_moment_is_dealt_out_at_once(tmp_path):
    engine = LocalEngine(None, tmp_path, Pool(1, workers=[AnsweringWorker(0.0)]))
    assert asked(engine, "train") == 1
    assert asked(engine, "train") == MANY
    assert asked(engine, "evaluate") == 1


def test_a_kind_that_takes_long_again_is_dealt_out_one_by_one(tmp_path):
    worker = AnsweringWorker(0.0)
    engine = LocalEngine(None, tmp_path, Pool(1, workers=[worker]))
    asked(engine, "train")
    worker.seconds = 1.0
    assert asked(engine, "train") == MANY
    assert asked(engine, "train") == 1


def test_an_answer_that_was_read_already_is_not_late():
    """Its process may have died or hang since; what it said before counts."""
    worker = AnsweringWorker(0.0)
    worker.connection, theirs = Pipe()
    assert is_readable(worker)
    worker.has_answered = False
    assert not is_readable(worker)
    theirs.close()
    assert is_readable(worker)
