"""NSGA-II's parts: by hand, by definition, and beside pymoo."""

from math import inf

import numpy as np
import pytest
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding
from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

from fedloom.searchers.nsga2 import (
    Individual,
    Standing,
    crossover,
    crowding,
    dominates,
    fronts,
    mutated,
    standings,
    survivors,
    tournament,
)

HAND = [(1, 5), (2, 3), (4, 1), (3, 4), (5, 2), (5, 5)]


def pool_of(points: list[tuple[float, float]]) -> list[Individual]:
    return [Individual((number,), point) for number, point in enumerate(points)]


def test_hand_check_of_the_fronts() -> None:
    assert fronts(pool_of(HAND)) == [[0, 1, 2], [3, 4], [5]]


def test_equal_points_share_a_front() -> None:
    assert fronts(pool_of([(1, 1), (1, 1), (2, 1)])) == [[0, 1], [2]]


def test_what_fits_is_before_what_does_not() -> None:
    fits = Individual((0,), (9, 9))
    over = Individual((1,), (1, 1), excess=2)
    far_over = Individual((2,), (0, 0), excess=3)
    assert dominates(fits, over)
    assert dominates(over, far_over)
    assert not dominates(over, fits)
    assert fronts([far_over, over, fits]) == [[2], [1], [0]]


def test_crowding_by_hand() -> None:
    # Ends are infinitely lonely; the middle point's neighbours span all of both figures.
    assert crowding([(1, 5), (2, 3), (4, 1)]) == [inf, 2.0, inf]
    assert crowding([(0, 3), (1, 2), (2, 1), (3, 0)]) == pytest.approx([inf, 4 / 3, 4 / 3, inf])


def test_survivors_are_whole_fronts_then_the_loneliest() -> None:
    assert [survivor.path for survivor in survivors(pool_of(HAND), 4)][:3] == [(0,), (1,), (2,)]
    line = pool_of([(0, 10), (1, 9), (2, 8), (9, 1), (10, 0)])
    # (1, 9) lies between close neighbours, (2, 8) and (9, 1) beside the gap.
    assert {survivor.path for survivor in survivors(line, 4)} == {(0,), (2,), (3,), (4,)}


def test_the_better_of_two_wins_a_tournament() -> None:
    pool = pool_of([(1, 1), (2, 2)])
    rng = np.random.default_rng(0)
    winners = [tournament(pool, standings(pool), rng).path for _ in range(400)]
    assert winners.count((0,)) == pytest.approx(300, abs=40)  # it loses only to itself
    assert Standing(0, 1.0).beats(Standing(0, 0.5))
    assert not Standing(1, inf).beats(Standing(0, 0.0))


def test_children_have_their_parents_genes() -> None:
    rng = np.random.default_rng(0)
    child = crossover((0,) * 1_000, (1,) * 1_000, rng)
    assert sum(child) == pytest.approx(500, abs=60)


def test_a_tenth_of_the_genes_is_drawn_anew() -> None:
    rng = np.random.default_rng(0)
    child = mutated((0,) * 10_000, [(1, 2)] * 10_000, 0.1, rng)
    assert sum(gene > 0 for gene in child) == pytest.approx(1_000, abs=100)
    assert set(child) == {0, 1, 2}


class TestBesidePymoo:
    """Random pools: the same fronts, crowding distances and survivors as the field's library."""

    @pytest.mark.parametrize("seed", range(5))
    def test_fronts(self, seed: int) -> None:
        points = np.random.default_rng(seed).integers(0, 12, (60, 2)).astype(float)
        theirs = NonDominatedSorting().do(points)
        ours = fronts(pool_of([tuple(point) for point in points.tolist()]))
        assert [set(front) for front in ours] == [set(front.tolist()) for front in theirs]

    @pytest.mark.parametrize("seed", range(5))
    def test_crowding(self, seed: int) -> None:
        points = np.random.default_rng(seed).random((40, 2))
        first_front = fronts(pool_of([tuple(point) for point in points.tolist()]))[0]
        front = points[first_front]
        theirs = calc_crowding_distance(front)
        ours = np.array(crowding([tuple(point) for point in front.tolist()]))
        # pymoo divides by the number of figures; ends are infinite for both.
        assert np.isinf(theirs).tolist() == np.isinf(ours).tolist()
        inner = np.isfinite(ours)
        assert ours[inner] / 2 == pytest.approx(theirs[inner])

    @pytest.mark.parametrize("seed", range(5))
    def test_survivors(self, seed: int) -> None:
        points = np.random.default_rng(seed).random((40, 2))
        their_pool = Population.new("F", points)
        theirs = RankAndCrowding().do(Problem(n_var=1, n_obj=2), their_pool, n_survive=15)
        pool = pool_of([tuple(point) for point in points.tolist()])
        worth = {}
        for member, standing in zip(pool, standings(pool), strict=True):
            worth[member.figures] = (standing.rank, standing.distance)
        ours = [worth[survivor.figures] for survivor in survivors(pool, 15)]
        # Of equals, such as the two ends of a front, pymoo takes one by chance.
        assert sorted(ours) == sorted(worth[tuple(point)] for point in theirs.get("F").tolist())
