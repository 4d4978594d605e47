"""FedorAS's draws: paths within a budget (Eq. 3) and sub-spaces within one (Eq. 1)."""

from collections import Counter
from math import inf

import numpy as np
import pytest

from fedloom.errors import FedloomError
from fedloom.searchers.paths import PathCosts, PathSampler, SubSpaceSampler
from fedloom.spaces import open_space
from fedloom.spaces.space import Size


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def shares_of_paths(costs: PathCosts, limit: float, count: int) -> dict[tuple[int, ...], float]:
    sampler = PathSampler(costs)
    rng = generator()
    counts = Counter(sampler.draw((limit,), rng) for _ in range(count))
    return {path: number / count for path, number in counts.items()}


def test_hand_check_of_eq_3() -> None:
    costs = PathCosts.of_one_unit(0, [[0, 2, 4], [0, 3]])
    shares = shares_of_paths(costs, limit=4, count=60_000)
    expected = {(0, 0): 1 / 6, (0, 1): 1 / 3, (1, 0): 1 / 4, (2, 0): 1 / 4}
    assert set(shares) == set(expected)  # (1, 1) costs 5 and is never drawn
    for path, share in expected.items():
        assert shares[path] == pytest.approx(share, abs=0.01)


def test_a_path_that_costs_its_limit_fits_and_the_fixed_part_counts() -> None:
    costs = PathCosts.of_one_unit(10, [[0, 2, 4], [0, 3]])
    assert set(shares_of_paths(costs, limit=14, count=2_000)) == {(0, 0), (0, 1), (1, 0), (2, 0)}
    assert set(shares_of_paths(costs, limit=10, count=50)) == {(0, 0)}


def test_layers_without_a_free_operation_come_first_and_leave_enough_for_each_other() -> None:
    costs = PathCosts.of_one_unit(0, [[0, 5], [1, 6], [2, 6]])
    shares = shares_of_paths(costs, limit=8, count=5_000)
    assert set(shares) == {(0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)}


def test_every_limit_holds_at_once() -> None:
    layers = (((0, 0), (4, 1), (1, 4)), ((0, 0), (4, 1), (1, 4)))
    costs = PathCosts((0, 0), layers)
    sampler = PathSampler(costs)
    rng = generator()
    paths = {sampler.draw((5, 5), rng) for _ in range(3_000)}
    assert paths == {(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (1, 2), (2, 1)}


def test_unsupported_operations_are_never_drawn() -> None:
    costs = PathCosts.of_one_unit(0, [[0, 2, 4], [0, 3]]).without({(0, 1), (1, 0)})
    assert set(shares_of_paths(costs, limit=100, count=500)) == {(0, 1), (2, 1)}


def test_a_limit_that_no_path_fits_names_the_cheapest() -> None:
    costs = PathCosts.of_one_unit(10, [[1, 2], [3, 4]])
    with pytest.raises(FedloomError, match=r"the limit is 13, the cheapest path costs 14"):
        PathSampler(costs).draw((13,), generator())


def test_a_layer_of_which_nothing_is_left_has_no_path() -> None:
    costs = PathCosts.of_one_unit(0, [[0, 1]]).without({(0, 0), (0, 1)})
    with pytest.raises(FedloomError, match="cheapest path costs inf"):
        PathSampler(costs).draw((inf,), generator())


class GivenOrder:
    """A generator whose only permutation is given."""

    def __init__(self, order: list[int]) -> None:
        self.order = order

    def permutation(self, count: int) -> np.ndarray:
        assert count == len(self.order)
        return np.array(self.order)


# Eq. 1's hand check: fixed 2, a 5 and b 3 in the first layer, c 4 in the second, 10 in all.
# Operation 0 of both layers is free. Positions in the order: 0 is a, 1 is b, 2 is c.
HAND = PathCosts.of_one_unit(2, [[0, 5, 3], [0, 4]])


@pytest.mark.parametrize(
    ("order", "filling", "expected"),
    [
        ([1, 0, 2], "stop", ((0, 1, 2), (0,))),
        ([0, 2, 1], "stop", ((0, 1), (0,))),
        ([0, 2, 1], "skip", ((0, 1, 2), (0,))),
        ([2, 0, 1], "drop", ((0, 1, 2), (0,))),
        ([0, 1, 2], "drop", ((0, 2), (0, 1))),
    ],
)
def test_hand_check_of_eq_1(order: list[int], filling: str, expected: object) -> None:
    sampler = SubSpaceSampler(HAND, HAND)
    drawn = sampler.draw(10, (inf,), GivenOrder(order), filling)  # type: ignore[arg-type]
    assert drawn == expected


def test_a_layer_without_a_free_operation_gets_one_that_leaves_a_path() -> None:
    params = PathCosts.of_one_unit(1, [[2, 3, 4], [0, 9]])
    costs = PathCosts.of_one_unit(0, [[5, 50, 6], [0, 1]])
    sampler = SubSpaceSampler(params, costs)
    rng = generator()
    drawn = {sampler.draw(5, (10,), rng)[0] for _ in range(200)}
    # Operation 1 would leave no path within 10, and a second one of this layer is too large.
    assert drawn == {(0,), (2,)}


def test_the_whole_space_goes_where_the_budget_holds_it() -> None:
    sampler = SubSpaceSampler(HAND, HAND)
    for filling in ("stop", "skip", "drop"):
        assert sampler.draw(14, (inf,), generator(), filling) == ((0, 1, 2), (0, 1))  # type: ignore[arg-type]


def test_unsupported_operations_are_not_sent() -> None:
    costs = HAND.without({(0, 1)})
    assert SubSpaceSampler(HAND, costs).draw(100, (inf,), generator()) == ((0, 2), (0, 1))


def test_a_budget_below_the_least_is_refused_with_both_numbers() -> None:
    params = PathCosts.of_one_unit(10, [[2, 3], [4, 9]])
    sampler = SubSpaceSampler(params, params)
    with pytest.raises(
        FedloomError, match="it is 15 of the supernet's 28 parameters, and these have 16"
    ) as refusal:
        sampler.draw(15, (inf,), generator())
    # 16 of 28 is 0.571, and 21 of 28 is 0.75.
    assert "--comm 0.58 or more; every operation can be sent from --comm 0.75 on" in str(
        refusal.value
    )
    assert sampler.draw(16, (inf,), generator()) == ((0,), (0,))


@pytest.mark.parametrize(
    ("layers", "least_for_all"),
    [([[2, 3], [4, 9]], 21), ([[2, 3], [0, 9]], 21), ([[2, 7], [0, 1]], 17)],
)
def test_from_which_budget_on_every_operation_is_sent(
    layers: list[list[float]], least_for_all: float
) -> None:
    params = PathCosts.of_one_unit(10, layers)
    sampler = SubSpaceSampler(params, params)
    assert sampler.least_for_all() == least_for_all

    def sent_within(budget: float) -> set[tuple[int, int]]:
        rng = generator()
        operations = set()
        for _ in range(300):
            for layer, ops in enumerate(sampler.draw(budget, (inf,), rng)):
                operations |= {(layer, op) for op in ops}
        return operations

    assert len(sent_within(least_for_all)) == 4
    assert len(sent_within(least_for_all - 1)) < 4


def test_no_sub_space_is_over_its_budget() -> None:
    sizes = generator(3).integers(1, 100, (6, 5))
    sizes[:, 0] = 0
    params = PathCosts.of_one_unit(50, sizes.tolist())
    sampler = SubSpaceSampler(params, params)
    rng = generator()
    for filling in ("stop", "skip", "drop"):
        for _ in range(300):
            drawn = sampler.draw(400, (inf,), rng, filling)  # type: ignore[arg-type]
            size = 50
            for layer, ops in enumerate(drawn):
                assert 0 in ops
                size += int(sizes[layer, list(ops)].sum())
            assert size <= 400


# Of cnn-l at the paper's limits: how often Identity is drawn, and what share of a limit is spent.
PAPER_TIERS = {
    121e6: (0.265, 0.957),
    222e6: (0.129, 0.784),
    324e6: (0.112, 0.583),
    716e6: (0.111, 0.266),
}


@pytest.mark.parametrize("limit", PAPER_TIERS)
def test_hand_check_of_greedy_paths_in_the_papers_space(limit: float) -> None:
    """4,000 draws here, and 100,000 once by hand: the same within what is allowed."""
    table = open_space("cnn-l").cost_table((3, 32, 32), 10, Size(16, 64))
    assert table is not None
    costs = PathCosts.of_table(table, ("macs_paper",))
    sampler = PathSampler(costs)
    rng = generator()
    paths = [sampler.draw((limit,), rng) for _ in range(4_000)]
    macs = [costs.of(path)[0] for path in paths]
    assert max(macs) <= limit
    for layer in range(16):
        assert {path[layer] for path in paths} == set(range(9))
    identity, share = PAPER_TIERS[limit]
    assert np.mean(np.array(paths) == 8) == pytest.approx(identity, abs=0.01)
    assert np.mean(macs) / limit == pytest.approx(share, abs=0.01)
