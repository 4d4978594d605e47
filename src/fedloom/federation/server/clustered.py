"""A clustered topology: each client talks to the aggregator of its cluster.

Clients train and are averaged `hops` times (λ₂) per round inside their cluster, over the LAN. Then
each cluster's mean goes to the server, over the WAN. An aggregator is one of the cluster's clients.
It trains too, and its messages to itself cost nothing. What it sends to the server is an ordinary
reply. A method declares with `relays` whether such a mean makes sense.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, inf

import numpy as np

from fedloom.errors import FedloomError, unknown
from fedloom.federation.protocol.clustering import (
    ClientFacts,
    Cluster,
    check_h_max,
    clusters_by,
    round_clusters,
    size_for,
    sum_of,
    with_levels,
)
from fedloom.federation.protocol.method import Method
from fedloom.federation.server.clock import HopTimes, LostWork, RoundClock
from fedloom.federation.server.cluster_round import ClusterRound, Heartbeats
from fedloom.federation.server.clusters import Choice, Clustering, FormedCluster, Sketches
from fedloom.federation.server.ledger import HopClient, Transfer
from fedloom.federation.server.topology import Flat, Gathered, RunHop, Situation, Topology
from fedloom.federation.server.work_times import HopWork, cluster_seconds, flat_seconds
from fedloom.records.totals import Totals
from fedloom.types import Order, Round

ROUND = "round"
UPDATES = "updates"


@dataclass(frozen=True)
class Clustered:
    """Each client talks to the aggregator of its cluster."""

    groups: int | None = None  # the number of clusters; None: it follows from `size`
    hops: int = 1  # λ₂
    size: int | None = None  # Q; None: by `groups`, or a third of the clients that are asked
    rule: str = ROUND  # of --clusters, where the method does not choose
    recluster: int = 10  # rounds after which clusters are formed again
    aggregator: Choice = "delay"
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    relayed: bool = False  # whether the server's own process does the aggregators' work
    assigned: tuple[tuple[int, ...], ...] = ()  # the clusters that a file assigns
    h_max: float | None = None  # the longest round of a cluster, in simulated seconds
    # The clients' expected work in a hop, by client. It is needed if there is an `h_max`.
    expected: Mapping[int, HopWork] = field(default_factory=dict)

    def check(self, method: Method) -> None:
        if not method.relays:
            raise FedloomError(
                "a method in a clustered topology must allow averaging inside a cluster",
                "this one does not: its clients' replies cannot be averaged before they are sent",
                "use --topology flat",
            )

    def check_clients(self, active: int, clock: RoundClock) -> None:
        """Raise an error if `active` clients per round, on these devices, cannot be clustered."""
        if self.groups is not None:
            size_for(self.groups, active)
        if self.rule == UPDATES and self.recluster == 1:
            raise FedloomError(
                "topology.recluster must be at least 2 with --clusters updates",
                "it is 1, and a round whose updates decide the clusters is flat",
                "raise it",
            )
        if self.h_max is not None and clock.devices:
            alone = {client: self.round_seconds([client], clock) for client in self.expected}
            check_h_max(self.h_max, alone)

    def size_of(self, active: int) -> int:
        """Q, the maximum number of members in a cluster."""
        if self.size is not None:
            return self.size
        if self.groups is not None:
            return ceil(active / self.groups)
        return max(2, ceil(active / 3))

    def valid_clustering(
        self,
        clustering: Clustering | None,
        stage: str,
        number: int,
    ) -> Clustering | None:
        if clustering is None or not clustering.holds(stage, number, self.recluster):
            return None
        return clustering

    # One round

    def gather(
        self,
        orders: Sequence[Order],
        run_hop: RunHop,
        situation: Situation,
    ) -> Gathered:
        clustering = self.valid_clustering(
            situation.clustering, situation.stage, situation.round.number
        )
        if clustering is None or not clustering.fits(orders):
            if self.rule == UPDATES and not are_grouped(orders):
                return self._flat_round(orders, run_hop, situation)
            clustering = self._new_clustering(orders, situation)
        is_first = any(not cluster.ranking for cluster in clustering.clusters)
        clusters = self._clusters_at_work(clustering, orders, situation)
        for hop in range(self.hops):
            if not self._hop(hop, clusters, run_hop, situation.round):
                break  # the round is lost
        gathered = self._gathered(clusters, clustering, situation.clock)
        if not is_first or not situation.histograms:
            return gathered
        return with_histograms(gathered, sum_of(situation.histograms.values()))

    def _clusters_at_work(
        self,
        clustering: Clustering,
        orders: Sequence[Order],
        situation: Situation,
    ) -> list[ClusterRound]:
        """The clusters with orders in this round, in the order of their numbers."""
        numbers = clustering.numbers
        by_number: dict[int, list[Order]] = {}
        for order in orders:
            number = numbers[order.client]
            by_number.setdefault(number, []).append(replace(order, group=number))
        begun = []
        for cluster in clustering.clusters:
            if cluster.number not in by_number:
                continue
            begun.append(
                ClusterRound(
                    cluster=cluster,
                    orders=by_number[cluster.number],
                    clock=situation.clock,
                    heartbeats=self.heartbeats,
                    hops=self.hops,
                    relayed=self.relayed,
                    note=situation.note,
                    largest=situation.largest,
                )
            )
        return begun

    def _hop(
        self,
        hop: int,
        clusters: Sequence[ClusterRound],
        run_hop: RunHop,
        r: Round,
    ) -> bool:
        """One hop, which ends with a mean inside every cluster. False: no reply can be used.

        Aggregators are chosen in the first hop.
        """
        orders = []
        for cluster in clusters:
            orders += cluster.orders_of_hop(hop)

        def timing(works: Sequence[HopWork], refused: Collection[int]) -> HopTimes:
            times = []
            for cluster in clusters:
                members_work = [work for work in works if work.client in cluster.members]
                if hop == 0:
                    cluster.begin(members_work, self._ranking(cluster, members_work, r))
                times.append(cluster.times_of_hop(members_work, refused, hop))
            return together(times)

        worked = run_hop(orders, hop, timing)
        for cluster in clusters:
            members_work = [work for work in worked.works if work.client in cluster.members]
            if worked.replies:
                cluster.replace_if_refused(worked.replies, members_work, hop)
            cluster.average(worked.replies)
        return bool(worked.replies)

    def _ranking(
        self,
        cluster: ClusterRound,
        works: Sequence[HopWork],
        r: Round,
    ) -> tuple[int, ...]:
        """The members as aggregators, best first.

        The ranking is made once and stays until the next clustering.
        """
        if cluster.cluster.ranking:
            return cluster.cluster.ranking
        members = sorted(cluster.cluster.members)
        if self.aggregator == "random":
            drawn = r.rng(f"aggregators {cluster.cluster.number}").permutation(members)
            return tuple(drawn.tolist())
        if self.aggregator == "lowest":
            return tuple(members)
        ranked = cluster.ranked_by_delay(works)
        absent = [member for member in members if member not in ranked]
        return (*ranked, *absent)

    def _gathered(
        self,
        clusters: Sequence[ClusterRound],
        clustering: Clustering,
        clock: RoundClock,
    ) -> Gathered:
        replies = []
        rows = []
        rankings = {}
        transfers: dict[HopClient, Transfer] = {}
        traffic = Totals()
        seconds = 0.0
        for cluster in clusters:
            cluster.finish()
            seconds = max(seconds, cluster.elapsed)
            if cluster.mean is not None and not cluster.is_late:
                replies.append(cluster.mean)
            traffic = traffic.plus(cluster.totals())
            transfers.update(cluster.transfers)
            rankings[cluster.cluster.number] = cluster.cluster.ranking
            rows.append(cluster.row())
        if clock.deadline is not None:
            seconds = min(seconds, clock.deadline)
        return Gathered(
            sorted(replies, key=lambda reply: reply.client),
            traffic,
            tuple(rows),
            seconds,
            transfers,
            clustering.with_rankings(rankings),
        )

    # Clustering

    def clustering_for(
        self,
        clients: Sequence[int],
        situation: Situation,
        updates: Mapping[int, np.ndarray] | None = None,
    ) -> Clustering | None:
        """The clusters that are still valid if they contain all these clients, else new ones."""
        orders = [Order(client, "") for client in clients]
        clustering = self.valid_clustering(
            situation.clustering, situation.stage, situation.round.number
        )
        if clustering is not None and clustering.fits(orders):
            return clustering
        return self._new_clustering(orders, situation, updates)

    def _new_clustering(
        self,
        orders: Sequence[Order],
        situation: Situation,
        updates: Mapping[int, np.ndarray] | None = None,
    ) -> Clustering:
        """New clusters of the clients that this round asks: the method's groups, or by the rule."""
        population = None
        if situation.histograms:
            population = sum_of(situation.histograms.values())
        facts = ClientFacts(
            histograms=situation.histograms,
            population=population,
            updates=updates or {},
            speeds=speeds_of(orders, situation.clock),
            assigned=self.assigned,
        )
        if are_grouped(orders):
            groups = groups_of(orders)
            numbers = sorted(groups)
            clusters = [Cluster(groups[number]) for number in numbers]
            clusters = with_levels(clusters, facts.histograms, population)
        else:
            clusters = self._by_rule([order.client for order in orders], facts, situation)
            numbers = list(range(len(clusters)))
        numbered = []
        for number, cluster in zip(numbers, clusters, strict=True):
            numbered.append(
                FormedCluster(
                    number=number,
                    members=cluster.members,
                    level=cluster.level,
                    histogram=cluster.histogram,
                )
            )
        return Clustering(situation.stage, situation.round.number, tuple(numbered))

    def _by_rule(
        self,
        clients: Sequence[int],
        facts: ClientFacts,
        situation: Situation,
    ) -> list[Cluster]:
        if self.rule == ROUND and self.groups is not None:
            dealt = round_clusters(clients, self.groups)
            return with_levels(dealt, facts.histograms, facts.population)
        fits = None
        if self.h_max is not None and situation.clock.devices:
            fits = partial(self._is_quick, clock=situation.clock)
        draws = situation.round.rng("clusters")
        return clusters_by(self.rule, clients, self.size_of(len(clients)), draws, facts, fits)

    def _flat_round(
        self,
        orders: Sequence[Order],
        run_hop: RunHop,
        situation: Situation,
    ) -> Gathered:
        """A flat round, after which the clients' updates decide the clusters."""
        worked = run_hop(orders, 0, situation.clock.flat)
        sketches = Sketches(situation.round.rng)
        by_client = {order.client: order for order in orders}
        for reply in worked.replies:
            order = by_client[reply.client]
            sketches.add(reply.client, situation.update_of(order, reply), order.tensors)
        answered = [by_client[client] for client in sketches.by_client]
        clustering = self._new_clustering(answered, situation, sketches.by_client)
        return Gathered(
            worked.replies,
            seconds=worked.times.seconds,
            clustering=clustering,
            paces=worked.times.paces,
        )

    # H^max

    def _is_quick(self, members: Sequence[int], clock: RoundClock) -> bool:
        assert self.h_max is not None
        return self.round_seconds(members, clock) <= self.h_max

    def _expected_work(self, client: int) -> HopWork:
        """A client's expected work.

        If a client is not among `expected`, the largest expected work of any client is assumed.
        """
        if client in self.expected:
            return self.expected[client]
        dearest = max(self.expected.values(), key=lambda work: work.macs + work.search_macs)
        return replace(dearest, client=client)

    def round_seconds(self, members: Sequence[int], clock: RoundClock) -> float:
        """How long a round will take these clients as a cluster with its best aggregator."""
        works = [self._expected_work(client) for client in members]
        if self.relayed:
            return self.hops * flat_seconds(works, clock.devices, clock.phases)
        largest = max(works, key=lambda work: work.up)
        quickest = inf
        for work in works:
            seconds = cluster_seconds(
                [works] * self.hops,
                clock.devices,
                work.client,
                work.down,
                largest.up,
                clock.phases,
            )
            quickest = min(quickest, seconds)
        return quickest


def are_grouped(orders: Sequence[Order]) -> bool:
    """Whether the method assigns clients to groups itself."""
    return any(order.group is not None for order in orders)


def groups_of(orders: Sequence[Order]) -> dict[int, tuple[int, ...]]:
    """The clients of each of the method's groups, in the order of its plan."""
    groups: dict[int, tuple[int, ...]] = {}
    for order in orders:
        if order.group is None:
            rule = "a plan must name the groups of all its clients, or of none"
            raise FedloomError(rule, f"client {order.client} has none", "fix the method")
        groups[order.group] = (*groups.get(order.group, ()), order.client)
    return groups


def with_histograms(gathered: Gathered, population: tuple[int, ...]) -> Gathered:
    """Add the label counts that the server saw, for the first round of a clustering."""
    assert gathered.clustering is not None
    histograms = {}
    for cluster in gathered.clustering.clusters:
        histograms[cluster.number] = cluster.histogram
    rows = []
    for row in gathered.clusters:
        rows.append(replace(row, histogram=histograms[row.cluster]))
    return replace(gathered, clusters=tuple(rows), population=population)


def speeds_of(orders: Sequence[Order], clock: RoundClock) -> dict[int, float]:
    """MACs per second of each client; without devices, all are equally fast."""
    if not clock.devices:
        return {order.client: 1.0 for order in orders}
    return {order.client: clock.devices[order.client].macs_per_second for order in orders}


def together(times: Sequence[HopTimes]) -> HopTimes:
    """The times of one hop over all clusters, which work in parallel."""
    of_client: dict[int, float] = {}
    lost_work: dict[int, LostWork] = {}
    seconds = 0.0
    for of_cluster in times:
        of_client.update(of_cluster.of_client)
        lost_work.update(of_cluster.lost_work)
        seconds = max(seconds, of_cluster.seconds)
    return HopTimes(seconds, of_client, lost_work)


def parse_topology(text: str) -> Topology:
    """`flat`, `clustered`, `clustered:GROUPS` or `clustered:GROUPSxHOPS`."""
    name, colon, value = text.partition(":")
    if text == "flat":
        return Flat()
    if name != "clustered":
        raise unknown("--topology", text, ["flat", "clustered"])
    if not colon:
        return Clustered()
    groups, x, hops = value.partition("x")
    if not x:
        hops = "1"
    if not is_positive(groups) or not is_positive(hops):
        raise FedloomError(
            f"`--topology {text}` must name a number of clusters above 0",
            f"got {value!r}",
            "try clustered:2, or clustered:2x3 for three averages per round inside a cluster",
        )
    return Clustered(int(groups), int(hops))


def is_positive(digits: str) -> bool:
    return digits.isdecimal() and int(digits) > 0
