"""An exchange that needs no engine: clients that add their id, with work of a written-down size."""

from dataclasses import dataclass, field
from pathlib import Path

import torch

from fedloom.cost.devices import Device
from fedloom.federation.protocol.wire import reply_chunks
from fedloom.federation.server.clock import HopTimes
from fedloom.federation.server.spool import Place, Spooled
from fedloom.federation.server.topology import HopResult, Situation
from fedloom.federation.server.work_times import HopWork
from fedloom.files import write_whole
from fedloom.types import Order, Reply, Round

MB = 1_000_000
# Speed in MACs a second; LAN, WAN down and WAN up in bytes a second: the clock's worked example.
DEVICES = (
    Device(1e9, 4e6, 1e6, 0.5e6),
    Device(2e9, 8e6, 2e6, 1e6),
    Device(0.5e9, 4e6, 4e6, 2e6),
    Device(1e9, 2e6, 2e6, 2e6),
    Device(0.25e9, 4e6, 1e6, 1e6),
)
START = {"w": torch.tensor([0.0]), "n": torch.tensor(0)}


def orders_of(clients, groups=None):
    groups = groups or [None] * len(clients)
    return [
        Order(client, "train", START, {"lr": 0.1}, group=group)
        for client, group in zip(clients, groups, strict=True)
    ]


def round_of(number=1, population=100):
    return Round(number, 0.0, 10.0, range(population), 1.0, 7)


def situation_of(number=1, **facts):
    return Situation("train", round_of(number), **facts)


@dataclass
class Exchange:
    """Clients that add their id to what they are sent; their weight is their id plus one."""

    folder: Path
    refused: set[tuple[int, int]] = field(default_factory=set)  # client and hop
    megabytes: dict[int, int] = field(default_factory=dict)  # each way, by client
    macs: dict[int, int] = field(default_factory=dict)
    hops: list[list[Order]] = field(default_factory=list)
    times: list[HopTimes] = field(default_factory=list)

    def __call__(self, orders, hop, timing):
        self.hops.append(list(orders))
        by_client = {
            order.client: order for order in sorted(orders, key=lambda order: order.client)
        }
        works = []
        for client in by_client:
            size = self.megabytes.get(client, 0) * MB
            works.append(HopWork(client, size, size, self.macs.get(client, 0)))
        refused = {client for client in by_client if (client, hop) in self.refused}
        times = timing(works, refused)
        self.times.append(times)
        places = []
        for client, order in by_client.items():
            if client in refused or client in times.lost_work:
                continue
            tensors = {"w": order.tensors["w"] + client, "n": torch.tensor(10 * hop + client)}
            reply = Reply(client, tensors, client + 1.0, {"loss": float(client), "note": "x"})
            path = self.folder / f"{hop}.{client}.reply"
            write_whole(path, reply_chunks(reply), durable=False)
            places.append(Place(client, path))
        return HopResult(Spooled(tuple(places)), tuple(works), times)
