"""The simulated clock of a round: which replies arrive in time, who leaves, and when it ends.

It computes from counted MACs, the bytes of messages and the table of devices (`work_times.py`), and
from nothing that was measured. So it shows the same times for any number of workers, and a resumed
run continues with the same bits. All seconds in this file are simulated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from fedloom.cost.devices import Device
from fedloom.federation.server.work_times import (
    HopWork,
    Phases,
    flat_client_seconds,
    flat_visit,
    macs_by,
    work_seconds,
)
from fedloom.records.rows import Pace


@dataclass(frozen=True)
class RoundClock:
    """What the clock knows when a round begins.

    Without devices, as in a deployed federation, no time passes and no client is lost.
    """

    devices: Sequence[Device] = ()
    phases: Phases = "serial"
    begin: float = 0.0
    deadline: float | None = None  # seconds after which a reply is late; None: there is no deadline
    wanted: int | None = None  # replies that end the round; None: it waits for all
    departures: Mapping[int, Departure] = field(default_factory=dict)  # by client
    stays: Mapping[int, float] = field(default_factory=dict)  # seconds until a client leaves

    def is_gone(self, client: int, hop: int) -> bool:
        """Whether a client has left before this hop."""
        departure = self.departures.get(client)
        return departure is not None and departure.hop < hop

    def flat(self, works: Sequence[HopWork], refused: Collection[int]) -> HopTimes:
        """The times of a round without clusters.

        The replies of the clients in `refused` cannot be used for other reasons.
        """
        if not self.devices:
            return HopTimes()
        arrivals = {}  # by client, when its reply arrives
        leaving = {}  # by client, when it leaves before its reply arrives
        for work in works:
            arrival = flat_client_seconds(work, self.devices[work.client], self.phases)
            leaves = self._leaves_after(work)
            if leaves < arrival:
                leaving[work.client] = leaves
            else:
                arrivals[work.client] = arrival
        usable = {client: at for client, at in arrivals.items() if client not in refused}
        close = closing(usable, self.deadline, self.wanted)
        of_client = {**arrivals, **leaving}
        lost_work = {}
        for work in works:
            at = of_client[work.client]
            if work.client in refused:
                continue
            if work.client in leaving and at <= close.seconds:
                macs = macs_by(work, self.devices[work.client], self.phases, at)
                reason = f"left: it went away after {at:.6g} simulated seconds, during its work"
                lost_work[work.client] = LostWork("dropped", reason, macs, 0)
            elif work.client in leaving or work.client not in close.in_time:
                macs = macs_by(work, self.devices[work.client], self.phases, at)
                reason = f"late: {close.reason}, and this one takes {at:.6g}"
                up = 0 if work.client in leaving else work.up
                lost_work[work.client] = LostWork("late", reason, macs, up)
        longest = max(of_client.values(), default=0.0)
        ordered = {work.client: of_client[work.client] for work in works}
        seconds = min(longest, close.seconds)
        paces = self._paces(works, ordered, lost_work, seconds)
        return HopTimes(seconds, ordered, lost_work, paces)

    def _paces(
        self,
        works: Sequence[HopWork],
        of_client: Mapping[int, float],
        lost_work: Mapping[int, LostWork],
        seconds: float,
    ) -> tuple[Pace, ...]:
        """What the slowest client and the one in the middle did.

        Clients whose work was lost do not count, unless that is all of them.
        """
        counted = [work for work in works if work.client not in lost_work] or list(works)
        if not counted:
            return ()
        counted.sort(key=lambda work: (-of_client[work.client], work.client))
        paces = []
        for work in (counted[0], counted[len(counted) // 2]):
            visit = flat_visit(work, self.devices[work.client], self.phases)
            steps = visit.steps_until(min(of_client[work.client], seconds))
            paces.append(Pace(work.client, tuple(steps)))
        return tuple(paces[: len(counted)])

    def _leaves_after(self, work: HopWork) -> float:
        """How long after the round's beginning a client leaves; infinity if it stays."""
        device = self.devices[work.client]
        leaves = self.stays.get(work.client, inf)
        departure = self.departures.get(work.client)
        if departure is not None and departure.hop == 0:
            working = departure.share * work_seconds(work, device, self.phases)
            leaves = min(leaves, work.down / device.wan_down + working)
        return leaves


@dataclass(frozen=True)
class HopTimes:
    """The times of one hop."""

    seconds: float = 0.0  # how long the hop took
    # By client, how long it took until the client's reply arrived or the client left.
    of_client: Mapping[int, float] = field(default_factory=dict)
    lost_work: Mapping[int, LostWork] = field(default_factory=dict)  # by client
    # In a round without clusters, what the slowest client and the one in the middle did.
    paces: tuple[Pace, ...] = ()


@dataclass(frozen=True)
class LostWork:
    """Work of a hop whose result cannot be used."""

    kind: Literal["dropped", "late"]
    reason: str
    macs: int  # MACs that were computed for it
    up: int  # bytes of the reply that were sent


@dataclass(frozen=True)
class Departure:
    """A client that leaves during its work in a round and stays away until the round ends."""

    hop: int
    share: float = 1.0  # the share of the hop's work that it has done when it leaves


@dataclass(frozen=True)
class Closing:
    """When a round ends, even if some clients are still at work."""

    seconds: float  # infinity if the round waits for all clients
    in_time: frozenset[int]  # the clients whose replies have arrived by then
    reason: str = ""


def closing(
    arrivals: Mapping[int, float],
    deadline: float | None,
    wanted: int | None,
) -> Closing:
    """When the round ends: once enough usable replies have arrived, or at the deadline.

    `arrivals` are the times at which usable replies arrive, by client.
    """
    in_order = sorted(arrivals, key=lambda client: (arrivals[client], client))
    if wanted is not None and wanted < len(in_order):
        enough = arrivals[in_order[wanted - 1]]
        if deadline is None or enough <= deadline:
            reason = f"the round had its {wanted} replies after {enough:.6g} simulated seconds"
            return Closing(enough, frozenset(in_order[:wanted]), reason)
    if deadline is None:
        return Closing(inf, frozenset(in_order))
    in_time = frozenset(client for client in in_order if arrivals[client] <= deadline)
    return Closing(deadline, in_time, f"a reply must come within {deadline:g} simulated seconds")
