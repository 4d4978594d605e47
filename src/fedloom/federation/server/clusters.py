"""Which clients form a cluster, from one clustering to the next, as a checkpoint stores it.

Clusters are formed among the clients that a round asks, and stay for `recluster` rounds. So does
the cohort: if clusters were formed among all clients, most members of a small cohort would be alone
in theirs. Each cluster ranks its members, best first, and the first one that is present aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedloom.types import Json, Order, Tensors

Choice = Literal["delay", "random", "lowest"]  # how an aggregator is chosen

SKETCH = 256  # the length of the sketch of an update


@dataclass(frozen=True)
class Clustering:
    """The clusters of one cohort."""

    stage: str
    since: int  # the round in which the clusters were formed
    clusters: tuple[FormedCluster, ...]

    @property
    def numbers(self) -> dict[int, int]:
        """The number of each client's cluster."""
        numbers = {}
        for cluster in self.clusters:
            for client in cluster.members:
                numbers[client] = cluster.number
        return numbers

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients of the cohort, sorted."""
        return tuple(sorted(self.numbers))

    def holds(self, stage: str, number: int, recluster: int) -> bool:
        """Whether the round of this number still works in these clusters."""
        return stage == self.stage and self.since <= number < self.since + recluster

    def fits(self, orders: Iterable[Order]) -> bool:
        """Whether all these clients are in a cluster.

        If the method chose the groups itself, each client must be in the cluster of its group.
        """
        numbers = self.numbers
        for order in orders:
            if order.client not in numbers:
                return False
            if order.group is not None and order.group != numbers[order.client]:
                return False
        return True

    def with_rankings(self, rankings: Mapping[int, tuple[int, ...]]) -> Clustering:
        """The same clustering with these rankings, by the number of the cluster."""
        chosen = []
        for cluster in self.clusters:
            ranking = rankings.get(cluster.number, cluster.ranking)
            chosen.append(replace(cluster, ranking=ranking))
        return replace(self, clusters=tuple(chosen))

    def to_json(self) -> Json:
        return {
            "stage": self.stage,
            "since": self.since,
            "clusters": [cluster.to_json() for cluster in self.clusters],
        }

    @classmethod
    def from_json(cls, raw: Json) -> Clustering | None:
        if raw is None:
            return None
        clusters = tuple(FormedCluster.from_json(cluster) for cluster in raw["clusters"])
        return cls(raw["stage"], raw["since"], clusters)


@dataclass(frozen=True)
class FormedCluster:
    """One cluster, which stays as it is until the next clustering."""

    number: int
    members: tuple[int, ...]  # in the order in which they joined
    ranking: tuple[int, ...] = ()  # members as aggregators, best first; empty: not ranked yet
    level: float | None = None  # the distance of its labels from the population's (Eq. 7)
    histogram: tuple[int, ...] | None = None  # of its labels, as the server saw them

    def aggregator(self, present: Collection[int]) -> int | None:
        """The best aggregator among those present, or None if no member is."""
        for client in self.ranking:
            if client in present:
                return client
        return None

    def to_json(self) -> Json:
        histogram = None
        if self.histogram is not None:
            histogram = list(self.histogram)
        return {
            "cluster": self.number,
            "members": list(self.members),
            "ranking": list(self.ranking),
            "level": self.level,
            "histogram": histogram,
        }

    @classmethod
    def from_json(cls, raw: Json) -> FormedCluster:
        histogram = None
        if raw["histogram"] is not None:
            histogram = tuple(raw["histogram"])
        return cls(
            number=raw["cluster"],
            members=tuple(raw["members"]),
            ranking=tuple(raw["ranking"]),
            level=raw["level"],
            histogram=histogram,
        )


@dataclass
class Sketches:
    """Count sketches of the clients' updates, whose distances approximate those of the updates.

    With sketches, the updates of all clients need not be in memory at the same time. The random
    numbers depend on the seed alone.
    """

    rng: Callable[[str], np.random.Generator]
    by_client: dict[int, np.ndarray] = field(default_factory=dict)

    def add(self, client: int, update: Tensors, sent: Tensors) -> None:
        """Add a client's sketch. `update` has the names of the tensors that the client was sent."""
        sketch = np.zeros(SKETCH)
        for name in sorted(update):
            if name not in sent or not update[name].is_floating_point():
                continue
            moved = (update[name].double() - sent[name].double()).flatten().numpy()
            draws = self.rng(f"sketch {name}")
            places = draws.integers(SKETCH, size=len(moved))
            signs = 2 * draws.integers(2, size=len(moved)) - 1
            sketch += np.bincount(places, weights=signs * moved, minlength=SKETCH)
        self.by_client[client] = sketch
