"""The default engine: worker processes on this machine, one torch thread each.

Two processes of one thread beat one of two threads by far, and one thread everywhere is what makes
results equal to the bit for any number of workers. Workers are started once and can serve several
runs (`compare`).

A worker that dies is replaced and its order tried once more: whoever killed it may have meant the
whole run, which must then resume as if nothing had happened. A client whose code kills two workers
is refused.
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from fedloom.errors import RunStopped
from fedloom.federation.engines.frames import Inbox, framed, write_all
from fedloom.federation.engines.inline import late
from fedloom.federation.engines.worker import SiteSpec
from fedloom.federation.protocol.deaths import Death, in_words
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.parcels import Parcel, is_small
from fedloom.federation.protocol.wire import Body
from fedloom.files import write_whole

log = logging.getLogger("fedloom")

ATTEMPTS = 2
# Seconds: a process whose socket is closed is about to end, but may have much memory to give back.
DYING = 5.0
SPARE_BODIES = 2  # that may be on the disk beside one a worker
# Seconds that an order takes. Shorter ones wait for a busy worker, two or many of them;
# a longer one is handed out to a free worker only.
BRIEF = 0.01
MOMENT = 0.001
MANY = 8
# Bytes of orders that may wait in a worker's socket. If it were full, the server would wait for a
# worker that hangs, and would not notice that its time is over.
MOST_WAITING = 1 << 16


class Worker:
    """One process, and our ends of its socket and its lifeline."""

    def __init__(self, output: IO[bytes] | int) -> None:
        self.connection, theirs = Pipe()
        self.inbox = Inbox(self.connection.fileno())
        lifeline, self.lifeline = os.pipe()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        inherited = (theirs.fileno(), lifeline)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fedloom.runs.worker", *map(str, inherited)],
            pass_fds=inherited,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        theirs.close()
        os.close(lifeline)
        self.site: SiteSpec | None = None
        # It works at the first; others may wait in the socket.
        self.jobs: deque[Job] = deque()
        self.unsent: list[bytes] = []  # messages that go out together
        # It takes seconds to start: no client's deadline may run before it is there.
        self.up = False
        self._ping()

    def give(self, job: Job, site: SiteSpec, body: Path | None) -> None:
        """It gets the job with the next `send`."""
        self.jobs.append(job)
        if self.site != site:
            self.unsent.append(framed(json.dumps({"site": site.to_json()}).encode()))
            self.site = site
        self.unsent.append(framed(message_of(job.parcel, body)))

    def send(self) -> None:
        """All that it was given, by one call of the kernel."""
        if not self.unsent:
            return
        messages = b"".join(self.unsent)
        self.unsent.clear()
        with suppress(BrokenPipeError, ConnectionResetError):  # if it died, waiting for it tells
            write_all(self.connection.fileno(), messages)
        if not self.jobs[0].started:
            self.jobs[0].started = time.monotonic()

    @property
    def has_answered(self) -> bool:
        """Whether an answer of it was read already, and nobody need wait for the next."""
        return bool(self.inbox.messages)

    def result(self) -> Envelope | None:
        """Of its first job. None: it died."""
        try:
            text, _, reply = self.inbox.take().partition(b"\n")
        except (EOFError, OSError):  # it may have died in the middle of a message
            return None
        self.jobs.popleft().parcel.reply.held = reply or None
        if self.jobs:
            self.jobs[0].started = time.monotonic()
        return Envelope.from_json(json.loads(text.decode()))

    def answers(self, seconds: float) -> bool:
        """Whether the process is up within so many seconds."""
        if self.up:
            self._ping()
        try:
            self.up = self.connection.poll(seconds) and bool(self.inbox.take())
        except (EOFError, OSError):
            self.up = False
        return self.up

    def _ping(self) -> None:
        with suppress(OSError):  # if it died, waiting for the answer tells
            write_all(self.connection.fileno(), framed(b'{"ping": true}'))

    def death(self) -> Death:
        """How its process ended; to be asked when its socket is closed."""
        try:
            return Death(self.process.wait(DYING))
        except subprocess.TimeoutExpired:
            return Death(None)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()
        os.close(self.lifeline)


def heard(connections: Collection[Connection], seconds: float | None) -> set[int]:
    """The handles of those with something to read, or closed; None: wait for one, however long."""
    poll = select.poll()
    for connection in connections:
        poll.register(connection.fileno(), select.POLLIN)
    patience = None
    if seconds is not None:
        patience = 1000 * seconds
    return {handle for handle, _ in poll.poll(patience)}


@dataclass
class Job:
    parcel: Parcel
    deaths: tuple[Death, ...] = ()  # of processes that worked at it before
    started: float = 0.0

    @cached_property
    def size(self) -> int:
        """What it takes of a worker's socket."""
        if is_small(self.parcel.body.size):
            return self.parcel.size
        return len(self.parcel.head)


def message_of(parcel: Parcel, body: Path | None) -> bytes:
    """An order as a worker reads it; `body` is the file of a large one, which is not inside."""
    slot = parcel.reply
    places: dict[str, str | None] = {"body": None, "folder": slot.folder, "reply": slot.name}
    inside = parcel.body.chunks
    if body is not None:
        places["body"] = str(body)
        inside = []
    return b"".join([json.dumps(places).encode(), b"\n", parcel.head, *inside])


@dataclass
class Pool:
    """Worker processes, started when first needed."""

    size: int
    output: IO[bytes] | int = subprocess.DEVNULL
    workers: list[Worker] = field(default_factory=list)
    stillborn: int = 0  # that died while starting, one after the other

    def start(self) -> None:
        """Processes take seconds to import torch: start them before doing anything else."""
        while len(self.workers) < self.size:
            self.workers.append(Worker(self.output))

    def wait(self, seconds: float = 120.0) -> None:
        """Until all of them are up, so that no round's time has their start in it."""
        self.start()
        for worker in self.workers:
            if not worker.answers(seconds):
                raise no_start(worker)

    def greet(self, worker: Worker) -> None:
        """A new worker is up, or died before it was.

        Then another one takes its place, but not for ever.
        """
        if worker.answers(0.0):
            self.stillborn = 0
            return
        self.stillborn += 1
        if self.stillborn > ATTEMPTS:
            raise no_start(worker)
        self.replace(worker)

    def replace(self, worker: Worker) -> None:
        worker.stop()
        self.workers[self.workers.index(worker)] = Worker(self.output)

    def close(self) -> None:
        while self.workers:
            self.workers.pop().stop()


def no_start(worker: Worker) -> RunStopped:
    return RunStopped(
        "a worker process must start",
        f"one {worker.death()}",
        "run `fedloom doctor`, then resume the run",
    )


class Bodies:
    """Bodies of orders as files, which all workers that need them map.

    Each is written when an order with it is handed out. Where clients' tensors differ there is one
    a client, so no more of them are on the disk than `most`: the one that was not needed for
    longest goes first, and is written again if another order needs it.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder
        self.most = most
        self.paths: dict[int, Path] = {}  # by the id of the body; the last one was needed last
        self.count = 0  # that were ever written, which names the next

    def has_room(self, body: Body, in_use: Collection[int]) -> bool:
        if is_small(body.size) or id(body) in self.paths or len(self.paths) < self.most:
            return True
        return any(key not in in_use for key in self.paths)

    def written(self, body: Body, in_use: Collection[int]) -> Path | None:
        """Where a body is, which there must be room for. None: a small one goes with its order."""
        if is_small(body.size):
            return None
        path = self.paths.pop(id(body), None)
        if path is None:
            self._make_room(in_use)
            self.count += 1
            path = self.folder / f"{self.count}.body"
            write_whole(path, body.chunks, durable=False)
        self.paths[id(body)] = path
        return path

    def _make_room(self, in_use: Collection[int]) -> None:
        for key in list(self.paths):
            if len(self.paths) < self.most:
                return
            if key not in in_use:
                self.paths.pop(key).unlink(missing_ok=True)

    def clear(self) -> None:
        while self.paths:
            _, path = self.paths.popitem()
            path.unlink(missing_ok=True)


@dataclass
class LocalEngine:
    site: SiteSpec
    folder: Path  # for the bodies of orders; wiped by whoever opens the run
    pool: Pool

    def __post_init__(self) -> None:
        self.bodies = Bodies(self.folder, self.pool.size + SPARE_BODIES)
        # How long the latest order of each kind took.
        self.seconds: dict[str, float] = {}

    def ask(
        self,
        parcels: Sequence[Parcel],
        deadline: float | None,
    ) -> Iterator[tuple[Parcel, Envelope]]:
        self.pool.start()
        queue = deque(Job(parcel) for parcel in parcels)
        at_once = self._at_once(parcels)
        try:
            self._deal(queue, at_once)
            while queue or any(worker.jobs for worker in self.pool.workers):
                for worker in self._ready(deadline):
                    parcel = worker.jobs[0].parcel
                    envelope = self._collect(worker, queue, deadline)
                    if envelope is not None:
                        self.seconds[parcel.kind] = envelope.seconds
                        at_once = orders_at_once(envelope.seconds)
                    self._deal(queue, at_once)  # nobody shall wait while this reply is looked at
                    if envelope is not None:
                        yield parcel, envelope
                self._deal(queue, at_once)
        finally:
            for worker in list(self.pool.workers):
                if worker.jobs:  # only if we were interrupted
                    self.pool.replace(worker)
            self.bodies.clear()

    def _at_once(self, parcels: Sequence[Parcel]) -> int:
        """Orders a worker at first: one, unless it is known how long such orders take."""
        kinds = {parcel.kind for parcel in parcels}
        return orders_at_once(max((self.seconds.get(kind, inf) for kind in kinds), default=inf))

    def _deal(self, queue: deque[Job], at_once: int) -> None:
        """Orders for workers that are free or have few left, one after the other to each of them.

        An order whose body has no room on the disk waits until a worker is done with another.
        """
        if not queue:
            return
        few = at_once // 2
        hungry = [worker for worker in self.pool.workers if worker.up and len(worker.jobs) <= few]
        for depth in range(1, at_once + 1):
            for worker in hungry:
                if len(worker.jobs) < depth:
                    self._give_next(worker, queue)
        for worker in hungry:
            worker.send()

    def _give_next(self, worker: Worker, queue: deque[Job]) -> None:
        if not queue or not has_room_for(worker, queue[0]):
            return
        body = queue[0].parcel.body
        in_use = self._in_use(body)
        if self.bodies.has_room(body, in_use):
            worker.give(queue.popleft(), self.site, self.bodies.written(body, in_use))

    def _in_use(self, body: Body) -> set[int]:
        """The ids of bodies that a worker may still have to map, if this one needs room."""
        if is_small(body.size):
            return set()
        return {id(job.parcel.body) for worker in self.pool.workers for job in worker.jobs}

    def _ready(self, deadline: float | None) -> list[Worker]:
        """Workers with an answer, dead, or out of time."""
        busy = [worker for worker in self.pool.workers if worker.jobs]
        answered = [worker for worker in busy if worker.has_answered]
        if answered:
            return answered
        starting = [worker for worker in self.pool.workers if not worker.up]
        patience = None
        if deadline is not None and busy:
            first = min(worker.jobs[0].started for worker in busy)
            patience = max(0.0, first + deadline - time.monotonic())
        waited_for = [worker.connection for worker in [*busy, *starting]]
        speaking = heard(waited_for, patience)
        for worker in starting:
            if worker.connection.fileno() in speaking:
                self.pool.greet(worker)
        now = time.monotonic()
        ready = []
        for worker in busy:
            is_late = deadline is not None and now - worker.jobs[0].started >= deadline
            if is_late or worker.connection.fileno() in speaking:
                ready.append(worker)
        return ready

    def _collect(
        self,
        worker: Worker,
        queue: deque[Job],
        deadline: float | None,
    ) -> Envelope | None:
        """What became of a worker's first job: an answer or a refusal.

        None: the job will be tried again.
        """
        job = worker.jobs[0]
        if deadline is not None and not has_spoken(worker):
            seconds = self._take_back(worker, queue)
            self.pool.replace(worker)
            return Envelope(seconds, fault=late(deadline), deaths=job.deaths)
        envelope = worker.result()
        if envelope is None:
            return self._after_death(worker, queue)
        if job.deaths:
            return replace(envelope, deaths=job.deaths)
        return envelope

    def _after_death(self, worker: Worker, queue: deque[Job]) -> Envelope | None:
        """The job of a worker that died is tried once more (None), or given up."""
        job = worker.jobs[0]
        seconds = self._take_back(worker, queue)
        death = worker.death()
        self.pool.replace(worker)
        deaths = (*job.deaths, death)
        if len(deaths) < ATTEMPTS:
            log.warning(
                "client %d: its process %s; its order is given to another one",
                job.parcel.client,
                death,
            )
            queue.append(Job(job.parcel, deaths))
            return None
        return Envelope(seconds, fault=Fault("died", in_words(*deaths)), deaths=deaths)

    @staticmethod
    def _take_back(worker: Worker, queue: deque[Job]) -> float:
        """What a worker had not begun goes back to the queue's head.

        Returns the seconds that it worked at its first job.
        """
        not_begun = list(worker.jobs)[1:]
        queue.extendleft(reversed(not_begun))
        return time.monotonic() - worker.jobs[0].started


def has_spoken(worker: Worker) -> bool:
    """Whether there is an answer, or the process died."""
    return worker.has_answered or bool(heard([worker.connection], 0.0))


def has_room_for(worker: Worker, job: Job) -> bool:
    """Whether one more order may wait in a worker's socket. One that is free reads any."""
    if not worker.jobs:
        return True
    waiting = sum([earlier.size for earlier in worker.jobs])
    return waiting + job.size <= MOST_WAITING


def orders_at_once(seconds: float) -> int:
    """How many orders a worker gets, by how long the latest one took.

    A worker that has the next ones in its socket need not wait for the server. But an order that
    waits behind a long one waits in vain while another worker is free.
    """
    if seconds < MOMENT:
        return MANY
    if seconds < BRIEF:
        return 2
    return 1
