"""How long messages and work take on the clients' devices, in simulated seconds.

In a flat topology every client talks to the server over its own WAN link, and a round takes as long
as its slowest client. In a cluster the members talk to their aggregator (FINCH §2.2, Eq. 9 and 10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedloom.cost.devices import Device
from fedloom.records.rows import TimeStep

Phases = Literal["serial", "parallel"]


# One client


@dataclass(frozen=True)
class HopWork:
    """What one client does in one hop."""

    client: int
    down: int  # bytes of the order
    up: int  # bytes of the reply
    macs: int  # MACs of training
    search_macs: int = 0  # MACs of searching


@dataclass(frozen=True)
class Visit:
    """How long one hop takes a client: receiving the order, working, and sending the reply."""

    down: float
    work: float
    seconds: float  # all three together

    def steps_until(self, end: float) -> list[TimeStep]:
        """What a client does up to `end`: it receives its order, trains, and sends its reply."""
        down = min(self.down, end)
        work = min(self.work, end - down)
        up = end - down - work
        steps = [TimeStep("transfer", down), TimeStep("training", work)]
        if self.seconds > self.down + self.work:
            steps.append(TimeStep("transfer", up))
        return [step for step in steps if step.seconds > 0]


def work_seconds(work: HopWork, device: Device, phases: Phases) -> float:
    """How long training and searching take: one after the other, or in parallel.

    Eq. 10, as it is printed, has them in parallel.
    """
    training = work.macs / device.macs_per_second
    searching = work.search_macs / device.macs_per_second
    if phases == "parallel":
        return max(training, searching)
    return training + searching


def macs_by(work: HopWork, device: Device, phases: Phases, seconds: float) -> int:
    """How many MACs a client has computed `seconds` after its order began to arrive."""
    all_macs = work.macs + work.search_macs
    needed = work_seconds(work, device, phases)
    worked = seconds - work.down / device.wan_down
    if worked >= needed:
        return all_macs
    return int(all_macs * max(0.0, worked) / needed)


def flat_client_seconds(work: HopWork, device: Device, phases: Phases) -> float:
    """How long it takes until the server has a client's reply."""
    down = work.down / device.wan_down
    up = work.up / device.wan_up
    return down + work_seconds(work, device, phases) + up


def flat_visit(work: HopWork, device: Device, phases: Phases) -> Visit:
    """The same as `flat_client_seconds`, split into its parts."""
    down = work.down / device.wan_down
    seconds = flat_client_seconds(work, device, phases)
    return Visit(down, work_seconds(work, device, phases), seconds)


def flat_seconds(works: Sequence[HopWork], devices: Sequence[Device], phases: Phases) -> float:
    """How long a round without clusters takes, in which all clients work in parallel."""
    slowest = 0.0
    for work in works:
        slowest = max(slowest, flat_client_seconds(work, devices[work.client], phases))
    return slowest


# Clusters


def member_seconds(
    works: Sequence[HopWork],
    devices: Sequence[Device],
    aggregator: int,
    phases: Phases,
) -> dict[int, float]:
    """How long one hop takes every member, by client."""
    visits = member_visits(works, devices, aggregator, phases)
    return {client: visit.seconds for client, visit in visits.items()}


def member_visits(
    works: Sequence[HopWork],
    devices: Sequence[Device],
    aggregator: int,
    phases: Phases,
) -> dict[int, Visit]:
    """The same as `member_seconds`, split into its parts.

    Members share the aggregator's links. Its messages to itself take no time. Those to a member at
    another place go over the WAN links of both.
    """
    gathering = devices[aggregator]
    near = 0  # members at the aggregator's place
    far = 0
    for work in works:
        if work.client == aggregator:
            continue
        if devices[work.client].place == gathering.place:
            near += 1
        else:
            far += 1
    visits = {}
    for work in works:
        device = devices[work.client]
        down = 0.0
        transfer = 0.0
        if work.client == aggregator:
            pass
        elif device.place == gathering.place:
            speed = min(device.lan, gathering.lan / near)
            down = work.down / speed
            transfer = (work.down + work.up) / speed
        else:
            down = work.down / min(device.wan_down, gathering.wan_up / far)
            transfer = down + work.up / min(device.wan_up, gathering.wan_down / far)
        working = work_seconds(work, device, phases)
        visits[work.client] = Visit(down, working, transfer + working)
    return visits


def hop_seconds(
    works: Sequence[HopWork],
    devices: Sequence[Device],
    aggregator: int,
    phases: Phases,
) -> float:
    """How long one hop inside a cluster takes: as long as its slowest member."""
    return max(member_seconds(works, devices, aggregator, phases).values(), default=0.0)


def cluster_seconds(
    hops: Sequence[Sequence[HopWork]],
    devices: Sequence[Device],
    aggregator: int,
    wan_down: int,
    wan_up: int,
    phases: Phases,
) -> float:
    """How long a cluster's round takes: down to the aggregator, all hops, and up to the server."""
    gathering = devices[aggregator]
    inside = 0.0
    for works in hops:
        inside += hop_seconds(works, devices, aggregator, phases)
    return wan_down / gathering.wan_down + inside + wan_up / gathering.wan_up
