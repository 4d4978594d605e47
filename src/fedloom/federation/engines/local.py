"""The default engine: worker processes on this machine, with one torch thread each.

Two processes with one thread each are much faster than one process with two threads, and one thread
everywhere makes results equal to the bit for any number of workers. Workers are started once and
can serve several runs (`compare`).

A worker that dies is replaced, and its order is tried once more: whoever killed it may have meant
the whole run, which must then resume as if nothing had happened. A client whose code kills two
workers is refused.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from fedloom.federation.engines.bodies import Bodies
from fedloom.federation.engines.inline import late
from fedloom.federation.engines.worker import SiteSpec
from fedloom.federation.engines.worker_pool import ATTEMPTS, Job, Pool, Worker, readable_handles
from fedloom.federation.protocol.deaths import in_words
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.parcels import Parcel, is_small
from fedloom.federation.protocol.wire import Body

log = logging.getLogger("fedloom")

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
        bodies: set[int] = set()
        for worker in self.pool.workers:
            bodies.update(id(job.parcel.body) for job in worker.jobs)
        return bodies

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
