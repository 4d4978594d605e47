"""`--dry-run`: minutes, bytes and memory of a run.

They are estimated by timing one real client on a few of its samples.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedloom.data.mapped_clients import MappedClients
from fedloom.data.samples import ClientData
from fedloom.data.split import Split
from fedloom.errors import FedloomError
from fedloom.federation.client.site import Site
from fedloom.federation.client.store import ClientStore
from fedloom.federation.protocol.envelope import Envelope
from fedloom.federation.protocol.method import Stage
from fedloom.federation.protocol.wire import Body, order_head, read_reply
from fedloom.federation.server.settings import Settings
from fedloom.federation.server.spool import DESCRIBE
from fedloom.federation.server.topology import Clustered, parse_topology
from fedloom.files import Chunk
from fedloom.methods import stages
from fedloom.report.tables import amount, duration
from fedloom.runs.experiment import Prepared, worker_count
from fedloom.threads import one_thread
from fedloom.types import Json, Order, Round, Setup, Stamp, State

PROBE = 128  # samples that are really trained on


@dataclass(frozen=True)
class Estimate:
    seconds: float
    down: int  # bytes
    up: int
    memory: int  # bytes, of this process and all workers at their peak
    rounds: int
    clients_a_round: int

    def to_json(self) -> Json:
        return {"dry_run": True, **asdict(self)}

    def table(self) -> None:
        """Print it in words."""
        training = f"{self.rounds} rounds of {self.clients_a_round} clients"
        traffic = f"{amount(self.down)}B down, {amount(self.up)}B up"
        memory = f"{amount(self.memory)}B of memory at the peak"
        print(
            f"about {duration(self.seconds)} of training for {training}, {traffic}, {memory} "
            "(by timing one client's order; evaluation and start-up come on top)"
        )


@dataclass(frozen=True)
class Probe:
    """One client's exchange, measured on part of its samples and scaled to the average client."""

    seconds: float
    down: int
    up: int
    orders: int


NO_WORK = Probe(seconds=0.0, down=0, up=0, orders=0)  # of a stage that orders nothing


def estimate(prepared: Prepared) -> Estimate:
    """What the run will take; no round is run.

    Each stage's first order is carried out once for warmth and once for the clock.
    """
    probes = []
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        clients_data = MappedClients.build(Path(scratch) / "data", prepared.source, prepared.split)
        store = ClientStore(Path(scratch) / "clients")
        state = prepared.start
        for stage in prepared.stages:
            state, probe = measure(prepared, stage, clients_data, store, state)
            probes.append(probe)
    workers = worker_count(prepared.config.engine.workers)
    hops = hops_a_round(prepared)
    seconds = 0.0
    down = 0.0
    up = 0.0
    for rounds, probe in zip(stage_rounds(prepared), probes, strict=True):
        exchanges = hops * rounds
        seconds += exchanges * probe.seconds * math.ceil(probe.orders / max(1, workers))
        down += exchanges * probe.down * probe.orders
        up += exchanges * probe.up * probe.orders
    return Estimate(
        seconds=round(seconds, 2),
        down=round(down),
        up=round(up),
        memory=peak_memory() * (1 + workers),
        rounds=prepared.config.budget.rounds,
        clients_a_round=max(probe.orders for probe in probes),
    )


def measure(
    prepared: Prepared,
    stage: Stage,
    clients_data: MappedClients,
    store: ClientStore,
    previous: State | None,
) -> tuple[State, Probe]:
    """A stage's first state, and one client's exchange of its first round."""
    population = len(prepared.split)
    server_data = clients_data.server()
    described = describe(prepared, stage, clients_data, store)
    setup = Setup(prepared.task, population, described, server_data)
    state = stage.method.init(setup, previous)
    budget = prepared.config.budget
    first_round = Round(
        number=1,
        spent=0.0,
        budget=float(budget.rounds),
        clients=range(population),
        participation=budget.participation,
        seed=prepared.config.seed,
        server_data=server_data,
    )
    planned = stage.method.plan(state, first_round)
    if planned is None:
        return state, NO_WORK
    orders = planned[1]
    if not orders:
        return state, NO_WORK
    site = site_of(prepared, store, few(clients_data, prepared.hold))
    stamp = Stamp("dry-run", prepared.task, stage.name, round=1, hop=0, read=None, write="1.0")
    order = replace(orders[0], stamp=stamp)
    body = Body(order.tensors)
    head = order_head(order, body)
    for _ in range(2):  # the first pays for warming up
        chunks, envelope = carried_out(site, head, body)
    probed = len(site.data(order.client).train)
    probe = Probe(
        seconds=envelope.seconds * average_samples(prepared.split) / max(1, probed),
        down=len(head) + body.size,
        up=sum(memoryview(chunk).nbytes for chunk in chunks),
        orders=len(orders),
    )
    return state, probe


def average_samples(split: Split) -> float:
    """What a client has to train on; of the first thousand clients."""
    counted = min(len(split), 1000)
    return statistics.fmean(len(split.client(client)[0]) for client in range(counted))


def describe(
    prepared: Prepared,
    stage: Stage,
    clients_data: MappedClients,
    store: ClientStore,
) -> Mapping[int, Json]:
    """What every client says of its whole data, for a method that asks all before it begins."""
    if stage.method.describe is None:
        return {}
    site = site_of(prepared, store, lambda client: clients_data.client(client, prepared.hold))
    stamp = Stamp("dry-run", prepared.task, stage.name, round=1, hop=DESCRIBE)
    described = {}
    for client in range(len(prepared.split)):
        order = Order(client, "describe", meta={"ask": stage.method.describe}, stamp=stamp)
        body = Body(order.tensors)
        chunks, _ = carried_out(site, order_head(order, body), body)
        meta = read_reply(b"".join(chunks)).meta
        described[client] = {"samples": meta["samples"], "extra": meta["extra"]}
    return described


def site_of(prepared: Prepared, store: ClientStore, data: Callable[[int], ClientData]) -> Site:
    task = prepared.task
    return Site(data, store, stages, task.shape, task.labels, prepared.config.engine.device)


def carried_out(site: Site, head: bytes, body: Body) -> tuple[list[Chunk], Envelope]:
    """An order's reply, by a client that must not fail."""
    chunks, envelope = site.handle(head, b"".join(body.chunks))
    if envelope.fault is not None:
        advice = "mend it; --debug shows more"
        raise FedloomError("a client's code must run", envelope.fault.text, advice)
    return chunks, envelope


def few(clients_data: MappedClients, hold: float) -> Callable[[int], ClientData]:
    """A client's data with a training part that is quick to go through."""

    def data(client: int) -> ClientData:
        whole = clients_data.client(client, hold)
        return ClientData(whole.train.first(PROBE), whole.validation, whole.test)

    return data


def stage_rounds(prepared: Prepared) -> list[float]:
    """How the loop will share the rounds out; an open-ended stage counts as one."""
    rounds = prepared.config.budget.rounds
    settings = Settings("dry-run", prepared.task, len(prepared.split), rounds)
    remaining = float(rounds)
    lengths = []
    shares = [stage.share for stage in prepared.stages]
    for number, share in enumerate(shares):
        length = 1.0
        if share is not None:
            length = settings.stage_budget(shares, number, remaining)
        lengths.append(length)
        remaining -= length
    return lengths


def hops_a_round(prepared: Prepared) -> int:
    """How often a client works in a round."""
    topology = parse_topology(prepared.config.engine.topology)
    if isinstance(topology, Clustered):
        return topology.hops
    return 1


def peak_memory() -> int:
    """Bytes of this process at its peak; ru_maxrss is in KiB on Linux, in bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if os.uname().sysname == "Darwin":
        return peak
    return peak * 1024
