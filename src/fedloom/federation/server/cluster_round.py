"""One cluster during a round: its hops by the simulated clock, its bytes, and its means.

The server expects a heartbeat of every aggregator each `heartbeat` simulated seconds. After
`misses` missing heartbeats the next best member that is present takes over. It collects the replies
of the hop again from the members, who still have their models. So the cluster loses the waiting
time and the LAN bytes of that hop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from fedloom.cost.devices import Device
from fedloom.errors import FedloomError
from fedloom.federation.protocol.aggregate import Fold
from fedloom.federation.protocol.wire import reply_chunks
from fedloom.federation.server.clock import HopTimes, LostWork, RoundClock
from fedloom.federation.server.clusters import FormedCluster
from fedloom.federation.server.ledger import HopClient, Transfer
from fedloom.federation.server.receiving import plain_numbers
from fedloom.federation.server.spool import TAKEN_OVER, Spooled
from fedloom.federation.server.work_times import (
    HopWork,
    Visit,
    cluster_seconds,
    flat_visit,
    hop_seconds,
    member_visits,
)
from fedloom.records.rows import ClusterRow, Doing, TimeStep
from fedloom.records.totals import Totals
from fedloom.types import Order, Reply


@dataclass(frozen=True)
class Heartbeats:
    """How the server notices that an aggregator is gone."""

    every: float = 10.0  # simulated seconds between two heartbeats
    misses: int = 2  # missing heartbeats after which an aggregator counts as gone

    @property
    def wait(self) -> float:
        return self.every * self.misses


@dataclass(frozen=True)
class Takeover:
    """A member that became the aggregator in the middle of a round."""

    hop: int
    cluster: int
    lost: int  # the client that was the aggregator before
    client: int | None  # the client that took over; None: no member was left

    @property
    def place(self) -> int:
        """The hop number under which the journal records the takeover. No work has this number."""
        return TAKEN_OVER - self.hop

    @property
    def text(self) -> str:
        gone = f"client {self.lost}, the aggregator of cluster {self.cluster}, was gone"
        if self.client is None:
            return f"{gone} at hop {self.hop}, and nobody was left to take over"
        return f"{gone} at hop {self.hop}: client {self.client} takes over"


@dataclass
class ClusterRound:
    """The state of one cluster while a round runs."""

    cluster: FormedCluster
    orders: list[Order]  # of the members that take part, as planned
    clock: RoundClock
    heartbeats: Heartbeats
    hops: int
    relayed: bool = False  # whether the server's own process does the aggregator's work
    # Called for every aggregator that is lost.
    note: Callable[[Takeover], None] = lambda takeover: None
    largest: frozenset[str] = frozenset()  # plain numbers whose maximum is reported, not the mean
    aggregator: int | None = None
    elapsed: float = 0.0
    steps: list[TimeStep] = field(default_factory=list)  # what `elapsed` is made of
    macs: int = 0
    gone: set[int] = field(default_factory=set)  # members that have left
    takeovers: list[Takeover] = field(default_factory=list)
    transfers: dict[HopClient, Transfer] = field(default_factory=dict)
    # Of members, in all hops so far.
    lost_work: dict[HopClient, LostWork] = field(default_factory=dict)
    wasted: int = 0  # bytes that members sent to an aggregator that was gone
    from_server: int = 0  # bytes from the server to the aggregator
    to_server: int = 0
    mean: Reply | None = None  # of the latest hop

    @property
    def members(self) -> set[int]:
        return {order.client for order in self.orders}

    def orders_of_hop(self, hop: int) -> list[Order]:
        """The orders of the next hop, without the members that have left."""
        orders = []
        for order in self.orders:
            if order.client not in self.gone and not self.clock.is_gone(order.client, hop):
                orders.append(order)
        return orders

    # The clock

    def _pass(self, doing: Doing, seconds: float) -> None:
        self.elapsed += seconds
        self._note_step(TimeStep(doing, seconds))

    def _note_step(self, step: TimeStep) -> None:
        """Append a step, or join it with the one before if both are of the same kind.

        Waits for a heartbeat are not joined: each is listed by itself.
        """
        if step.seconds <= 0:
            return
        if self.steps and self.steps[-1].doing == step.doing != "heartbeat":
            step = replace(step, seconds=self.steps.pop().seconds + step.seconds)
        self.steps.append(step)

    def ranked_by_delay(self, works: Sequence[HopWork]) -> tuple[int, ...]:
        """Members by how long the cluster's round takes with each of them as aggregator.

        Ties are broken by the lowest id. The clock counts the work of the first hop, and assumes
        that all hops take as long.
        """
        if not self.clock.devices or not works:
            return tuple(sorted(work.client for work in works))
        largest_reply = max(work.up for work in works)

        def seconds(work: HopWork) -> tuple[float, int]:
            whole_round = cluster_seconds(
                [works] * self.hops,
                self.clock.devices,
                work.client,
                work.down,
                largest_reply,
                self.clock.phases,
            )
            return whole_round, work.client

        return tuple(work.client for work in sorted(works, key=seconds))

    def begin(self, works: Sequence[HopWork], ranking: tuple[int, ...]) -> None:
        """Choose the aggregator, and let the server's model come down to it.

        The model is as large as the aggregator's order of the first hop.
        """
        self.cluster = replace(self.cluster, ranking=ranking)
        if self.relayed:
            return
        self.aggregator = self.cluster.aggregator({work.client for work in works})
        for work in works:
            if work.client != self.aggregator:
                continue
            self.from_server = work.down
            if self.clock.devices:
                self._pass("aggregation", work.down / self.clock.devices[work.client].wan_down)

    def times_of_hop(
        self, works: Sequence[HopWork], refused: Collection[int], hop: int
    ) -> HopTimes:
        """The times of one hop: when replies arrive, who leaves, and who takes over.

        The replies of the clients in `refused` cannot be used for other reasons.
        """
        if not works:
            return HopTimes()
        visits = self._visits(works)
        of_client = {}
        lost_work: dict[int, LostWork] = {}
        for work in works:
            arrival = visits[work.client].seconds
            leaves = self._leaves_after(work.client, hop, arrival)
            of_client[work.client] = min(arrival, leaves)
            if leaves >= arrival and not self._departs(work.client, hop):
                continue
            self.gone.add(work.client)
            if work.client in refused:
                continue
            done = 1.0
            if arrival > 0:
                done = min(1.0, leaves / arrival)
            lost_work[work.client] = self._dropped(work, hop, done)
        for work in works:
            if work.client in lost_work:
                self.macs += lost_work[work.client].macs
            else:
                self.macs += work.macs + work.search_macs
        self._book(works, lost_work, hop)
        slowest = max(of_client, key=lambda client: of_client[client])
        self.elapsed += of_client[slowest]
        for step in visits[slowest].steps_until(of_client[slowest]):
            self._note_step(step)
        present = {}
        for work in works:
            if work.client not in lost_work and work.client not in refused:
                present[work.client] = work
        self._replace_if_gone(present, lost_work, hop)
        for client, lost in lost_work.items():
            self.lost_work[HopClient(hop, client)] = lost
        return HopTimes(of_client[slowest], of_client, lost_work)

    def _visits(self, works: Sequence[HopWork]) -> dict[int, Visit]:
        """By client, how long after the hop's beginning its reply arrives, split into parts."""
        if not self.clock.devices:
            return {work.client: Visit(0.0, 0.0, 0.0) for work in works}
        if self.aggregator is None:
            visits = {}
            for work in works:
                device = self.clock.devices[work.client]
                visits[work.client] = flat_visit(work, device, self.clock.phases)
            return visits
        return member_visits(works, self.clock.devices, self.aggregator, self.clock.phases)

    def _departs(self, client: int, hop: int) -> bool:
        departure = self.clock.departures.get(client)
        return departure is not None and departure.hop == hop

    def _leaves_after(self, client: int, hop: int, arrival: float) -> float:
        """How long after the hop's beginning a member leaves; infinity if it stays."""
        leaves = self.clock.stays.get(client, inf) - self.elapsed
        if self._departs(client, hop):
            leaves = min(leaves, self.clock.departures[client].share * arrival)
        return max(0.0, leaves)

    def _dropped(self, work: HopWork, hop: int, done: float) -> LostWork:
        macs = int(done * (work.macs + work.search_macs))
        where = f"hop {hop} of its cluster's round"
        return LostWork("dropped", f"left: it went away during its work, in {where}", macs, 0)

    # Aggregators

    def _replace_if_gone(
        self,
        present: dict[int, HopWork],
        lost_work: dict[int, LostWork],
        hop: int,
    ) -> None:
        """Let members take over until one of those that are present is the aggregator.

        `present` are the members that still have their models, with their work of this hop.
        """
        while self.aggregator is not None and self.aggregator not in present:
            lost = self.aggregator
            self._pass("heartbeat", self.heartbeats.wait)
            for client in list(present):
                if self.clock.stays.get(client, inf) < self.elapsed:
                    self.gone.add(client)
                    lost_work[client] = self._dropped(present.pop(client), hop, 1.0)
            for work in present.values():
                self.wasted += self._transfer(work, lost).up
            self.aggregator = self.cluster.aggregator(present)
            takeover = Takeover(hop, self.cluster.number, lost, self.aggregator)
            self.takeovers.append(takeover)
            self.note(takeover)
            self._collect_again(list(present.values()), hop)

    def replace_if_refused(self, accepted: Spooled, works: Sequence[HopWork], hop: int) -> None:
        """Replace an aggregator whose own update was refused for its size."""
        answered = {place.client for place in accepted.places}
        present = {work.client: work for work in works if work.client in answered}
        self._replace_if_gone(present, {}, hop)

    def _collect_again(self, works: Sequence[HopWork], hop: int) -> None:
        """Let the members send the hop's reply again, to the one that took over."""
        aggregator = self.aggregator
        if aggregator is None:
            return
        sent = []
        for work in works:
            reply = replace(work, down=0, macs=0, search_macs=0)
            sent.append(reply)
            transfer = self._transfer(reply, aggregator)
            place = HopClient(hop, work.client)
            self.transfers[place] = self.transfers[place].plus(transfer)
        if self.clock.devices:
            devices = self.clock.devices
            self._pass("transfer", hop_seconds(sent, devices, aggregator, self.clock.phases))

    # Bytes

    def _book(self, works: Sequence[HopWork], lost_work: Mapping[int, LostWork], hop: int) -> None:
        """Record over which links the bytes of this hop went."""
        for work in works:
            if work.client in lost_work:
                work = replace(work, up=lost_work[work.client].up)
            transfer = Transfer(wan_down=work.down, wan_up=work.up)
            if self.aggregator is not None:
                transfer = self._transfer(work, self.aggregator)
            self.transfers[HopClient(hop, work.client)] = transfer

    def _transfer(self, work: HopWork, aggregator: int) -> Transfer:
        """Over which links a member's bytes go.

        An aggregator sends nothing to itself, and uses the WAN to reach another place.
        """
        if work.client == aggregator:
            return Transfer()
        if self._is_near(work.client, aggregator):
            return Transfer(lan_down=work.down, lan_up=work.up)
        return Transfer(wan_down=work.down, wan_up=work.up)

    def _is_near(self, client: int, aggregator: int) -> bool:
        devices: Sequence[Device] = self.clock.devices
        return not devices or devices[client].place == devices[aggregator].place

    # Means

    def average(self, replies: Spooled) -> None:
        """Compute the mean of the hop, and let the next orders start from it."""
        self.mean = self._mean(replies)
        if self.mean is None:
            return
        tensors = {**self.orders[0].tensors, **self.mean.tensors}
        self.orders = [replace(order, tensors=tensors) for order in self.orders]

    def _mean(self, replies: Spooled) -> Reply | None:
        """The mean of the members' replies, which the cluster sends up after its last hop.

        None: the cluster has nothing to send.
        """
        of_cluster = replies.of(self.members)
        if not of_cluster:
            return None
        speaker = self.aggregator
        if speaker is None:
            if not self.relayed:
                return None
            speaker = min(place.client for place in of_cluster.places)
        first = self.orders[0]
        if any(order.region != first.region for order in self.orders):
            rule = "all clients of a cluster must work in one region"
            raise FedloomError(rule, "their orders differ", "fix the method's plan")
        fold = Fold(first.tensors)
        numbers = PlainNumbers(self.largest)
        for reply in of_cluster:
            fold.add(reply)
            numbers.add(reply)
        return replace(fold.reply(speaker), meta=numbers.result())

    def finish(self) -> None:
        """Send the cluster's mean up to the server."""
        if self.mean is None or self.relayed:
            return
        self.to_server = sum(map(len, reply_chunks(self.mean)))
        if self.clock.devices and self.aggregator is not None:
            seconds = self.to_server / self.clock.devices[self.aggregator].wan_up
            self._pass("aggregation", seconds)

    @property
    def is_late(self) -> bool:
        """Whether the round ended before the cluster's mean arrived."""
        return self.clock.deadline is not None and self.elapsed > self.clock.deadline

    @property
    def is_lost(self) -> bool:
        """Whether nobody was left to take over, so that the cluster sends nothing."""
        return self.mean is None and len(self.takeovers) > 0

    def totals(self) -> Totals:
        """What the cluster cost in addition to its members' own work and messages.

        If the cluster's mean arrives too late or not at all, everything is wasted. What its members
        lost by themselves is already counted with their own work.
        """
        totals = Totals(
            down=self.from_server,
            up=self.to_server,
            replaced=len(self.takeovers),
            wasted_bytes=self.wasted,
        )
        if not self.is_late and not self.is_lost:
            return totals
        row = self.row()
        wasted_bytes = row.lan_down + row.lan_up + row.wan_down + row.wan_up
        wasted_macs = self.macs
        for place, lost in self.lost_work.items():
            transfer = self.transfers[place]
            wasted_bytes -= transfer.down + transfer.up
            wasted_macs -= lost.macs
        late = 0
        if self.is_late:
            late = len(self.members - self.gone)
        return replace(totals, late=late, wasted_bytes=wasted_bytes, wasted_macs=wasted_macs)

    def row(self) -> ClusterRow:
        sent = Transfer(wan_down=self.from_server, wan_up=self.to_server)
        for transfer in self.transfers.values():
            sent = sent.plus(transfer)
        return ClusterRow(
            cluster=self.cluster.number,
            members=tuple(client for client in self.cluster.members if client in self.members),
            aggregator=self.aggregator,
            replaced=tuple(takeover.lost for takeover in self.takeovers),
            level=self.cluster.level,
            macs=self.macs,
            lan_down=sent.lan_down,
            lan_up=sent.lan_up,
            wan_down=sent.wan_down,
            wan_up=sent.wan_up,
            seconds=self.elapsed,
            steps=tuple(self.steps),
        )


class PlainNumbers:
    """Combines the plain numbers in the replies of a cluster, such as a loss or an accuracy.

    The result is their sample-weighted mean, or their maximum where the method asks for it.
    Admission has already checked that the method declares these numbers.
    """

    def __init__(self, largest: frozenset[str]) -> None:
        self.names_of_largest = largest
        self.largest: dict[str, float] = {}
        self.sums: dict[str, float] = {}
        self.weights: dict[str, float] = {}

    def add(self, reply: Reply) -> None:
        weight = samples_of(reply)
        for name, value in plain_numbers(reply.meta).items():
            if name in self.names_of_largest:
                self.largest[name] = max(value, self.largest.get(name, value))
                continue
            self.sums[name] = self.sums.get(name, 0.0) + weight * value
            self.weights[name] = self.weights.get(name, 0.0) + weight

    def result(self) -> dict[str, float]:
        numbers = dict(self.largest)
        for name, total in self.sums.items():
            if self.weights[name] > 0:
                numbers[name] = total / self.weights[name]
        return numbers


def samples_of(reply: Reply) -> float:
    """The number of samples behind a reply: where weights are by key, the largest of them."""
    if isinstance(reply.weight, Mapping):
        return max(reply.weight.values(), default=0.0)
    return reply.weight
