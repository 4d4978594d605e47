"""FINCH's Algorithm 3 and Eq. 12, with numbers worked out by hand."""

import pytest

from fedloom.searchers.allocation import ResourceCost, allotted, worths_of

LEVELS = [0.5, 0.1, 0.3]
ACCURACIES = [0.60, 0.55, 0.40]
MB = 1e6
SIZES = [2 * MB, 1 * MB, 3 * MB]
MACS = [40e6, 30e6, 80e6]
EQ_12 = ResourceCost(bandwidth=4 * MB, most_macs=100e6, weigh=0.5)


def costs():
    return [EQ_12.of(size, macs) for size, macs in zip(SIZES, MACS, strict=True)]


def test_eq_12():
    assert costs() == pytest.approx([0.45, 0.275, 0.775], abs=1e-12)


def test_epsilon_weighs_bandwidth_against_macs():
    assert ResourceCost(4 * MB, 100e6, 1.0).of(2 * MB, 40e6) == 0.5
    assert ResourceCost(4 * MB, 100e6, 0.0).of(2 * MB, 40e6) == 0.4
    assert ResourceCost(4 * MB, 100e6, 0.25).of(2 * MB, 40e6) == pytest.approx(0.425)


def test_worth():
    assert worths_of(ACCURACIES, costs()) == pytest.approx([1.3333, 2, 0.5161], abs=5e-5)


def test_the_worst_and_dearest_goes_to_the_most_skewed_cluster():
    assert allotted(LEVELS, worths_of(ACCURACIES, costs())) == [2, 1, 0]


def test_nobody_scored_them():
    """Then the cheapest is the best."""
    assert worths_of([None, None, None], costs()) == pytest.approx([1 / 0.45, 1 / 0.275, 1 / 0.775])
    assert allotted(LEVELS, worths_of([None] * 3, costs())) == [2, 1, 0]


def test_one_without_a_score_does_not_stand_before_the_others():
    """c/R of the others is less than 1/R: they could not be compared."""
    assert worths_of([0.9, None, 0.1], [0.5, 0.6, 0.7]) == [1 / 0.5, 1 / 0.6, 1 / 0.7]


def test_a_sub_space_that_is_always_wrong_is_worth_nothing():
    assert worths_of([0.0, 0.5], [0.5, 0.5]) == [0.0, 1.0]


def test_of_equals_the_first_comes_first():
    assert allotted([0.2, 0.2, 0.2], [1.0, 1.0, 1.0]) == [0, 1, 2]
    assert allotted([0.2, 0.2, 0.1], [1.0, 3.0, 3.0]) == [2, 0, 1]
    assert allotted([0.2, 0.1, 0.2], [1.0, 1.0, 5.0]) == [0, 2, 1]


def test_every_cluster_gets_one_of_its_own():
    levels = [0.3, 0.1, 0.5, 0.2]
    assert sorted(allotted(levels, [0.4, 0.1, 0.9, 0.2])) == [0, 1, 2, 3]
    assert allotted(levels, [0.4, 0.1, 0.9, 0.2]) == [3, 2, 1, 0]
