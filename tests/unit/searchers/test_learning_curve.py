"""Where learning curves lead, against power laws worked out by hand."""

import pytest

from fedloom.searchers.learning_curve import Point, expected


def test_a_power_law_is_continued():
    """The loss is 8 / √work."""
    curve = [Point(1.0, 8.0), Point(4.0, 4.0), Point(16.0, 2.0)]
    assert expected(curve[:2], 64.0) == pytest.approx(1.0)
    assert expected(curve, 256.0) == pytest.approx(0.5)


def test_a_curve_that_is_behind_may_lead_lower():
    ahead = [Point(1.0, 1.0), Point(2.0, 0.95)]
    behind = [Point(1.0, 2.0), Point(2.0, 1.5)]
    assert expected(behind, 2.0) > expected(ahead, 2.0)
    assert expected(behind, 100.0) < expected(ahead, 100.0)


def test_all_points_count():
    noisy = [Point(1.0, 1.0), Point(2.0, 0.4), Point(4.0, 0.5)]
    assert expected(noisy, 8.0) == pytest.approx(
        0.2 ** (1 / 3) * (0.5**0.5) ** 2
    )  # the mean of the logarithms at their middle; half a power down, two doublings on


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
