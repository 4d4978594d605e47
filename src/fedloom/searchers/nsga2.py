"""NSGA-II: Deb, Pratap, Agarwal, Meyarivan, "A Fast and Elitist Multiobjective Genetic Algorithm",
2002, for paths of which two figures are to be small.

Nothing here has a memory: a pool goes in, children or survivors come out, and every draw is the
caller's generator's. So a search can be stopped and resumed anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from fedloom.searchers.paths import Path

Point = tuple[float, ...]  # every figure is to be small


@dataclass(frozen=True)
class Individual:
    """A path, its figures, and by how much it is over its limits (0: it fits)."""

    path: Path
    figures: Point
    excess: float = 0.0


def dominates(first: Individual, second: Individual) -> bool:
    """Constrained domination (Definition 1): what fits is before what does not.

    Of two that do not fit, the one that is over by less; of two that do, the one that is nowhere
    worse and somewhere better.
    """
    if first.excess != second.excess and (first.excess > 0 or second.excess > 0):
        return first.excess < second.excess
    nowhere_worse = all(a <= b for a, b in zip(first.figures, second.figures, strict=True))
    return nowhere_worse and first.figures != second.figures


def fronts(pool: Sequence[Individual]) -> list[list[int]]:
    """Fast non-dominated sorting (§III-A): the positions in `pool`, front by front."""
    dominated: list[list[int]] = [[] for _ in pool]
    dominators = [0] * len(pool)
    for i, first in enumerate(pool):
        for j, second in enumerate(pool):
            if dominates(first, second):
                dominated[i].append(j)
                dominators[j] += 1
    sorted_fronts = []
    current = [position for position, count in enumerate(dominators) if count == 0]
    while current:
        sorted_fronts.append(current)
        following = []
        for i in current:
            for j in dominated[i]:
                dominators[j] -= 1
                if dominators[j] == 0:
                    following.append(j)
        current = sorted(following)
    return sorted_fronts


def first_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The positions of the points that no other one dominates, by one pass over two figures.

    The first of `fronts`, for thousands of points that all fit.
    """
    order = sorted(range(len(points)), key=lambda position: points[position])
    front: list[int] = []
    for position in order:
        first, second = points[position]
        if front:
            last = points[front[-1]]
            if second > last[1] or (second == last[1] and first > last[0]):
                continue
        front.append(position)
    return front


def crowding(points: Sequence[Point]) -> list[float]:
    """Crowding distance (§III-B) within one front: how lonely each point is, ends infinitely."""
    distances = [0.0] * len(points)
    if not points:
        return distances
    for figure in range(len(points[0])):
        order = sorted(range(len(points)), key=lambda position: points[position][figure])
        values = [points[position][figure] for position in order]
        distances[order[0]] = inf
        distances[order[-1]] = inf
        span = values[-1] - values[0]
        if span == 0:
            continue
        for place in range(1, len(order) - 1):
            distances[order[place]] += (values[place + 1] - values[place - 1]) / span
    return distances


@dataclass(frozen=True)
class Standing:
    """How good an individual is: its front, and within it how lonely it is."""

    rank: int
    distance: float

    def beats(self, other: Standing) -> bool:
        """The crowded-comparison operator."""
        if self.rank != other.rank:
            return self.rank < other.rank
        return self.distance > other.distance


def standings(pool: Sequence[Individual]) -> list[Standing]:
    by_position: dict[int, Standing] = {}
    for rank, front in enumerate(fronts(pool)):
        distances = crowding([pool[position].figures for position in front])
        for position, distance in zip(front, distances, strict=True):
            by_position[position] = Standing(rank, distance)
    return [by_position[position] for position in range(len(pool))]


def survivors(pool: Sequence[Individual], size: int) -> list[Individual]:
    """The best `size` (§III-C): whole fronts, then the loneliest of the front that is too many."""
    kept: list[Individual] = []
    for front in fronts(pool):
        room = size - len(kept)
        if room <= 0:
            break
        members = [pool[position] for position in front]
        if len(members) > room:
            distances = crowding([member.figures for member in members])
            loneliest = sorted(range(len(members)), key=lambda place: -distances[place])
            members = [members[place] for place in sorted(loneliest[:room])]
        kept.extend(members)
    return kept


def tournament(
    pool: Sequence[Individual],
    standing: Sequence[Standing],
    rng: np.random.Generator,
) -> Individual:
    """The better of two drawn at random; the first of them if neither is."""
    first = int(rng.integers(len(pool)))
    second = int(rng.integers(len(pool)))
    if standing[second].beats(standing[first]):
        return pool[second]
    return pool[first]


def crossover(first: Path, second: Path, rng: np.random.Generator) -> Path:
    """Uniform: every gene from either parent, by a fair coin."""
    from_first = rng.random(len(first)) < 0.5
    child = []
    for mine, yours, coin in zip(first, second, from_first.tolist(), strict=True):
        child.append(mine if coin else yours)
    return tuple(child)


def mutated(
    path: Path,
    operations: Sequence[Sequence[int]],
    probability: float,
    rng: np.random.Generator,
) -> Path:
    """Every gene drawn anew with this probability, uniform among its layer's operations."""
    changes = (rng.random(len(path)) < probability).tolist()
    genes = []
    for gene, layer, changes_here in zip(path, operations, changes, strict=True):
        if changes_here:
            gene = layer[int(rng.integers(len(layer)))]
        genes.append(gene)
    return tuple(genes)
