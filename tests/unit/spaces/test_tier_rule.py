"""Where the limits of tiers lie."""

import numpy as np

from fedloom.spaces.tier_rule import TierRule, cost_quantile


def test_the_quantile_is_by_the_sum_of_costs() -> None:
    costs = np.array([4.0, 1.0, 3.0, 2.0])  # running shares .1, .3, .6, 1
    assert cost_quantile(costs, 0.05) == 1
    assert cost_quantile(costs, 0.1) == 2  # it must exceed the share
    assert cost_quantile(costs, 0.59) == 3
    assert cost_quantile(costs, 0.95) == 4


def test_the_usual_rule_leaves_out_the_fixed_part_and_ends_with_the_dearest_path() -> None:
    costs = np.array([10.0] * 19 + [100.0])
    rule = TierRule.usual(3)
    assert rule.limits(fixed=4, path_costs=costs, dearest=200) == [52, 100, 200]


def test_a_rule_between_two_quantiles_keeps_both_ends() -> None:
    costs = np.array([1.0, 2.0, 3.0, 4.0])
    rule = TierRule(low=0.05, high=0.5, points=3)
    assert rule.limits(fixed=0, path_costs=costs, dearest=9) == [1, 2, 3, 9]
