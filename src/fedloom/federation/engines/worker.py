"""A worker process: it has one torch thread and carries out one order at a time.

It talks over an inherited socket in length-prefixed frames: a line of JSON, followed by the bytes
of the order or reply if they are few. Large weights come in a memory-mapped file that all workers
share, and large replies go straight to their place in the spool. When the parent process ends, a
lifeline pipe closes, and the worker ends too, whatever it is doing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from fedloom.allocator import settle
from fedloom.data.mapped_clients import MappedClients
from fedloom.data.recent import RecentClients
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.engines.frames import Inbox, framed, write_all
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.histograms import simulated_secret
from fedloom.federation.protocol.method import Stage
from fedloom.federation.protocol.packing import Buffer
from fedloom.federation.protocol.parcels import Slot
from fedloom.federation.protocol.wire import split
from fedloom.files import map_file
from fedloom.types import Json, Task

Resolve = Callable[[Task], Sequence[Stage]]


@dataclass(frozen=True)
class SiteSpec:
    """All that a process needs to act as the site of an embedded run's clients."""

    clients_data: str
    store: str
    hold: float  # the share of a client's data, without its test part, held for validation
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    device: str = "cpu"
    seed: int = 0  # of the run; the secret of its simulated sites is derived from it

    def site(self, resolve: Resolve) -> Site:
        clients_data = MappedClients.open(Path(self.clients_data))
        return Site(
            RecentClients(lambda client: clients_data.client(client, self.hold)),
            ClientStore(Path(self.store)),
            resolve,
            self.shape,
            self.labels,
            self.device,
            secret=partial(simulated_secret, self.seed),
        )

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Json) -> SiteSpec:
        return cls(
            clients_data=raw["clients_data"],
            store=raw["store"],
            hold=raw["hold"],
            shape=tuple(raw["shape"]),
            labels=tuple(raw["labels"]),
            device=raw["device"],
            seed=raw["seed"],
        )


def main(resolve: Resolve) -> None:
    """Run the process. Its command line names the handles of the socket and the lifeline."""
    socket = int(sys.argv[1])
    lifeline = int(sys.argv[2])
    threading.Thread(target=exit_with_parent, args=(lifeline,), daemon=True).start()
    torch.set_num_threads(1)
    settle()
    yield_to_server()
    work(socket, resolve)


def yield_to_server() -> None:
    """Lower this process's scheduling priority below the server's where cores are busy.

    A worker that gets an order should not push the server, which has more of them to hand out, off
    its core.
    """
    if hasattr(os, "SCHED_BATCH"):  # Linux
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def exit_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns when the parent has ended, even by SIGKILL
    os._exit(1)


def work(socket: int, resolve: Resolve) -> None:
    """Answer messages until the other side closes the socket."""
    inbox = Inbox(socket)
    site: Site | None = None
    while True:
        try:
            text, _, message = inbox.take().partition(b"\n")
        except EOFError:
            return
        job = json.loads(text)
        if "ping" in job:
            write_all(socket, framed(b"{}"))
            continue
        if "site" in job:
            site = SiteSpec.from_json(job["site"]).site(resolve)
            continue
        assert site is not None  # the engine sends the site first
        reply, envelope = answer(site, message, job)
        write_all(socket, framed(json.dumps(envelope.to_json()).encode() + b"\n" + reply))


def answer(site: Site, message: bytes, job: Json) -> tuple[bytes, Envelope]:
    """The reply to an order, or no bytes if it is large and was written to the spool."""
    head, included = split(message)
    body: Buffer = included
    if job["body"] is not None:
        body = map_file(Path(job["body"]))
    chunks, envelope = site.handle(head, body)
    slot = Slot(job["folder"], job["reply"])
    try:
        slot.put(chunks)
    except OSError as error:
        fault = Fault("store", f"a reply could not be saved ({error})")
        macs = envelope.macs
        return b"", Envelope(envelope.seconds, macs, fault=fault, search_macs=envelope.search_macs)
    return slot.held or b"", envelope
