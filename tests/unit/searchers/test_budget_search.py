"""A search within a new limit, from scores that are known."""

import numpy as np
import pytest

from fedloom.errors import FedloomError
from fedloom.searchers.budget_search import BudgetSearch, best_first, best_fronts, knee_of
from fedloom.searchers.nsga2 import Individual, first_front, fronts, survivors
from fedloom.searchers.paths import Path, PathCosts
from fedloom.searchers.tier_search import Memory, Score, SearchSettings, TierSpace, individuals

COSTS = PathCosts.of_one_unit(1.0, [[0.0, 1.0, 2.0, 3.0]] * 4)
SETTINGS = SearchSettings(models=(1,), pool=4, sample=3)


def space(limit: float) -> TierSpace:
    return TierSpace(1, COSTS, (limit,))


def score(path: Path) -> Score:
    """Dear paths are good; the last layer costs and does nothing."""
    return Score(10.0 - sum(path[:3]), 0.5, 8)


def searched(limit: float, models: int, scored_paths: list[Path]) -> tuple[Memory, list[Path]]:
    search = BudgetSearch(space(limit), models, SETTINGS, 7)
    memory = search.first_memory({path: score(path) for path in scored_paths})
    scored: list[Path] = []
    while paths := search.next_paths(memory):
        scored.extend(paths)
        memory = search.after(memory, {path: score(path) for path in paths})
    return memory, scored


class TestFronts:
    def test_one_pass_gives_the_first_front(self) -> None:
        draws = np.random.default_rng(0)
        for _ in range(50):
            points = [(float(a), float(b)) for a, b in draws.integers(0, 6, (30, 2))]
            pool = [Individual((number,), point) for number, point in enumerate(points)]
            assert sorted(first_front(points)) == fronts(pool)[0]

    def test_the_best_of_whole_fronts_are_the_best_of_all(self) -> None:
        draws = np.random.default_rng(1)
        paths = sorted({tuple(path) for path in draws.integers(0, 4, (60, 4)).tolist()})
        losses = draws.integers(0, 9, len(paths)).tolist()
        memory = Memory(
            scores={path: Score(loss, 0.5, 8) for path, loss in zip(paths, losses, strict=True)}
        )
        everybody = survivors(individuals(memory, space(99), paths), 12)
        few = best_fronts(memory, space(99), paths, 12)
        assert len(few) < len(paths)
        assert survivors(individuals(memory, space(99), few), 12) == everybody


class TestKnee:
    def test_the_point_farthest_below_the_line(self) -> None:
        assert knee_of([(0.0, 10.0), (1.0, 3.0), (5.0, 2.0), (10.0, 0.0)]) == 1
        assert knee_of([(0.0, 10.0), (6.0, 3.5), (9.0, 0.2), (10.0, 0.0)]) == 2

    def test_too_few_points_have_none(self) -> None:
        assert knee_of([(0.0, 1.0)]) == 0
        assert knee_of([(0.0, 1.0), (2.0, 0.5)]) == 1


class TestSearch:
    KNOWN = [(0, 0, 0, 0), (1, 0, 0, 0), (1, 1, 0, 0), (3, 3, 3, 0), (0, 0, 2, 0)]

    def test_what_is_known_is_enough(self) -> None:
        memory, scored = searched(3.0, 4, self.KNOWN)
        assert scored == []
        assert len(memory.scores) == 4  # one is too dear
        assert BudgetSearch(space(3.0), 4, SETTINGS, 7).picked(memory, "best") == (0, 0, 2, 0)

    def test_it_goes_on_with_paths_that_fit_and_have_no_score(self) -> None:
        memory, scored = searched(6.0, 25, self.KNOWN)
        assert len(memory.tried[1]) == 25
        assert len(set(memory.tried[1])) == 25
        assert not set(scored) & set(self.KNOWN)
        assert all(space(6.0).fits(path) for path in scored)
        best = BudgetSearch(space(6.0), 25, SETTINGS, 7).picked(memory, "best")
        assert memory.scores[best].loss == min(one.loss for one in memory.scores.values())

    def test_without_any_score_it_begins_with_greedy_paths(self) -> None:
        memory, scored = searched(2.0, 5, [(3, 3, 3, 3)])
        assert len(scored) == 5  # all that there are
        assert set(memory.scores) == set(scored)

    def test_given_candidates_are_scored_before_any_others(self) -> None:
        first = [(1, 1, 0, 0), (0, 0, 2, 0), (1, 0, 0, 0), (0, 0, 0, 0)]
        search = BudgetSearch(space(3.0), 5, SETTINGS, 7, first)
        memory = search.first_memory({(0, 0, 2, 0): score((0, 0, 2, 0))})  # needs no score any more
        generations = []
        while paths := search.next_paths(memory):
            generations.append(paths)
            memory = search.after(memory, {path: score(path) for path in paths})
        assert generations[0] == [(1, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0)]
        assert [len(paths) for paths in generations] == [3, 1]
        assert generations[1][0] not in first

    def test_no_more_candidates_are_scored_than_models_are_wanted(self) -> None:
        first = [(1, 1, 0, 0), (0, 0, 2, 0), (1, 0, 0, 0)]
        search = BudgetSearch(space(3.0), 2, SETTINGS, 7, first)
        assert search.next_paths(search.first_memory({})) == first[:2]

    def test_the_best_of_known_paths_come_first(self) -> None:
        losses = {
            (3, 3, 3, 3): 0.1,
            (0, 0, 1, 1): 0.5,
            (2, 0, 0, 0): 0.7,
            (1, 0, 0, 0): 0.5,
            (0, 1, 0, 0): 0.5,
        }
        scores = {path: Score(loss, 0.5, 8) for path, loss in losses.items()}
        assert best_first(scores, space(3.0)) == [
            (0, 1, 0, 0),
            (1, 0, 0, 0),
            (0, 0, 1, 1),
            (2, 0, 0, 0),
        ]

    def test_it_ends_where_no_path_is_left(self) -> None:
        _, scored = searched(2.0, 50, [])
        assert len(scored) == 5

    def test_picks(self) -> None:
        search = BudgetSearch(space(99), 1, SETTINGS, 7)
        memory = search.first_memory({path: score(path) for path in self.KNOWN})
        front = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 0, 2, 0), (1, 1, 0, 0), (3, 3, 3, 0)]
        for number, path in enumerate(front, start=1):
            assert search.picked(memory, number) == path
        with pytest.raises(FedloomError, match="from 1 to 5"):
            search.picked(memory, 6)
