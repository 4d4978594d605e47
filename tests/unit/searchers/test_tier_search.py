"""What a tier's search leaves beside its choice: a front, and a control of the same cost."""

import numpy as np
import pytest

from fedloom.searchers.nsga2 import survivors
from fedloom.searchers.paths import PathCosts
from fedloom.searchers.tier_search import (
    Memory,
    Score,
    TierSpace,
    chosen_path,
    control_path,
    costs_the_same,
    front_of,
    individuals,
)

# Two layers of three operations, and a fixed part of 10.
COSTS = PathCosts.of_one_unit(10, [[0, 40, 90], [0, 42, 90]])


def tier(limit: float) -> TierSpace:
    return TierSpace(1, COSTS, (limit,))


def scored(losses: dict[tuple[int, ...], float]) -> Memory:
    return Memory(scores={path: Score(loss, 0.5, 10) for path, loss in losses.items()})


def test_a_front_by_hand() -> None:
    """(1, 0) costs 50, (0, 1) 52 and is no better; (2, 0) costs 100; (2, 2) does not fit."""
    memory = scored({(2, 0): 0.5, (1, 0): 0.7, (0, 1): 0.7, (0, 0): 0.9, (2, 2): 0.1})
    assert front_of(memory, tier(100)) == [(0, 0), (1, 0), (2, 0)]
    assert chosen_path(memory, tier(100)) == (2, 0)
    assert front_of(memory, tier(190)) == [(0, 0), (1, 0), (2, 0), (2, 2)]
    assert front_of(Memory(), tier(100)) == []


@pytest.mark.parametrize(("path", "control"), [((1, 0), (0, 1)), ((0, 1), (1, 0)), ((0, 0), None)])
def test_a_control_is_another_path_of_the_same_cost(
    path: tuple[int, ...],
    control: tuple[int, ...] | None,
) -> None:
    """Only 50 and 52 are within 5 % of each other, and nothing but itself costs 10."""
    assert control_path(path, tier(92), np.random.default_rng(0)) == control


def test_the_same_cost_is_a_twentieth_of_the_paths_own() -> None:
    costs = PathCosts.of_one_unit(0, [[100, 105, 106, 95, 94]])
    space = TierSpace(1, costs, (200,))
    assert [costs_the_same((op,), (0,), space) for op in range(5)] == [
        True,
        True,
        False,
        True,
        False,
    ]


def test_a_bracket_on_both_sides_wants_what_the_tier_below_cannot_have() -> None:
    """(1, 0) costs 50 and is better, but the tier below has it too."""
    memory = scored({(1, 0): 0.3, (2, 0): 0.5, (0, 0): 0.9})
    assert chosen_path(memory, tier(100)) == (1, 0)
    assert chosen_path(memory, tier(100), tier(60)) == (2, 0)
    assert chosen_path(memory, tier(60), tier(60)) is None


def test_ties_are_broken_by_cost() -> None:
    memory = scored({(0, 1): 0.5, (1, 0): 0.5, (2, 0): 0.5})
    assert chosen_path(memory, tier(200)) == (1, 0)


def test_of_several_limits_what_fits_all_survives_first() -> None:
    """(1,) exceeds both by a tenth and a fifth, (2,) the second by a half.

    (0,) fits, and has the worst loss.
    """
    costs = PathCosts((0.0, 0.0), ((((10.0, 10.0)), (110.0, 120.0), (50.0, 150.0)),))
    space = TierSpace(1, costs, (100.0, 100.0))
    memory = scored({(0,): 0.9, (1,): 0.1, (2,): 0.2})
    members = individuals(memory, space, [(0,), (1,), (2,)])
    assert [member.excess for member in members] == pytest.approx([0.0, 0.3, 0.5])
    assert [member.path for member in survivors(members, 2)] == [(0,), (1,)]
