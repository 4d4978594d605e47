"""Where learning curves lead, against power laws worked out by hand."""

import pytest

from fedloom.searchers.learning_curve import Point, expected


def test_a_power_law_is_continued():
    """The loss is 8 / √work."""
    curve = [Point(1.0, 8.0), Point(4.0, 4.0), Point(16.0, 2.0)]
    assert expected(curve[:2], 9.0) == pytest.approx(8 / 3)
    assert expected(curve, 36.0) == pytest.approx(8 / 6)


def test_nothing_is_expected_to_fall_below_half_of_its_last_loss():
    """Of two noisy curves that would both fall to nearly nothing, the lower one stays ahead."""
    steep = [Point(1.0, 1.0), Point(2.0, 0.1)]
    low = [Point(1.0, 0.2), Point(2.0, 0.04)]
    assert expected(steep, 1e6) == 0.05
    assert expected(low, 1e6) == 0.02


def test_a_curve_that_is_behind_may_lead_lower():
    ahead = [Point(1.0, 1.0), Point(2.0, 0.95)]
    behind = [Point(1.0, 2.0), Point(2.0, 1.3)]
    assert expected(behind, 2.0) > expected(ahead, 2.0)
    assert expected(behind, 100.0) < expected(ahead, 100.0)


def test_all_points_count():
    noisy = [Point(1.0, 1.0), Point(2.0, 0.4), Point(4.0, 0.5)]
    middle = 0.2 ** (1 / 3)  # the mean of the logarithms, at their middle
    assert expected(noisy, 8.0) == pytest.approx(middle * (0.5**0.5) ** 2)  # two doublings on


@pytest.mark.parametrize(
    "curve",
    [
        [Point(1.0, 0.7)],
        [Point(1.0, 0.5), Point(2.0, 0.7)],
        [Point(1.0, 0.0), Point(2.0, 0.7)],
    ],
    ids=["a single point", "rising", "a loss of nothing"],
)
def test_otherwise_it_is_the_last_loss(curve):
    assert expected(curve, 100.0) == 0.7
