"""Worker processes on this machine, and the server's ends of their sockets."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from fedloom.errors import RunStopped
from fedloom.federation.engines.frames import Inbox, framed, write_all
from fedloom.federation.engines.worker import SiteSpec
from fedloom.federation.protocol.deaths import Death
from fedloom.federation.protocol.envelope import Envelope
from fedloom.federation.protocol.parcels import Parcel, is_small

ATTEMPTS = 2  # to start a process, and to carry out an order
# Seconds that a process may take to end after its socket was closed: it may free much memory.
DYING = 5.0


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


def not_started(worker: Worker) -> RunStopped:
    return RunStopped(
        "a worker process must start",
        f"one {worker.death()}",
        "run `fedloom doctor`, then resume the run",
    )
