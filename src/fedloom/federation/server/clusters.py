"""Who is together, from one clustering to the next: what a checkpoint keeps of it.

Clusters are made of the clients that a round asks, and stay for `recluster` rounds; so does the
cohort, because clusters of everybody would leave most of a small cohort alone. Each cluster has a
ranking of its members, best first: the first one that is there aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedloom.types import Json, Order, Tensors

Choice = Literal["delay", "random", "lowest"]  # of an aggregator
SKETCH = 256  # numbers that stand for an update


@dataclass(frozen=True)
class Formed:
    """One cluster, as it stands until the next clustering."""

    number: int
    members: tuple[int, ...]  # in the order in which they joined
    ranking: tuple[int, ...] = ()  # of aggregators, best first; empty: not chosen yet
    level: float | None = None  # distance of its labels to the population's (Eq. 7)
    histogram: tuple[int, ...] | None = None  # of its labels, as the server saw them

    def aggregator(self, present: Collection[int]) -> int | None:
        """The best of those that are there; None: nobody is."""
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
    def from_json(cls, raw: Json) -> Formed:
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


@dataclass(frozen=True)
class Clustering:
    """The clusters of one cohort."""

    stage: str
    since: int  # the round in which they were made
    clusters: tuple[Formed, ...]

    @property
    def numbers(self) -> dict[int, int]:
        """The cluster of every client."""
        numbers = {}
        for cluster in self.clusters:
            for client in cluster.members:
                numbers[client] = cluster.number
        return numbers

    @property
    def clients(self) -> tuple[int, ...]:
        """The cohort, sorted."""
        return tuple(sorted(self.numbers))

    def holds(self, stage: str, number: int, recluster: int) -> bool:
        """Whether a round of this number still works in these clusters."""
        return stage == self.stage and self.since <= number < self.since + recluster

    def fits(self, orders: Iterable[Order]) -> bool:
        """Whether all these clients are in its clusters, in the method's own if it chose them."""
        numbers = self.numbers
        for order in orders:
            if order.client not in numbers:
                return False
            if order.group is not None and order.group != numbers[order.client]:
                return False
        return True

    def with_rankings(self, rankings: Mapping[int, tuple[int, ...]]) -> Clustering:
        """With the aggregators of these clusters, by number."""
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
        clusters = tuple(Formed.from_json(cluster) for cluster in raw["clusters"])
        return cls(raw["stage"], raw["since"], clusters)


@dataclass
class Sketches:
    """Every client's update as a few numbers, whose distances are about those of the updates.

    A count sketch, drawn by the seed: so nobody keeps the updates of all clients side by side.
    """

    rng: Callable[[str], np.random.Generator]
    by_client: dict[int, np.ndarray] = field(default_factory=dict)

    def add(self, client: int, update: Tensors, sent: Tensors) -> None:
        """`update` is what the client brings of what it was sent, by the same names."""
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
