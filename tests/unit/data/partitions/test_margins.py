import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedloom.data.partitions.margins import equal_sizes, fitted, rounded, scaled, seats


def test_equal_sizes():
    assert equal_sizes(10, 4).tolist() == [3, 3, 2, 2]
    assert equal_sizes(3, 5).tolist() == [1, 1, 1, 0, 0]


def test_seats_by_highest_averages():
    """53, 24 and 23 votes for seven seats, worked out by hand.

    The averages are 53, 26.5, 24, 23, 17.7, 13.25 and 12.
    """
    none = np.full(3, 7)
    assert seats(np.array([53, 24, 23]), 7, np.arange(3), 0, none).tolist() == [4, 2, 1]
    assert seats(np.array([53, 24, 23]), 7, np.arange(3), 0, np.array([2, 7, 7])).tolist() == [
        2,
        3,
        2,
    ]
    assert seats(np.array([98, 1, 1]), 7, np.arange(3), 1, none).tolist() == [5, 1, 1]
    assert seats(np.array([10, 10, 10]), 1, np.array([2, 0, 1]), 0, none).tolist() == [
        0,
        1,
        0,
    ]  # the lowest tie


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 12))
def test_no_other_seats_have_a_larger_least_average(weights, count):
    seats_by_weight = seats(
        np.array(weights), count, np.arange(len(weights)), 0, np.full(len(weights), count)
    )
    assert seats_by_weight.sum() == count
    least = min(
        weight / seat for weight, seat in zip(weights, seats_by_weight, strict=True) if seat
    )
    # If the least average is to be `least`, each can have at most floor(weight / least) seats. For
    # any larger least average, there would be fewer than `count` seats in all.
    assert sum(int(weight / least + 1e-9) for weight in weights) >= count
    assert sum(int(weight / (least * (1 + 1e-6))) for weight in weights) < count


def test_scaled_keeps_the_sums_and_the_odds():
    """Scaling rows and columns leaves the ratio of products as it was wished for."""
    wish = np.array([[4.0, 1.0], [1.0, 1.0]])
    table = scaled(wish, np.array([30, 10]), np.array([20, 20]))
    assert table.sum(axis=1) == pytest.approx([30, 10])
    assert table.sum(axis=0) == pytest.approx([20, 20], abs=0.01)
    assert table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0]) == pytest.approx(4.0)


@st.composite
def sums(draw):
    """Sizes of classes and of equal clients that add up alike."""
    totals = np.array(draw(st.lists(st.integers(1, 60), min_size=2, max_size=6)))
    clients = draw(st.integers(1, min(8, int(totals.sum()))))
    return totals, equal_sizes(int(totals.sum()), clients)


@settings(deadline=None)
@given(sums(), st.integers(0, 2**32))
def test_rounded_has_exactly_the_sums_and_is_near(both, seed):
    totals, sizes = both
    wish = scaled(
        np.random.default_rng(seed).random((len(totals), len(sizes))) + 0.01, totals, sizes
    )
    wish = wish * (sizes / wish.sum(axis=0))
    table = rounded(wish, totals, sizes)
    assert table.min() >= 0
    assert table.sum(axis=1).tolist() == totals.tolist()
    assert table.sum(axis=0).tolist() == sizes.tolist()
    assert np.abs(table - wish).max() < len(totals)


def test_a_last_bit_does_not_matter():
    """Sums in another order, as another platform may have them, give the same table."""
    totals = np.full(10, 6000)
    sizes = np.full(100, 600)
    wish = np.random.default_rng(3).random((10, 100)) + 0.01
    goal = scaled(wish, totals, sizes)
    goal *= sizes / goal.sum(axis=0)
    before = rounded(goal, totals, sizes)
    for side in (0.0, np.inf):
        assert (rounded(np.nextafter(goal, side), totals, sizes) == before).all()
    even = np.full((10, 100), 60.0)  # whole numbers, which a last bit would bring below
    for side in (0.0, np.inf):
        assert (rounded(np.nextafter(even, side), totals, sizes) == 60).all()


@settings(deadline=None, max_examples=200)
@given(sums(), st.integers(0, 1), st.data())
def test_fitted_is_as_level_as_the_cells_allow(both, least, data):
    totals, sizes = both
    cells = st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))
    allowed = np.array([data.draw(cells) for _ in totals])
    assume(allowed.any(axis=1).all() and (totals >= least * allowed.sum(axis=1)).all())
    table = fitted(totals, sizes, allowed, least)
    assert table.sum(axis=1).tolist() == totals.tolist()
    assert (table[allowed] >= least).all()
    assert (table[~allowed] == 0).all()
    assert np.maximum(table.sum(axis=0) - sizes, 0).sum() == least_surplus(
        totals, sizes, allowed, least
    )


def least_surplus(totals, sizes, allowed, least):
    """How many samples at least cannot be placed within the sizes.

    It is found by brute force over sets of classes (Hall, Gale).
    """
    forced = least * allowed.sum(axis=0)
    room = np.maximum(sizes - forced, 0)
    spare = totals - least * allowed.sum(axis=1)
    over = np.maximum(forced - sizes, 0).sum()
    worst = 0
    for chosen in range(2 ** len(totals)):
        classes = np.array([chosen >> c & 1 for c in range(len(totals))], bool)
        worst = max(worst, spare[classes].sum() - room[allowed[classes].any(axis=0)].sum())
    return over + worst
