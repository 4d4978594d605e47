"""NSGA-II: Deb, Pratap, Agarwal, Meyarivan, "A Fast and Elitist Multiobjective Genetic Algorithm",
2002, for paths with two figures to minimise.

The functions here have no state: they take a pool and return children or survivors, and they draw
only from the caller's generator. So a search can be stopped and resumed anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from fedloom.searchers.paths import Path

Point = tuple[float, ...]  # all figures are to be minimised


@dataclass(frozen=True)
class Individual:
    """A path, its figures, and by how much it exceeds its limits (0: it fits)."""

    path: Path
    figures: Point
    excess: float = 0.0


def dominates(first: Individual, second: Individual) -> bool:
    """Whether the first individual dominates the second under constraints (Definition 1).

    One that fits dominates one that does not. Of two that do not fit, the one with the smaller
    excess dominates; of two that fit, the one that is no worse in any figure and better in one.
    """
    if first.excess != second.excess and (first.excess > 0 or second.excess > 0):
        return first.excess < second.excess
    for figure, other_figure in zip(first.figures, second.figures, strict=True):
        if not figure <= other_figure:
            return False
    return first.figures != second.figures


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
    current = []
    for position, count in enumerate(dominators):
        if count == 0:
            current.append(position)
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
    """Returns the positions of the points that no other point dominates, in one pass.

    It is the first of `fronts`, for thousands of points with two figures that all fit.
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
    """Returns the crowding distance (§III-B) of the points of one front; infinite at its ends."""
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
        for rank in range(1, len(order) - 1):
            distances[order[rank]] += (values[rank + 1] - values[rank - 1]) / span
    return distances


@dataclass(frozen=True)
class Standing:
    """The rank of an individual's front, and its crowding distance within that front."""

    rank: int
    distance: float

    def beats(self, other: Standing) -> bool:
        """Compares two individuals by the crowded-comparison operator."""
        if self.rank != other.rank:
            return self.rank < other.rank
        return self.distance > other.distance


def standings(pool: Sequence[Individual]) -> list[Standing]:
    """Returns the standing of every individual, in the order of the pool."""
    by_position: dict[int, Standing] = {}
    for rank, front in enumerate(fronts(pool)):
        distances = crowding([pool[position].figures for position in front])
        for position, distance in zip(front, distances, strict=True):
            by_position[position] = Standing(rank, distance)
    positions = range(len(pool))
    return [by_position[position] for position in positions]


def survivors(pool: Sequence[Individual], size: int) -> list[Individual]:
    """Returns the best `size` individuals (§III-C).

    Those are whole fronts, and of the first front that is too large the members with the largest
    crowding distances.
    """
    best: list[Individual] = []
    for front in fronts(pool):
        remaining = size - len(best)
        if remaining <= 0:
            break
        members = [pool[position] for position in front]
        if len(members) > remaining:
            members = least_crowded(members, remaining)
        best.extend(members)
    return best


def least_crowded(members: Sequence[Individual], count: int) -> list[Individual]:
    """Returns the members of a front with the largest crowding distances, in their order."""
    distances = crowding([member.figures for member in members])
    by_distance = sorted(range(len(members)), key=lambda number: -distances[number])
    numbers = sorted(by_distance[:count])
    return [members[number] for number in numbers]


def tournament(
    pool: Sequence[Individual],
    standing: Sequence[Standing],
    rng: np.random.Generator,
) -> Individual:
    """Returns the better of two random individuals; if they are equal, the first."""
    first = int(rng.integers(len(pool)))
    second = int(rng.integers(len(pool)))
    if standing[second].beats(standing[first]):
        return pool[second]
    return pool[first]


def crossover(first: Path, second: Path, rng: np.random.Generator) -> Path:
    """Uniform crossover: every gene comes from either parent with probability 1/2."""
    from_first = (rng.random(len(first)) < 0.5).tolist()
    child = []
    for first_gene, second_gene, is_first in zip(first, second, from_first, strict=True):
        if is_first:
            child.append(first_gene)
        else:
            child.append(second_gene)
    return tuple(child)


def mutated(
    path: Path,
    operations: Sequence[Sequence[int]],
    probability: float,
    rng: np.random.Generator,
) -> Path:
    """Redraws every gene with this probability, uniformly among its layer's operations."""
    changes = (rng.random(len(path)) < probability).tolist()
    genes = []
    for gene, layer, changes_here in zip(path, operations, changes, strict=True):
        if changes_here:
            gene = layer[int(rng.integers(len(layer)))]
        genes.append(gene)
    return tuple(genes)
