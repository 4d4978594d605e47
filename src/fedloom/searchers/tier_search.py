"""The search of FedorAS's second stage: NSGA-II on (loss, cost) for all tiers at once.

Its memory is plain JSON, and every random stream is named by the seed, the generation and the tier:
a search that was stopped continues as if it had not been.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedloom.rng import rng
from fedloom.searchers.nsga2 import (
    Individual,
    crossover,
    first_front,
    mutated,
    standings,
    survivors,
    tournament,
)
from fedloom.searchers.path_scores import PathScore
from fedloom.searchers.paths import Amounts, Path, PathCosts, PathSampler
from fedloom.types import Json

SAME_COST = 0.05  # the relative difference in cost allowed between a path and its control
TRIES = 10  # attempts to draw a feasible child, before a greedy path replaces it


@dataclass(frozen=True)
class Score:
    """A path's figures on validation data."""

    loss: float
    accuracy: float
    samples: int
    balanced_accuracy: float | None = None  # None: classes were not counted, or there is only one
    auc: float | None = None  # None: classes were not counted, or there are not two

    @classmethod
    def of(cls, sums: PathScore) -> Score:
        """Returns the mean figures from sums over samples."""
        return cls(
            loss=sums.mean_loss,
            accuracy=sums.accuracy,
            samples=sums.samples,
            balanced_accuracy=sums.balanced_accuracy,
            auc=sums.auc,
        )

    def to_plain(self) -> list[Json]:
        """Figures that are None are left out: AUC is known only if balanced accuracy is."""
        figures: list[Json] = [self.loss, self.accuracy, self.samples]
        if self.balanced_accuracy is not None:
            figures.append(self.balanced_accuracy)
        if self.auc is not None:
            figures.append(self.auc)
        return figures

    @property
    def beside(self) -> dict[str, float]:
        """The known figures besides loss and accuracy, by name."""
        figures = {}
        if self.balanced_accuracy is not None:
            figures["balanced_accuracy"] = self.balanced_accuracy
        if self.auc is not None:
            figures["auc"] = self.auc
        return figures


@dataclass(frozen=True)
class TierSpace:
    """The paths that one tier allows."""

    tier: int
    costs: PathCosts  # operations that the device does not support have infinite cost
    limits: Amounts

    def fits(self, path: Path) -> bool:
        return self.costs.fits(path, self.limits)

    def cost(self, path: Path) -> float:
        """Returns the cost in the first unit, over which a front is drawn."""
        return self.costs.of(path)[0]

    def excess(self, path: Path) -> float:
        """Returns by how much a path exceeds its limits: the sum of the relative excesses."""
        total = 0.0
        for amount, limit in zip(self.costs.of(path), self.limits, strict=True):
            total += max(0.0, amount / limit - 1.0)
        return total


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a search for all tiers."""

    models: tuple[int, ...]  # the number of paths that are scored, by tier
    pool: int
    sample: int  # children per generation
    mutation: float = 0.1
    threshold: float | None = None  # the accuracy at which a tier is done


@dataclass(frozen=True)
class Memory:
    """The state of the search between generations."""

    generation: int = 0
    pools: Mapping[int, tuple[Path, ...]] = field(default_factory=dict)  # by tier
    tried: Mapping[int, tuple[Path, ...]] = field(default_factory=dict)  # by tier, in order
    scores: Mapping[Path, Score] = field(default_factory=dict)

    def to_plain(self) -> Any:
        scores = []
        for path, score in self.scores.items():
            scores.append([list(path), *score.to_plain()])
        return {
            "generation": self.generation,
            "pools": plain_paths(self.pools),
            "tried": plain_paths(self.tried),
            "scores": scores,
        }

    @classmethod
    def from_plain(cls, raw: Mapping[str, Any]) -> Memory:
        scores = {}
        for path, *figures in raw["scores"]:
            scores[tuple(path)] = Score(*figures)
        return cls(
            generation=raw["generation"],
            pools=paths_by_tier(raw["pools"]),
            tried=paths_by_tier(raw["tried"]),
            scores=scores,
        )


def plain_paths(by_tier: Mapping[int, Sequence[Path]]) -> dict[str, Json]:
    """Returns the paths of every tier as JSON."""
    plain: dict[str, Json] = {}
    for tier, paths in by_tier.items():
        plain[str(tier)] = [list(path) for path in paths]
    return plain


def paths_by_tier(raw: Mapping[str, Any]) -> dict[int, tuple[Path, ...]]:
    """The inverse of `plain_paths`."""
    by_tier = {}
    for tier, paths in raw.items():
        by_tier[int(tier)] = tuple(tuple(path) for path in paths)
    return by_tier


def next_paths(
    memory: Memory,
    spaces: Sequence[TierSpace],
    settings: SearchSettings,
    seed: int,
) -> dict[int, list[Path]]:
    """Returns the paths that each tier tries in this generation; a tier that is done has none."""
    by_tier = {}
    for space in spaces:
        tried = memory.tried.get(space.tier, ())
        remaining = settings.models[space.tier - 1] - len(tried)
        if remaining <= 0 or is_good_enough(memory, space, settings):
            continue
        draws = rng(seed, "generation", memory.generation, space.tier)
        if memory.generation == 0:
            paths = first_pool(space, min(settings.pool, remaining), draws)
        else:
            paths = children(memory, space, min(settings.sample, remaining), settings, draws)
        if paths:
            by_tier[space.tier] = paths
    return by_tier


def is_good_enough(memory: Memory, space: TierSpace, settings: SearchSettings) -> bool:
    if settings.threshold is None:
        return False
    for path in memory.tried.get(space.tier, ()):
        if memory.scores[path].accuracy >= settings.threshold:
            return True
    return False


def first_pool(space: TierSpace, size: int, draws: np.random.Generator) -> list[Path]:
    """Draws distinct greedy paths, fewer than `size` if there are not enough."""
    return list(new_greedy_paths(space, size, set(), draws))


def new_greedy_paths(
    space: TierSpace,
    count: int,
    tried: set[Path],
    draws: np.random.Generator,
) -> list[Path]:
    """Draws distinct greedy paths that were not tried before."""
    sampler = PathSampler(space.costs)
    paths: list[Path] = []
    for _ in range(TRIES * count):
        if len(paths) == count:
            break
        path = sampler.draw(space.limits, draws)
        if path not in tried and path not in paths:
            paths.append(path)
    return paths


def children(
    memory: Memory,
    space: TierSpace,
    count: int,
    settings: SearchSettings,
    draws: np.random.Generator,
) -> list[Path]:
    """Returns children of parents that win tournaments; none of them was tried before."""
    pool = individuals(memory, space, memory.pools[space.tier])
    standing = standings(pool)
    tried = set(memory.tried[space.tier])
    operations = [range(len(layer)) for layer in space.costs.layers]
    new_paths: list[Path] = []
    for _ in range(count):
        for _ in range(TRIES):
            mother = tournament(pool, standing, draws).path
            father = tournament(pool, standing, draws).path
            child = mutated(crossover(mother, father, draws), operations, settings.mutation, draws)
            if space.fits(child) and child not in tried and child not in new_paths:
                new_paths.append(child)
                break
        else:
            new_paths.extend(new_greedy_paths(space, 1, tried | set(new_paths), draws))
    return new_paths


def individuals(memory: Memory, space: TierSpace, paths: Sequence[Path]) -> list[Individual]:
    """Returns paths with the two figures to minimise: loss and cost."""
    members = []
    for path in paths:
        figures = (memory.scores[path].loss, space.cost(path))
        members.append(Individual(path, figures, space.excess(path)))
    return members


def after_scoring(
    memory: Memory,
    spaces: Sequence[TierSpace],
    tried_now: Mapping[int, Sequence[Path]],
    scores: Mapping[Path, Score],
    settings: SearchSettings,
) -> Memory:
    """Returns the next generation's memory: the survivors of every tier's pool and its children."""
    all_scores = {**memory.scores, **scores}
    scored = Memory(memory.generation, memory.pools, memory.tried, all_scores)
    pools = dict(memory.pools)
    tried = dict(memory.tried)
    for space in spaces:
        children_of_tier = tuple(tried_now.get(space.tier, ()))
        if not children_of_tier:
            continue
        candidates = (*memory.pools.get(space.tier, ()), *children_of_tier)
        surviving = survivors(individuals(scored, space, candidates), settings.pool)
        pools[space.tier] = tuple(member.path for member in surviving)
        tried[space.tier] = (*memory.tried.get(space.tier, ()), *children_of_tier)
    return Memory(memory.generation + 1, pools, tried, all_scores)


def chosen_path(memory: Memory, space: TierSpace, above: TierSpace | None = None) -> Path | None:
    """Eq. 6: returns the path with the lowest loss within the limit; None: no path fits.

    Ties are broken by cost. With `above`, which is the tier below, only paths that are too
    expensive for that tier count.
    """
    best = None
    best_figures = None
    for path, score in memory.scores.items():
        if not space.fits(path) or (above is not None and above.fits(path)):
            continue
        figures = (score.loss, space.cost(path), path)
        if best_figures is None or figures < best_figures:
            best = path
            best_figures = figures
    return best


def best_paths(memory: Memory, space: TierSpace, count: int) -> list[Path]:
    """Returns the `count` paths within the limit with the lowest losses, the best first."""
    fitting = fitting_paths(memory.scores, space)
    fitting.sort(key=lambda path: (memory.scores[path].loss, space.cost(path), path))
    return fitting[:count]


def control_path(
    path: Path,
    space: TierSpace,
    draws: np.random.Generator,
    tries: int = 2_000,
) -> Path | None:
    """Draws another path with the same cost as this one, up to five per cent; None: none drawn."""
    sampler = PathSampler(space.costs)
    for _ in range(tries):
        candidate = sampler.draw(space.limits, draws)
        if candidate != path and costs_the_same(candidate, path, space):
            return candidate
    return None


def costs_the_same(candidate: Path, path: Path, space: TierSpace) -> bool:
    target = space.cost(path)
    return abs(space.cost(candidate) - target) <= SAME_COST * target


def front_of(memory: Memory, space: TierSpace) -> list[Path]:
    """Returns the Pareto front of loss and cost within the tier's limits, the cheapest first."""
    fitting = fitting_paths(memory.scores, space)
    positions = first_front(costs_and_losses(memory, space, fitting))
    front = [fitting[position] for position in positions]
    return sorted(front, key=lambda path: (space.cost(path), path))


def fitting_paths(scores: Mapping[Path, Score], space: TierSpace) -> list[Path]:
    """Returns the scored paths within the tier's limits."""
    return [path for path in scores if space.fits(path)]


def costs_and_losses(
    memory: Memory, space: TierSpace, paths: Sequence[Path]
) -> list[tuple[float, float]]:
    """Returns the points over which a front is drawn."""
    points = []
    for path in paths:
        points.append((space.cost(path), memory.scores[path].loss))
    return points
