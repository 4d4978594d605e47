"""Who talks to whom: everybody with the server, or clients with the aggregator of their cluster.

Clustered: within a round clients train and are averaged `hops` times (λ₂) inside their cluster, on
the LAN, before each cluster's mean goes to the server, on the WAN. An aggregator is one of its
clients (the lowest id), and what it sends up is an ordinary reply. A method says by `relays`
whether that mean makes sense.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

from fedloom.errors import FedloomError, unknown
from fedloom.federation.protocol.aggregate import Fold
from fedloom.federation.protocol.method import Method
from fedloom.federation.protocol.wire import Body, order_head, reply_chunks
from fedloom.federation.server.clock import HopTimes, HopWork, RoundClock
from fedloom.federation.server.spool import Spooled
from fedloom.records.rows import ClusterRow
from fedloom.records.totals import Totals
from fedloom.types import Order, Reply


@dataclass(frozen=True)
class Worked:
    """What one hop of work brought."""

    replies: Spooled  # the accepted ones
    works: tuple[HopWork, ...] = ()  # of all who were asked, in client order
    times: HopTimes = field(default_factory=HopTimes)


# Judges a hop by the clock: who was asked, and whose replies cannot be used for other reasons.
Timing = Callable[[Sequence[HopWork], Collection[int]], HopTimes]
Exchange = Callable[[Sequence[Order], int, Timing], Worked]  # orders of one hop, as they were met
Stamping = Callable[[Order, int], Order]  # an order of one hop, as it is sent


@dataclass(frozen=True)
class Gathered:
    """What a round brought the server."""

    replies: Collection[Reply]  # that it merges
    traffic: Totals = field(default_factory=Totals)  # between aggregators and server
    clusters: tuple[ClusterRow, ...] = ()
    seconds: float = 0.0  # simulated


class Topology(Protocol):
    lan: bool  # whether clients' traffic stays in their cluster

    @property
    def hops(self) -> int:
        """Of work in one round."""
        ...

    def check(self, method: Method) -> None: ...

    def gather(
        self,
        orders: Sequence[Order],
        exchange: Exchange,
        stamped: Stamping,
        clock: RoundClock,
    ) -> Gathered: ...


@dataclass(frozen=True)
class Flat:
    lan = False
    hops = 1

    def check(self, method: Method) -> None:
        pass

    def gather(
        self,
        orders: Sequence[Order],
        exchange: Exchange,
        stamped: Stamping,
        clock: RoundClock,
    ) -> Gathered:
        worked = exchange(orders, 0, clock.flat)
        return Gathered(worked.replies, seconds=worked.times.seconds)


@dataclass(frozen=True)
class Clustered:
    groups: int
    hops: int = 1
    lan = True

    def check(self, method: Method) -> None:
        if not method.relays:
            raise FedloomError(
                "a method in a clustered topology must allow averaging inside a cluster",
                "this one does not: its clients' replies cannot be averaged before they are sent",
                "use --topology flat",
            )

    def gather(
        self,
        orders: Sequence[Order],
        exchange: Exchange,
        stamped: Stamping,
        clock: RoundClock,
    ) -> Gathered:
        clusters = self._clusters(orders)
        # The server tells each aggregator once, before any client's state has changed.
        down = sum(size_of(stamped(aggregator_of(members), 0)) for members in clusters)
        means: list[Reply | None] = []
        for hop in range(self.hops):
            replies = exchange(list(chain.from_iterable(clusters)), hop, no_time).replies
            means = [self._mean(members, replies) for members in clusters]
            for number, mean in enumerate(means):
                clusters[number] = next_hop(clusters[number], mean)
        sent_up = [mean for mean in means if mean is not None]
        up = sum(size_of_reply(mean) for mean in sent_up)
        replies_up = sorted(sent_up, key=lambda reply: reply.client)
        return Gathered(replies_up, Totals(down=down, up=up))

    def _clusters(self, orders: Sequence[Order]) -> list[list[Order]]:
        """The orders of each cluster, in the order of the clusters' numbers."""
        clusters: dict[int, list[Order]] = {}
        for order in orders:
            group = self._group(order)
            clusters.setdefault(group, []).append(replace(order, group=group))
        return [clusters[group] for group in sorted(clusters)]

    def _group(self, order: Order) -> int:
        """The method's choice, or clients dealt round."""
        if order.group is None:
            return order.client % self.groups
        return order.group

    @staticmethod
    def _mean(members: Sequence[Order], replies: Spooled) -> Reply | None:
        of_cluster = replies.of({order.client for order in members})
        if not of_cluster:
            return None
        if any(order.region != members[0].region for order in members):
            rule = "all clients of a cluster must work in one region"
            raise FedloomError(rule, "their orders differ", "mend the method's plan")
        fold = Fold(members[0].tensors)
        for reply in of_cluster:
            fold.add(reply)
        return fold.reply(aggregator_of(members).client)


def no_time(works: Sequence[HopWork], refused: Collection[int]) -> HopTimes:
    """Nobody is late."""
    return HopTimes()


def aggregator_of(members: Sequence[Order]) -> Order:
    """The order of the client that speaks for its cluster: the one with the lowest id."""
    return min(members, key=lambda order: order.client)


def next_hop(members: list[Order], mean: Reply | None) -> list[Order]:
    """The cluster's next orders start from its mean."""
    if mean is None:
        return members
    tensors = {**members[0].tensors, **mean.tensors}
    return [replace(order, tensors=tensors) for order in members]


def size_of(order: Order) -> int:
    body = Body(order.tensors)
    return len(order_head(order, body)) + body.size


def size_of_reply(reply: Reply) -> int:
    return sum(map(len, reply_chunks(reply)))


def parse_topology(text: str) -> Topology:
    """`flat`, `clustered:GROUPS` or `clustered:GROUPSxHOPS`."""
    name, _, value = text.partition(":")
    if text == "flat":
        return Flat()
    if name != "clustered":
        raise unknown("--topology", text, ["flat", "clustered"])
    groups, x, hops = value.partition("x")
    if not x:
        hops = "1"
    if not is_positive(groups) or not is_positive(hops):
        raise FedloomError(
            f"`--topology {text}` must name a number of clusters above 0",
            f"got {value!r}",
            "try clustered:2, or clustered:2x3 for three averages inside a cluster a round",
        )
    return Clustered(int(groups), int(hops))


def is_positive(digits: str) -> bool:
    return digits.isdecimal() and int(digits) > 0
