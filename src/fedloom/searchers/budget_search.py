"""NSGA-II within one new limit, from scores that are known already.

The search of a run has a limit a tier. When it is over, its scores answer for other limits too:
what fits is the pool that this search begins with, and only paths without a score are scored.
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
    front_of,
    individuals,
    new_greedy_paths,
)

Pick = Literal["best", "knee"] | int  # a number: of the front, from the cheapest on, from 1


@dataclass(frozen=True)
class BudgetSearch:
    """What the search may try, and how long it goes on."""

    space: TierSpace
    models: int  # paths within the limit that must have a score, those known before included
    settings: SearchSettings  # of the run's own search
    seed: int
    first: Sequence[Path] = ()  # candidates that are scored before any others, in this order

    def begun(self, scores: Mapping[Path, Score]) -> Memory:
        """What is known: all paths that fit were tried, and the best of them are the pool."""
        tier = self.space.tier
        fitting = tuple(path for path in scores if self.space.fits(path))
        known = Memory(scores={path: scores[path] for path in fitting})
        candidates = best_fronts(known, self.space, fitting, self.settings.pool)
        kept = survivors(individuals(known, self.space, candidates), self.settings.pool)
        pool = tuple(member.path for member in kept)
        return replace(known, pools={tier: pool}, tried={tier: fitting})

    def next_paths(self, memory: Memory) -> list[Path]:
        """Those of the next generation, none of which has a score; none: the search is over."""
        tier = self.space.tier
        tried = memory.tried[tier]
        room = self.models - len(tried)
        if room <= 0:
            return []
        count = min(self.settings.sample, room)
        waiting = [path for path in self.first if path not in memory.scores]
        if waiting:
            return waiting[:count]
        draws = rng(self.seed, "new budget", len(tried))
        if len(memory.pools[tier]) < 2:  # nobody to be a child of
            return new_greedy_paths(self.space, count, set(tried), draws)
        return children(memory, self.space, count, self.settings, draws)

    def after(self, memory: Memory, scores: Mapping[Path, Score]) -> Memory:
        tried = {self.space.tier: list(scores)}
        return after_scoring(memory, [self.space], tried, scores, self.settings)

    def picked(self, memory: Memory, pick: Pick) -> Path:
        """The best within the limit (Eq. 6), the front's knee, or a member of the front."""
        front = front_of(memory, self.space)
        if pick == "best":
            best = chosen_path(memory, self.space)
            assert best is not None  # a limit that no path fits was refused
            return best
        if pick == "knee":
            points = [(self.space.cost(path), memory.scores[path].loss) for path in front]
            return front[knee_of(points)]
        if not 1 <= pick <= len(front):
            raise FedloomError(
                f"--pick must be best, knee, or a number from 1 to {len(front)}, "
                "which is how many paths the front has",
                f"got {pick}",
                "choose one of them: 1 is the cheapest",
            )
        return front[pick - 1]


def best_first(scores: Mapping[Path, Score], space: TierSpace) -> list[Path]:
    """The paths within the limit, by their losses; of equally good ones the cheaper first."""
    fitting = [path for path in scores if space.fits(path)]
    return sorted(fitting, key=lambda path: (scores[path].loss, space.cost(path), path))


def best_fronts(
    memory: Memory,
    space: TierSpace,
    paths: Sequence[Path],
    count: int,
) -> list[Path]:
    """Whole fronts, from the first on, until there are so many paths.

    The best `count` of these are the best of all.
    """
    left = list(paths)
    chosen: list[Path] = []
    while left and len(chosen) < count:
        points = [(space.cost(path), memory.scores[path].loss) for path in left]
        front = set(first_front(points))
        chosen.extend(left[position] for position in sorted(front))
        left = [path for position, path in enumerate(left) if position not in front]
    return chosen


def knee_of(front: Sequence[tuple[float, float]]) -> int:
    """The point farthest below the line from the front's cheapest point to its dearest.

    Both figures are scaled to the front's own span. A front of one or two points has no knee: the
    better of them in the second figure stands in.
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
