"""Tiers: what limits and shares can be, and who is in which."""

import pytest

from fedloom.cost.tiers import (
    check_rising,
    check_shares,
    dealt,
    sizes_of_tiers,
)
from fedloom.errors import FedloomError


def test_sizes_are_the_largest_remainders() -> None:
    assert sizes_of_tiers([0.25] * 4, 10) == [3, 3, 2, 2]
    assert sizes_of_tiers([0.8, 0.0125, 0.0125, 0.175], 2112) == [1690, 26, 26, 370]
    assert sum(sizes_of_tiers([1 / 3] * 3, 100)) == 100


def test_the_deal_has_the_sizes_and_is_the_seeds() -> None:
    first = dealt([0.5, 0.25, 0.25], 100, seed=0)
    assert [first.count(tier) for tier in (1, 2, 3)] == [50, 25, 25]
    assert first == dealt([0.5, 0.25, 0.25], 100, seed=0)
    assert first != dealt([0.5, 0.25, 0.25], 100, seed=1)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([0.5], "a number for each of the 2 tiers"),
        ([0.5, 0.6], "sum to 1.1"),
        ([1.5, -0.5], "above 0"),
        ([1.0, 0.0], "above 0"),
    ],
)
def test_shares_that_are_none(shares: list[float], message: str) -> None:
    with pytest.raises(FedloomError, match=message):
        check_shares(shares, 2)


def test_limits_must_rise() -> None:
    check_rising([1, 2, 3], "macs")
    with pytest.raises(FedloomError, match="2 macs follows 2"):
        check_rising([1, 2, 2], "macs")
