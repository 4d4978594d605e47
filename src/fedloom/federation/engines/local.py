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
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO

from fedloom.errors import RunStopped
from fedloom.federation.engines.inline import late
from fedloom.federation.engines.worker import SiteSpec
from fedloom.federation.protocol.deaths import Death, in_words
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.server.parcels import Parcel
from fedloom.federation.server.spool import is_small
from fedloom.files import write_whole

log = logging.getLogger("fedloom")

ATTEMPTS = 2
# Seconds: a process whose socket is closed is about to end, but may have much memory to give back.
DYING = 5.0
# Seconds; so short orders are handed out two at a time, longer ones only to a worker that is free.
BRIEF = 0.01


class Worker:
    """One process, and our ends of its socket and its lifeline."""

    def __init__(self, output: IO[bytes] | int) -> None:
        self.connection, theirs = Pipe()
        lifeline, self.lifeline = os.pipe()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fedloom.runs.worker", str(theirs.fileno()), str(lifeline)],
            pass_fds=(theirs.fileno(), lifeline), env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, start_new_session=True,  # Ctrl-C is the parent's to handle
        )  # fmt: skip
        theirs.close()
        os.close(lifeline)
        self.site: SiteSpec | None = None
        # It works at the first; a second one may wait in the socket.
        self.jobs: deque[Job] = deque()
        # It takes seconds to start: no client's deadline may run before it is there.
        self.up = False
        self._ping()

    def give(self, job: Job, site: SiteSpec, body: Path | None) -> None:
        self.jobs.append(job)
        with suppress(BrokenPipeError, ConnectionResetError):  # if it died, `wait` tells
            if self.site != site:
                self.connection.send_bytes(json.dumps({"site": site.to_json()}).encode())
                self.site = site
            order = {
                "body": None if body is None else str(body),
                "reply": str(job.parcel.reply.path),
            }
            inside = [] if body else job.parcel.body.chunks
            self.connection.send_bytes(
                b"".join([json.dumps(order).encode(), b"\n", job.parcel.head, *inside]),
            )
        self.jobs[0].started = self.jobs[0].started or time.monotonic()

    def result(self) -> Envelope | None:
        """Of its first job. None: it died."""
        try:
            text, _, reply = self.connection.recv_bytes().partition(b"\n")
        except (EOFError, ConnectionResetError):
            return None
        self.jobs.popleft().parcel.reply.held = reply or None
        if self.jobs:
            self.jobs[0].started = time.monotonic()
        return Envelope.from_json(json.loads(text))

    def answers(self, seconds: float) -> bool:
        """Whether the process is up within so many seconds."""
        if self.up:
            self._ping()
        try:
            self.up = self.connection.poll(seconds) and bool(self.connection.recv_bytes())
        except (EOFError, OSError):
            self.up = False
        return self.up

    def _ping(self) -> None:
        with suppress(OSError):  # if it died, waiting for the answer tells
            self.connection.send_bytes(b'{"ping": true}')

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


@dataclass
class Job:
    parcel: Parcel
    deaths: tuple[Death, ...] = ()  # of processes that worked at it before
    started: float = 0.0


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


@dataclass
class LocalEngine:
    site: SiteSpec
    folder: Path  # for the bodies of orders; wiped by whoever opens the run
    pool: Pool
    written: int = 0
    brief: bool = False  # whether the last order took next to no time

    def ask(
        self,
        parcels: Sequence[Parcel],
        deadline: float | None,
    ) -> Iterator[tuple[Parcel, Envelope]]:
        self.pool.start()
        queue, bodies = deque(Job(parcel) for parcel in parcels), self._write_bodies(parcels)
        try:
            self._deal(queue, bodies)
            while queue or any(worker.jobs for worker in self.pool.workers):
                for worker in self._ready(deadline):
                    parcel = worker.jobs[0].parcel
                    envelope = self._collect(worker, queue, deadline)
                    self._deal(queue, bodies)  # nobody shall wait while this reply is looked at
                    if envelope is not None:
                        self.brief = envelope.seconds < BRIEF
                        yield parcel, envelope
                self._deal(queue, bodies)
        finally:
            # Only if we were interrupted.
            for worker in [worker for worker in self.pool.workers if worker.jobs]:
                self.pool.replace(worker)
            for path in bodies.values():
                path.unlink(missing_ok=True)

    def _write_bodies(self, parcels: Sequence[Parcel]) -> dict[int, Path]:
        """Each distinct body once, for all workers to map; small ones go with the orders."""
        bodies: dict[int, Path] = {}
        for body in {id(parcel.body): parcel.body for parcel in parcels if not is_small(parcel.body.chunks)}.values():
            self.written += 1
            bodies[id(body)] = self.folder / f"{self.written}.body"
            write_whole(bodies[id(body)], body.chunks, durable=False)
        return bodies

    def _deal(self, queue: deque[Job], bodies: dict[int, Path]) -> None:
        for depth in (1, 2) if self.brief else (1,):
            for worker in self.pool.workers:
                if worker.up and len(worker.jobs) < depth and queue:
                    job = queue.popleft()
                    worker.give(job, self.site, bodies.get(id(job.parcel.body)))

    def _ready(self, deadline: float | None) -> list[Worker]:
        """Workers with an answer, dead, or out of time."""
        busy = [worker for worker in self.pool.workers if worker.jobs]
        starting = [worker for worker in self.pool.workers if not worker.up]
        left = None
        if deadline is not None and busy:
            left = max(
                0.0,
                min(worker.jobs[0].started for worker in busy) + deadline - time.monotonic(),
            )
        heard = wait([worker.connection for worker in [*busy, *starting]], left)
        for worker in [worker for worker in starting if worker.connection in heard]:
            self.pool.greet(worker)
        now = time.monotonic()
        return [
            worker for worker in busy
            if worker.connection in heard or (deadline is not None and now - worker.jobs[0].started >= deadline)
        ]  # fmt: skip

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
        late_now = deadline is not None and not worker.connection.poll()
        envelope = None if late_now else worker.result()
        if envelope is not None:
            return replace(envelope, deaths=job.deaths) if job.deaths else envelope
        queue.extendleft(reversed([*worker.jobs][1:]))  # what it had not begun
        seconds = time.monotonic() - job.started
        if late_now:
            assert deadline is not None
            self.pool.replace(worker)
            return Envelope(seconds, fault=late(deadline), deaths=job.deaths)
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
