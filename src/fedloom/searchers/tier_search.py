"""The search of FedorAS's second stage: NSGA-II on (loss, cost) for every tier at once.

All of its memory is plain JSON, and every draw is named by the seed, the generation and the tier:
a search that is stopped goes on as if it had not been.
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

SAME_COST = 0.05  # a control may cost so much more or less than the path that it stands beside
TRIES = 10  # so often an infeasible child is drawn again, before a greedy path takes its place


@dataclass(frozen=True)
class Score:
    """A path's figures on validation data."""

    loss: float
    accuracy: float
    samples: int
    balanced_accuracy: float | None = None  # None: classes were not counted, or there is one
    auc: float | None = None  # the same, where there are two

    @classmethod
    def of(cls, sums: PathScore) -> Score:
        """Of sums over samples."""
        figures = (sums.mean_loss, sums.accuracy, sums.samples)
        return cls(*figures, sums.balanced_accuracy, sums.auc)

    def to_plain(self) -> list[Json]:
        """What is not known is left out: AUC is known only where balanced accuracy is."""
        figures: list[Json] = [self.loss, self.accuracy, self.samples]
        if self.balanced_accuracy is not None:
            figures.append(self.balanced_accuracy)
        if self.auc is not None:
            figures.append(self.auc)
        return figures

    @property
    def beside(self) -> dict[str, float]:
        """The figures beside accuracy that are known, by their names."""
        figures = {}
        if self.balanced_accuracy is not None:
            figures["balanced_accuracy"] = self.balanced_accuracy
        if self.auc is not None:
            figures["auc"] = self.auc
        return figures


@dataclass(frozen=True)
class TierSpace:
    """What the paths of one tier may be."""

    tier: int
    costs: PathCosts  # what the device does not support costs infinitely much
    limits: Amounts

    def fits(self, path: Path) -> bool:
        return self.costs.fits(path, self.limits)

    def cost(self, path: Path) -> float:
        """In the first unit, which a front is drawn over."""
        return self.costs.of(path)[0]

    def excess(self, path: Path) -> float:
        """By how much it is over the limits, all units together, each as a share of its limit."""
        total = 0.0
        for amount, limit in zip(self.costs.of(path), self.limits, strict=True):
            total += max(0.0, amount / limit - 1.0)
        return total


@dataclass(frozen=True)
class SearchSettings:
    models: tuple[int, ...]  # that are scored, by tier
    pool: int
    sample: int  # children a generation
    mutation: float = 0.1
    threshold: float | None = None  # of accuracy, at which a tier is done


@dataclass(frozen=True)
class Memory:
    """What the search remembers from generation to generation."""

    generation: int = 0
    pools: Mapping[int, tuple[Path, ...]] = field(default_factory=dict)  # by tier
    tried: Mapping[int, tuple[Path, ...]] = field(default_factory=dict)  # by tier, in order
    scores: Mapping[Path, Score] = field(default_factory=dict)

    def to_plain(self) -> Any:
        pools = {str(tier): [list(path) for path in pool] for tier, pool in self.pools.items()}
        tried = {str(tier): [list(path) for path in paths] for tier, paths in self.tried.items()}
        scores = []
        for path, score in self.scores.items():
            scores.append([list(path), *score.to_plain()])
        return {
            "generation": self.generation,
            "pools": pools,
            "tried": tried,
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


def paths_by_tier(raw: Mapping[str, Any]) -> dict[int, tuple[Path, ...]]:
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
    """The paths that each tier tries in this generation; none for a tier that is done."""
    by_tier = {}
    for space in spaces:
        tried = memory.tried.get(space.tier, ())
        room = settings.models[space.tier - 1] - len(tried)
        if room <= 0 or is_good_enough(memory, space, settings):
            continue
        draws = rng(seed, "generation", memory.generation, space.tier)
        if memory.generation == 0:
            paths = first_pool(space, min(settings.pool, room), draws)
        else:
            paths = children(memory, space, min(settings.sample, room), settings, draws)
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
    """Greedy paths, each once; fewer where there are not so many."""
    return list(new_greedy_paths(space, size, set(), draws))


def new_greedy_paths(
    space: TierSpace,
    count: int,
    tried: set[Path],
    draws: np.random.Generator,
) -> list[Path]:
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
    """Of parents that win tournaments; none of them was tried before."""
    pool = individuals(memory, space, memory.pools[space.tier])
    standing = standings(pool)
    tried = set(memory.tried[space.tier])
    operations = [range(len(layer)) for layer in space.costs.layers]
    born: list[Path] = []
    for _ in range(count):
        for _ in range(TRIES):
            mother = tournament(pool, standing, draws).path
            father = tournament(pool, standing, draws).path
            child = mutated(crossover(mother, father, draws), operations, settings.mutation, draws)
            if space.fits(child) and child not in tried and child not in born:
                born.append(child)
                break
        else:
            born.extend(new_greedy_paths(space, 1, tried | set(born), draws))
    return born


def individuals(memory: Memory, space: TierSpace, paths: Sequence[Path]) -> list[Individual]:
    """With the two figures that are to be small: loss and cost."""
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
    """The next generation's memory: survivors of every tier's pool and its children."""
    known = {**memory.scores, **scores}
    scored = Memory(memory.generation, memory.pools, memory.tried, known)
    pools = dict(memory.pools)
    tried = dict(memory.tried)
    for space in spaces:
        children_of_tier = tuple(tried_now.get(space.tier, ()))
        if not children_of_tier:
            continue
        candidates = (*memory.pools.get(space.tier, ()), *children_of_tier)
        kept = survivors(individuals(scored, space, candidates), settings.pool)
        pools[space.tier] = tuple(member.path for member in kept)
        tried[space.tier] = (*memory.tried.get(space.tier, ()), *children_of_tier)
    return Memory(memory.generation + 1, pools, tried, known)


def chosen_path(memory: Memory, space: TierSpace, above: TierSpace | None = None) -> Path | None:
    """Eq. 6: the lowest loss within the limit, ties by cost; None: nothing fits.

    With `above`, the tier below: only paths that are too dear for that one.
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
    """So many paths within the limit with the lowest losses, the best first."""
    fitting = [path for path in memory.scores if space.fits(path)]
    fitting.sort(key=lambda path: (memory.scores[path].loss, space.cost(path), path))
    return fitting[:count]


def control_path(
    path: Path,
    space: TierSpace,
    draws: np.random.Generator,
    tries: int = 2_000,
) -> Path | None:
    """A random path that costs as much as this one, give or take a twentieth, and is another."""
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
    """The paths that no other path within the tier's limits beats in loss and cost; cheap first."""
    fitting = [path for path in memory.scores if space.fits(path)]
    points = [(space.cost(path), memory.scores[path].loss) for path in fitting]
    front = [fitting[position] for position in first_front(points)]
    return sorted(front, key=lambda path: (space.cost(path), path))
