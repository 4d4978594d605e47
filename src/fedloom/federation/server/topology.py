"""Who talks to whom: everybody with the server, or clients with the aggregator of their cluster.

Clustered: within a round clients train and are averaged `hops` times (λ₂) inside their cluster, on
the LAN, before each cluster's mean goes to the server, on the WAN. An aggregator is one of its
clients (the lowest id), and what it sends up is an ordinary reply. A method says by `relays`
whether that mean makes sense.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from fedloom.errors import FedloomError, unknown
from fedloom.federation.protocol.aggregate import Fold
from fedloom.federation.protocol.method import Method
from fedloom.federation.protocol.wire import Body, order_head, reply_chunks
from fedloom.federation.server.spool import Spooled
from fedloom.records.totals import Totals
from fedloom.types import Order, Reply

Exchange = Callable[[Sequence[Order], int], Spooled]  # orders of one hop → the accepted replies
Stamping = Callable[[Order, int], Order]  # an order of one hop, as it is sent


class Topology(Protocol):
    lan: bool  # whether clients' traffic stays in their cluster

    def check(self, method: Method) -> None: ...

    def gather(
        self,
        orders: Sequence[Order],
        exchange: Exchange,
        stamped: Stamping,
    ) -> tuple[Collection[Reply], Totals]:
        """The replies the server merges, and the traffic between aggregators and server."""
        ...


@dataclass(frozen=True)
class Flat:
    lan = False

    def check(self, method: Method) -> None:
        pass

    def gather(
        self,
        orders: Sequence[Order],
        exchange: Exchange,
        stamped: Stamping,
    ) -> tuple[Collection[Reply], Totals]:
        return exchange(orders, 0), Totals()


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
    ) -> tuple[Collection[Reply], Totals]:
        clusters = self._clusters(orders)
        # The server tells each aggregator once, before any client's state has changed.
        down = sum(size_of(stamped(aggregator_of(members), 0)) for members in clusters)
        means: list[Reply | None] = []
        for hop in range(self.hops):
            replies = exchange(list(chain.from_iterable(clusters)), hop)
            means = [self._mean(members, replies) for members in clusters]
            for number, mean in enumerate(means):
                clusters[number] = next_hop(clusters[number], mean)
        sent_up = [mean for mean in means if mean is not None]
        up = sum(size_of_reply(mean) for mean in sent_up)
        return sorted(sent_up, key=lambda reply: reply.client), Totals(down=down, up=up)

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
