"""NSGA-II within a new limit, which starts from the scores of an earlier search.

The search of a run has one limit per tier. When it is over, its scores can be used for other limits
too: the paths that fit form the initial pool, and only paths without a score are scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedloom.errors import FedloomError
from fedloom.rng import rng
from fedloom.searchers.nsga2 import first_front, survivors
from fedloom.searchers.paths import Path
from fedloom.searchers.tier_search import (
    Memory,
    Score,
    SearchSettings,
    TierSpace,
    after_scoring,
    children,
    chosen_path,
    costs_and_losses,
    fitting_paths,
    front_of,
    individuals,
    new_greedy_paths,
)

Pick = Literal["best", "knee"] | int  # a number: a position in the front, 1 is the cheapest


@dataclass(frozen=True)
class BudgetSearch:
    """The settings of a search within one limit."""

    space: TierSpace
    models: int  # how many paths within the limit must have a score, including earlier scores
    settings: SearchSettings  # those of the run's own search
    seed: int
    first: Sequence[Path] = ()  # candidates that are scored before any others, in this order

    def first_memory(self, scores: Mapping[Path, Score]) -> Memory:
        """Returns the memory to begin with: what fits was tried, the best form the pool."""
        tier = self.space.tier
        fitting_scores = {}
        for path, score in scores.items():
            if self.space.fits(path):
                fitting_scores[path] = score
        fitting = tuple(fitting_scores)
        memory = Memory(scores=fitting_scores)
        candidates = best_fronts(memory, self.space, fitting, self.settings.pool)
        surviving = survivors(individuals(memory, self.space, candidates), self.settings.pool)
        pool = tuple(member.path for member in surviving)
        return replace(memory, pools={tier: pool}, tried={tier: fitting})

    def next_paths(self, memory: Memory) -> list[Path]:
        """Returns the next generation, paths without scores; empty: the search is over."""
        tier = self.space.tier
        tried = memory.tried[tier]
        remaining = self.models - len(tried)
        if remaining <= 0:
            return []
        count = min(self.settings.sample, remaining)
        unscored = [path for path in self.first if path not in memory.scores]
        if unscored:
            return unscored[:count]
        draws = rng(self.seed, "new budget", len(tried))
        if len(memory.pools[tier]) < 2:  # there are no two parents
            return new_greedy_paths(self.space, count, set(tried), draws)
        return children(memory, self.space, count, self.settings, draws)

    def after(self, memory: Memory, scores: Mapping[Path, Score]) -> Memory:
        tried = {self.space.tier: list(scores)}
        return after_scoring(memory, [self.space], tried, scores, self.settings)

    def picked(self, memory: Memory, pick: Pick) -> Path:
        """Returns the best path within the limit (Eq. 6), the knee, or a member of the front."""
        front = front_of(memory, self.space)
        if pick == "best":
            best = chosen_path(memory, self.space)
            assert best is not None  # a limit that no path fits was refused
            return best
        if pick == "knee":
            return front[knee_of(costs_and_losses(memory, self.space, front))]
        if not 1 <= pick <= len(front):
            raise FedloomError(
                f"--pick must be best, knee, or a number from 1 to {len(front)}, "
                "the number of paths in the front",
                f"got {pick}",
                "choose one of them: 1 is the cheapest",
            )
        return front[pick - 1]


def best_first(scores: Mapping[Path, Score], space: TierSpace) -> list[Path]:
    """Returns the paths within the limit by increasing loss; of equal losses, the cheaper first."""
    fitting = fitting_paths(scores, space)
    return sorted(fitting, key=lambda path: (scores[path].loss, space.cost(path), path))


def best_fronts(
    memory: Memory,
    space: TierSpace,
    paths: Sequence[Path],
    count: int,
) -> list[Path]:
    """Returns whole fronts, from the first on, until there are at least `count` paths.

    The best `count` of these are the best of all.
    """
    remaining = list(paths)
    chosen: list[Path] = []
    while remaining and len(chosen) < count:
        front = set(first_front(costs_and_losses(memory, space, remaining)))
        behind_front = []
        for position, path in enumerate(remaining):
            if position in front:
                chosen.append(path)
            else:
                behind_front.append(path)
        remaining = behind_front
    return chosen


def knee_of(front: Sequence[tuple[float, float]]) -> int:
    """Returns the position of the point farthest below the line between the front's end points.

    The points are (cost, loss), by increasing cost, and both figures are scaled to the front's
    span. A front of one or two points has no knee: the point with the lower loss is returned.
    """
    first_cost, first_loss = front[0]
    last_cost, last_loss = front[-1]
    cost_span = last_cost - first_cost
    loss_span = first_loss - last_loss
    if len(front) < 3 or cost_span == 0 or loss_span == 0:
        return len(front) - 1
    depths = []
    for cost, loss in front:
        on_the_line = 1 - (cost - first_cost) / cost_span
        depths.append(on_the_line - (loss - last_loss) / loss_span)
    return depths.index(max(depths))
