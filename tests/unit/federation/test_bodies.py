"""Bodies of orders on the disk: written as workers become free, and never more than workers + 2."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from multiprocessing import Pipe

import pytest
import torch

from fedloom.federation.engines import bodies as bodies_module
from fedloom.federation.engines import frames, local
from fedloom.federation.engines.bodies import Bodies
from fedloom.federation.engines.local import LocalEngine
from fedloom.federation.engines.worker_pool import Pool
from fedloom.federation.protocol.envelope import Envelope
from fedloom.federation.protocol.parcels import Parcel, Slot
from fedloom.federation.protocol.wire import Body

LARGE = 1 << 13  # elements: more than an order carries inside


@dataclass
class FakeWorker:
    """Answers at once, but reads an order's body only when its answer is fetched."""

    seconds: float
    up: bool = True
    jobs: deque = field(default_factory=deque)
    maps: deque = field(default_factory=deque)
    mapped: list = field(default_factory=list)
    has_answered = False  # everything is asked of its socket

    def __post_init__(self):
        self.connection, self.theirs = Pipe()

    def give(self, job, site, body):
        self.jobs.append(job)
        self.maps.append(body)
        self.theirs.send_bytes(b"done")

    def send(self):
        pass

    def result(self):
        self.connection.recv_bytes()
        parcel = self.jobs.popleft().parcel
        path = self.maps.popleft()
        if path is None:
            self.mapped.append((parcel.client, None))
        else:
            assert path.read_bytes() == b"".join(parcel.body.chunks)
            self.mapped.append((parcel.client, path.name))
        return Envelope(self.seconds)


def body_of(value, size=LARGE):
    return Body({"w": torch.full((size,), float(value))})


def parcels_of(bodies, folder):
    return [
        Parcel(client, b"", body, Slot(str(folder), f"{client}.reply"))
        for client, body in enumerate(bodies)
    ]


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Send orders with these bodies.

    Returns the largest number of files, and the body that each client's worker mapped.
    """

    def carry_out(bodies, workers, seconds=1.0):
        folder = tmp_path / "exchange"
        folder.mkdir(exist_ok=True)
        most = []

        def counted(path, chunks, *, durable):
            path.write_bytes(b"".join(chunks))
            most.append(len(list(folder.iterdir())))

        monkeypatch.setattr(bodies_module, "write_whole", counted)
        pool = Pool(workers, workers=[FakeWorker(seconds) for _ in range(workers)])
        engine = LocalEngine(None, folder, pool)
        answered = [parcel.client for parcel, _ in engine.ask(parcels_of(bodies, tmp_path), None)]
        assert sorted(answered) == list(range(len(bodies)))
        assert list(folder.iterdir()) == []
        mapped = {}
        for worker in pool.workers:
            mapped.update(worker.mapped)
        return most, mapped

    return carry_out


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
@pytest.mark.parametrize("seconds", [1.0, 0.0], ids=["long", "brief"])
def test_no_more_than_workers_and_two_are_on_the_disk(workers, seconds, ask):
    most, mapped = ask([body_of(client) for client in range(20)], workers, seconds)
    assert max(most) == workers + 2
    assert len(most) == 20 and len(set(mapped.values())) == 20


@pytest.mark.parametrize("seconds", [1.0, 0.0], ids=["long", "brief"])
def test_a_body_that_all_share_is_written_once(seconds, ask):
    most, mapped = ask([body_of(1)] * 12, 2, seconds)
    assert most == [1] and set(mapped.values()) == {"1.body"}


def test_no_more_waits_in_a_socket_than_it_holds(tmp_path, monkeypatch):
    """A full one would stop the server, which then could not see that a worker hangs."""
    most = 0
    give = FakeWorker.give

    def watched(self, job, site, body):
        nonlocal most
        give(self, job, site, body)
        if len(self.jobs) > 1:
            most = max(most, sum(len(waiting.parcel.head) for waiting in self.jobs))

    monkeypatch.setattr(FakeWorker, "give", watched)
    body = body_of(1, size=1)
    head = bytes(20_000)
    parcels = [
        Parcel(client, head, body, Slot(str(tmp_path), f"{client}.reply")) for client in range(20)
    ]
    pool = Pool(2, workers=[FakeWorker(0.0) for _ in range(2)])
    assert len(list(LocalEngine(None, tmp_path, pool).ask(parcels, None))) == 20
    assert 20_000 < most <= local.MOST_WAITING


def test_an_order_that_is_larger_than_a_socket_goes_to_a_free_worker(tmp_path):
    parcel = Parcel(
        0, bytes(local.MOST_WAITING + 1), body_of(1, size=1), Slot(str(tmp_path), "0.reply")
    )
    pool = Pool(1, workers=[FakeWorker(0.0)])
    assert len(list(LocalEngine(None, tmp_path, pool).ask([parcel, parcel], None))) == 2


def test_a_message_is_written_whole_however_much_the_kernel_takes_at_a_time(monkeypatch):
    taken = bytearray()

    def a_little(handle, data):
        taken.extend(data[:3])
        return min(3, len(data))

    monkeypatch.setattr(frames.os, "write", a_little)
    frames.write_all(0, b"orders of a moment")
    assert bytes(taken) == b"orders of a moment"


def test_nothing_is_written_before_a_worker_is_free(ask, monkeypatch):
    """When the first order is handed out, one body is on the disk."""
    seen = []
    give = FakeWorker.give

    def watched(self, job, site, body):
        seen.append(len(list(body.parent.iterdir())))
        give(self, job, site, body)

    monkeypatch.setattr(FakeWorker, "give", watched)
    ask([body_of(client) for client in range(5)], 2)
    assert seen == [1, 2, 3, 4, 4]


def test_a_shared_body_outlives_many_of_clients_own(ask):
    """Every second order has the shared one: it is always among the last that were needed."""
    shared = body_of(7)
    bodies = []
    for client in range(10):
        bodies += [body_of(client), shared]
    most, _ = ask(bodies, 2)
    assert len(most) == 11 and max(most) == 4


def test_more_shared_bodies_than_there_is_room_for_are_written_again(ask):
    kinds = [body_of(kind) for kind in range(6)]
    most, _ = ask(kinds * 3, 2)
    assert max(most) == 4 and len(most) > 6


def test_small_bodies_go_with_their_orders(ask):
    most, mapped = ask([body_of(client, size=10) for client in range(6)], 2)
    assert most == [] and set(mapped.values()) == {None}


def test_what_a_worker_may_still_map_is_never_deleted(tmp_path):
    bodies = Bodies(tmp_path, 2)
    one = body_of(1)
    two = body_of(2)
    three = body_of(3)
    in_use = {id(one), id(two)}
    paths = [bodies.written(body, in_use) for body in (one, two)]
    assert not bodies.has_room(three, in_use)
    assert bodies.has_room(one, in_use) and bodies.has_room(body_of(4, size=1), in_use)
    assert bodies.has_room(three, {id(one)})
    new = bodies.written(three, {id(one)})
    assert [path.exists() for path in (*paths, new)] == [True, False, True]
    bodies.clear()
    assert list(tmp_path.iterdir()) == []
