"""The default engine: worker processes on this machine, with one torch thread each.

Two processes with one thread each are much faster than one process with two threads, and one thread
everywhere makes results equal to the bit for any number of workers. Workers are started once and
can serve several runs (`compare`).

A worker that dies is replaced, and its order is tried once more: whoever killed it may have meant
the whole run, which must then resume as if nothing had happened. A client whose code kills two
workers is refused.
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
# Seconds that a process may take to end after its socket was closed: it may free much memory.
DYING = 5.0
SPARE_BODIES = 2  # bodies that may be on the disk in addition to one per worker
# Orders that take less than `BRIEF` seconds may wait for a busy worker, two at a time, and those
# that take less than `MOMENT` seconds may do so `MANY` at a time. Longer ones go to free workers
# only.
BRIEF = 0.01
MOMENT = 0.001
MANY = 8
# Bytes of orders that may wait in a worker's socket. If the socket were full, the server would
# block on a worker that hangs, and would not notice its deadline.
MOST_WAITING = 1 << 16


class Worker:
    """One worker process, and the server's ends of its socket and its lifeline."""

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
            start_new_session=True,  # only the parent handles Ctrl-C
        )
        theirs.close()
        os.close(lifeline)
        self.site: SiteSpec | None = None
        # The process works on the first job. The others may wait in the socket.
        self.jobs: deque[Job] = deque()
        self.unsent: list[bytes] = []  # messages that are sent together
        # Starting takes seconds, so no client's deadline may begin before the process is up.
        self.up = False
        self._ping()

    def give(self, job: Job, site: SiteSpec, body: Path | None) -> None:
        """Queue a job, which goes out with the next `send`."""
        self.jobs.append(job)
        if self.site != site:
            self.unsent.append(framed(json.dumps({"site": site.to_json()}).encode()))
            self.site = site
        self.unsent.append(framed(message_of(job.parcel, body)))

    def send(self) -> None:
        """Send all queued messages with one system call."""
        if not self.unsent:
            return
        messages = b"".join(self.unsent)
        self.unsent.clear()
        # If the process has died, waiting for its answer will show it.
        with suppress(BrokenPipeError, ConnectionResetError):
            write_all(self.connection.fileno(), messages)
        if not self.jobs[0].started:
            self.jobs[0].started = time.monotonic()

    @property
    def has_answered(self) -> bool:
        """Whether an answer was already read from the socket, so that no wait is needed."""
        return bool(self.inbox.messages)

    def result(self) -> Envelope | None:
        """The envelope of the first job's answer, or None if the process died."""
        try:
            text, _, reply = self.inbox.take().partition(b"\n")
        except (EOFError, OSError):  # the process may have died in the middle of a message
            return None
        self.jobs.popleft().parcel.reply.held = reply or None
        if self.jobs:
            self.jobs[0].started = time.monotonic()
        return Envelope.from_json(json.loads(text.decode()))

    def answers(self, seconds: float) -> bool:
        """Whether the process is up within this many seconds."""
        if self.up:
            self._ping()
        try:
            self.up = self.connection.poll(seconds) and bool(self.inbox.take())
        except (EOFError, OSError):
            self.up = False
        return self.up

    def _ping(self) -> None:
        with suppress(OSError):  # if the process has died, waiting for its answer will show it
            write_all(self.connection.fileno(), framed(b'{"ping": true}'))

    def death(self) -> Death:
        """How the process ended. Call this after its socket was closed."""
        try:
            return Death(self.process.wait(DYING))
        except subprocess.TimeoutExpired:
            return Death(None)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()
        os.close(self.lifeline)


def readable_handles(connections: Collection[Connection], seconds: float | None) -> set[int]:
    """The handles of connections that were closed or have something to read.

    Waits for at most this many seconds; None: until there is one.
    """
    poll = select.poll()
    for connection in connections:
        poll.register(connection.fileno(), select.POLLIN)
    milliseconds = None
    if seconds is not None:
        milliseconds = 1000 * seconds
    return {handle for handle, _ in poll.poll(milliseconds)}


@dataclass
class Job:
    """An order that a worker carries out."""

    parcel: Parcel
    deaths: tuple[Death, ...] = ()  # of processes that worked on it before
    started: float = 0.0

    @cached_property
    def size(self) -> int:
        """The bytes that it occupies in a worker's socket."""
        if is_small(self.parcel.body.size):
            return self.parcel.size
        return len(self.parcel.head)


def message_of(parcel: Parcel, body: Path | None) -> bytes:
    """An order as a worker reads it. `body` is the file of a large body, which is not included."""
    slot = parcel.reply
    places: dict[str, str | None] = {"body": None, "folder": slot.folder, "reply": slot.name}
    included = parcel.body.chunks
    if body is not None:
        places["body"] = str(body)
        included = []
    return b"".join([json.dumps(places).encode(), b"\n", parcel.head, *included])


@dataclass
class Pool:
    """Worker processes, which are started when they are first needed."""

    size: int
    output: IO[bytes] | int = subprocess.DEVNULL
    workers: list[Worker] = field(default_factory=list)
    failed_starts: int = 0  # processes in a row that died while starting

    def start(self) -> None:
        """Start the processes. Importing torch takes them seconds, so this should come first."""
        while len(self.workers) < self.size:
            self.workers.append(Worker(self.output))

    def wait(self, seconds: float = 120.0) -> None:
        """Wait until all processes are up, so that no round's time includes their start."""
        self.start()
        for worker in self.workers:
            if not worker.answers(seconds):
                raise not_started(worker)

    def check_started(self, worker: Worker) -> None:
        """Note that a new worker is up, or replace it if it died while starting.

        After too many failed starts in a row the run stops.
        """
        if worker.answers(0.0):
            self.failed_starts = 0
            return
        self.failed_starts += 1
        if self.failed_starts > ATTEMPTS:
            raise not_started(worker)
        self.replace(worker)

    def replace(self, worker: Worker) -> None:
        worker.stop()
        self.workers[self.workers.index(worker)] = Worker(self.output)

    def close(self) -> None:
        while self.workers:
            self.workers.pop().stop()


def not_started(worker: Worker) -> RunStopped:
    return RunStopped(
        "a worker process must start",
        f"one {worker.death()}",
        "run `fedloom doctor`, then resume the run",
    )


class Bodies:
    """Bodies of orders as files, which the workers that need them map into memory.

    A body is written when an order with it is handed out. If clients get different tensors, there
    is one body per client, so at most `most` of them are on the disk. The one that was not needed
    for longest is deleted first, and written again if another order needs it.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder
        self.most = most
        self.paths: dict[int, Path] = {}  # by the id of the body, the latest used last
        self.count = 0  # the number of bodies written so far, which names the next file

    def has_room(self, body: Body, in_use: Collection[int]) -> bool:
        """Whether a body can be written now. Bodies in use cannot be deleted."""
        if is_small(body.size) or id(body) in self.paths or len(self.paths) < self.most:
            return True
        return any(key not in in_use for key in self.paths)

    def written(self, body: Body, in_use: Collection[int]) -> Path | None:
        """The file of a body, for which there must be room.

        None: the body is small and goes with its order.
        """
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
    """Hands out orders to the processes of a pool."""

    site: SiteSpec
    folder: Path  # for the bodies of orders; it is emptied when the run is opened
    pool: Pool

    def __post_init__(self) -> None:
        self.bodies = Bodies(self.folder, self.pool.size + SPARE_BODIES)
        # By kind, how many seconds the latest order took.
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
                    self._deal(queue, at_once)  # no worker should wait while this reply is handled
                    if envelope is not None:
                        yield parcel, envelope
                self._deal(queue, at_once)
        finally:
            for worker in list(self.pool.workers):
                if worker.jobs:  # only after an interruption
                    self.pool.replace(worker)
            self.bodies.clear()

    def _at_once(self, parcels: Sequence[Parcel]) -> int:
        """How many orders a worker gets at first.

        It is one, unless it is known how long orders of these kinds take.
        """
        kinds = {parcel.kind for parcel in parcels}
        return orders_at_once(max((self.seconds.get(kind, inf) for kind in kinds), default=inf))

    def _deal(self, queue: deque[Job], at_once: int) -> None:
        """Hand out orders in turn to the workers that are free or have few left.

        An order whose body does not fit on the disk waits until a worker has finished another.
        """
        if not queue:
            return
        few = at_once // 2
        receivers = []
        for worker in self.pool.workers:
            if worker.up and len(worker.jobs) <= few:
                receivers.append(worker)
        for depth in range(1, at_once + 1):
            for worker in receivers:
                if len(worker.jobs) < depth:
                    self._give_next(worker, queue)
        for worker in receivers:
            worker.send()

    def _give_next(self, worker: Worker, queue: deque[Job]) -> None:
        if not queue or not has_room_for(worker, queue[0]):
            return
        body = queue[0].parcel.body
        in_use = self._in_use(body)
        if self.bodies.has_room(body, in_use):
            worker.give(queue.popleft(), self.site, self.bodies.written(body, in_use))

    def _in_use(self, body: Body) -> set[int]:
        """The ids of bodies that a worker may still have to read.

        If `body` is small and needs no room on the disk, the answer is empty.
        """
        if is_small(body.size):
            return set()
        return {id(job.parcel.body) for worker in self.pool.workers for job in worker.jobs}

    def _ready(self, deadline: float | None) -> list[Worker]:
        """Wait for workers that have an answer, have died, or have exceeded the deadline."""
        busy = [worker for worker in self.pool.workers if worker.jobs]
        answered = [worker for worker in busy if worker.has_answered]
        if answered:
            return answered
        starting = [worker for worker in self.pool.workers if not worker.up]
        patience = None
        if deadline is not None and busy:
            first = min(worker.jobs[0].started for worker in busy)
            patience = max(0.0, first + deadline - time.monotonic())
        connections = [worker.connection for worker in [*busy, *starting]]
        readable = readable_handles(connections, patience)
        for worker in starting:
            if worker.connection.fileno() in readable:
                self.pool.check_started(worker)
        now = time.monotonic()
        ready = []
        for worker in busy:
            is_late = deadline is not None and now - worker.jobs[0].started >= deadline
            if is_late or worker.connection.fileno() in readable:
                ready.append(worker)
        return ready

    def _collect(
        self,
        worker: Worker,
        queue: deque[Job],
        deadline: float | None,
    ) -> Envelope | None:
        """The outcome of a worker's first job: an answer or a fault.

        None: the job will be tried again.
        """
        job = worker.jobs[0]
        if deadline is not None and not is_readable(worker):
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
        """Put the job of a dead worker back into the queue (None), or give it up."""
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
        """Put the jobs that a worker has not begun back at the head of the queue.

        Returns the seconds that it has worked on its first job.
        """
        not_begun = list(worker.jobs)[1:]
        queue.extendleft(reversed(not_begun))
        return time.monotonic() - worker.jobs[0].started


def is_readable(worker: Worker) -> bool:
    """Whether a worker has answered or died."""
    return worker.has_answered or bool(readable_handles([worker.connection], 0.0))


def has_room_for(worker: Worker, job: Job) -> bool:
    """Whether one more order fits into a worker's socket. A free worker reads any order."""
    if not worker.jobs:
        return True
    waiting = sum([earlier.size for earlier in worker.jobs])
    return waiting + job.size <= MOST_WAITING


def orders_at_once(seconds: float) -> int:
    """How many orders a worker gets at once, given how long the latest one took.

    A worker that has its next orders in the socket need not wait for the server. But an order that
    waits behind a long one loses time if another worker is free.
    """
    if seconds < MOMENT:
        return MANY
    if seconds < BRIEF:
        return 2
    return 1
