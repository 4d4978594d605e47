"""The engine with a grid that misbehaves: no reply counts twice, and none keeps others waiting."""

import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")
pytestmark = pytest.mark.flower


class Grid:
    """Answers what it is told to, an answer a look at each message."""

    def __init__(self, stuck=(), twice=(), failing=()):
        self.stuck = set(stuck)
        self.twice = set(twice)
        self.failing = set(failing)
        self.ended = threading.Event()
        self.looks = []

    def pull_messages(self, ids):
        self.looks.append(list(ids))
        messages = []
        for one in ids:
            if one in self.failing:
                raise ConnectionError("gone")
            if one in self.stuck:
                self.ended.wait(30)
                continue
            messages += [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=one))] * (
                1 + (one in self.twice)
            )
        return messages


def fetched(grid, ids, *, thread_per_reply, count):
    from deployment import wait_for

    from fedloom.federation.engines.flower.engine import replies_of

    messages = []
    with replies_of(grid, thread_per_reply=thread_per_reply) as look:

        def enough():
            messages.extend(message.metadata.reply_to_message_id for message in look(ids))
            return len(messages) >= count

        assert wait_for(enough, 10)
    grid.ended.set()
    return sorted(messages)


def test_a_reply_that_never_becomes_whole_keeps_nobody_waiting():
    assert fetched(Grid(stuck="b"), ["a", "b", "c"], thread_per_reply=True, count=2) == ["a", "c"]


def test_a_message_is_fetched_once_however_often_it_is_looked_for():
    grid = Grid(twice="a")
    assert fetched(grid, ["a", "b"], thread_per_reply=True, count=2) == ["a", "b"]
    assert sorted(grid.looks) == [["a"], ["b"]]


def test_a_simulations_replies_come_together():
    grid = Grid()
    assert fetched(grid, ["a", "b"], thread_per_reply=False, count=2) == ["a", "b"]
    assert grid.looks == [["a", "b"]]


def test_a_server_that_is_gone_is_not_waited_for():
    with pytest.raises(ConnectionError):
        fetched(Grid(failing="a"), ["a"], thread_per_reply=True, count=1)


class Echo:
    """A grid whose every site replies twice to each order, and once to one that was never sent."""

    def push_messages(self, messages):
        self.ids = [f"order-{number}" for number, _ in enumerate(messages)]
        return self.ids

    def pull_messages(self, ids):
        def reply(to):
            failed = SimpleNamespace(code=0, reason="nothing to say")
            return SimpleNamespace(
                metadata=SimpleNamespace(reply_to_message_id=to),
                has_error=lambda: True,
                error=failed,
            )

        return [reply(to) for to in [*ids, "nobody's", *ids]]


def test_duplicate_and_foreign_replies_are_counted_once_or_not_at_all(monkeypatch):
    from fedloom.federation.engines.flower.engine import FlowerEngine, Sender
    from fedloom.federation.protocol.parcels import Parcel
    from fedloom.federation.protocol.wire import Body

    monkeypatch.setattr(
        Sender, "message", lambda self, parcel, node, deadline: node
    )  # Flower's wants a real run
    parcels = [Parcel(client, b"head", Body({}), None) for client in (0, 1)]
    answers = list(FlowerEngine(Echo(), {0: 7, 1: 8}).ask(parcels, None))
    assert [parcel.client for parcel, _ in answers] == [0, 1]
    assert all(envelope.fault.text == "Flower reports: nothing to say" for _, envelope in answers)
