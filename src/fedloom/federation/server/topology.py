"""Topologies: all clients talk to the server, or each talks to the aggregator of its cluster.

This file has what the round loop needs to know about either, and the flat topology. The clustered
one is in `server/clustered.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from fedloom.federation.protocol.method import Method
from fedloom.federation.server.clock import HopTimes, RoundClock
from fedloom.federation.server.cluster_round import Takeover
from fedloom.federation.server.clusters import Clustering
from fedloom.federation.server.ledger import HopClient, Transfer
from fedloom.federation.server.spool import Spooled
from fedloom.federation.server.work_times import HopWork
from fedloom.records.rows import ClusterRow, Pace
from fedloom.records.totals import Totals
from fedloom.types import Order, Reply, Round, Tensors, Together


class Topology(Protocol):
    @property
    def hops(self) -> int:
        """The hops of work in one round."""
        ...

    def check(self, method: Method) -> None:
        """Raise an error if a method does not work in this topology."""
        ...

    def gather(
        self,
        orders: Sequence[Order],
        run_hop: RunHop,
        situation: Situation,
    ) -> Gathered:
        """Carry out the orders of a round."""
        ...

    def valid_clustering(
        self,
        clustering: Clustering | None,
        stage: str,
        number: int,
    ) -> Clustering | None:
        """The clustering that is still valid for a round, whose clients are the round's cohort.

        None: the round needs a new clustering.
        """
        ...

    def clustering_for(
        self,
        clients: Sequence[int],
        situation: Situation,
        updates: Mapping[int, np.ndarray] | None = None,
    ) -> Clustering | None:
        """The clusters of these clients, for planning a round; None in a flat topology."""
        ...


@dataclass(frozen=True)
class Flat:
    """All clients talk to the server."""

    hops = 1

    def check(self, method: Method) -> None:
        pass

    def gather(
        self,
        orders: Sequence[Order],
        run_hop: RunHop,
        situation: Situation,
    ) -> Gathered:
        worked = run_hop(orders, 0, situation.clock.flat)
        times = worked.times
        return Gathered(worked.replies, seconds=times.seconds, paces=times.paces)

    def valid_clustering(
        self,
        clustering: Clustering | None,
        stage: str,
        number: int,
    ) -> Clustering | None:
        return None

    def clustering_for(
        self,
        clients: Sequence[int],
        situation: Situation,
        updates: Mapping[int, np.ndarray] | None = None,
    ) -> Clustering | None:
        return None


@dataclass(frozen=True)
class Situation:
    """What a topology knows about a round in addition to its orders."""

    stage: str
    round: Round
    clock: RoundClock = field(default_factory=RoundClock)
    clustering: Clustering | None = None  # None: no clusters have been formed yet
    # The label counts that clients reported, if they were asked.
    histograms: Mapping[int, Sequence[int]] = field(default_factory=dict)
    # Returns the tensors of a reply, with the names and shapes of those that were sent.
    update_of: Callable[[Order, Reply], Tensors] = lambda order, reply: reply.tensors
    # Called whenever an aggregator is lost.
    note: Callable[[Takeover], None] = lambda takeover: None
    # Plain numbers in replies for which a cluster reports the maximum, not the mean.
    largest: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Gathered:
    """What the server has gathered in a round."""

    replies: Collection[Reply]  # the replies to merge
    traffic: Totals = field(default_factory=Totals)  # between aggregators and server
    clusters: tuple[ClusterRow, ...] = ()
    seconds: float = 0.0  # simulated
    # Over which links members' bytes went. Clients that are missing here talked to the server.
    transfers: Mapping[HopClient, Transfer] = field(default_factory=dict)
    clustering: Clustering | None = None  # with which the next round begins
    # In the first round of a clustering, the label counts of all clients that reported them.
    population: tuple[int, ...] | None = None
    paces: tuple[Pace, ...] = ()  # of a round without clusters


@dataclass(frozen=True)
class HopResult:
    """The result of one hop of work."""

    replies: Spooled  # the accepted ones
    works: tuple[HopWork, ...] = ()  # of all clients that were asked, in client order
    times: HopTimes = field(default_factory=HopTimes)


# Returns the simulated times of a hop. Its arguments are the work of all clients that were asked,
# and the clients whose replies cannot be used for other reasons.
Timing = Callable[[Sequence[HopWork], Collection[int]], HopTimes]

# Carries out the orders of one hop.
RunHop = Callable[[Sequence[Order], int, Timing], HopResult]


@dataclass
class PlannedClusters:
    """The clusters that a plan asked for, in which its round then works."""

    topology: Topology
    situation: Situation  # of the round that is planned
    clustering: Clustering | None = None  # None: the plan has not asked

    def of(
        self,
        clients: Sequence[int],
        updates: Mapping[int, np.ndarray] | None = None,
    ) -> tuple[Together, ...]:
        self.clustering = self.topology.clustering_for(clients, self.situation, updates)
        assert self.clustering is not None, "a flat topology has no clusters"
        clusters = []
        for cluster in self.clustering.clusters:
            clusters.append(Together(cluster.number, cluster.members, cluster.level))
        return tuple(clusters)


def with_grouping(view: Round, topology: Topology, situation: Situation) -> Round:
    """The view of a round whose plan may ask for the clusters."""
    if isinstance(topology, Flat):
        return view
    return replace(view, grouping=PlannedClusters(topology, situation))


def planned_clusters(view: Round) -> Clustering | None:
    """The clusters that a plan asked for, or None if it did not."""
    if isinstance(view.grouping, PlannedClusters):
        return view.grouping.clustering
    return None
