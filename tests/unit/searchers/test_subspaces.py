"""Sub-spaces stay within their limit, and every operation that can be in one is drawn."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from fedloom.errors import FedloomError
from fedloom.rng import rng
from fedloom.searchers.subspaces import (
    MacsTable,
    check_subspaces,
    draw_subspace,
    drawn_uniformly,
    macs_table,
    make_fit,
)
from fedloom.spaces import open_space, space_of
from fedloom.spaces.groups import CellGroup
from fedloom.spaces.space import Size
from fedloom.types import Arch

SPACE = CellGroup()
SHAPE = (3, 16, 16)


@pytest.fixture(scope="module")
def table() -> MacsTable:
    return macs_table(SPACE, SHAPE, 10, SPACE.usual)


def refusal(work) -> str:
    with pytest.raises(FedloomError) as caught:
        work()
    return str(caught.value)


def fitting_operations(table: MacsTable, count: int, limit: int) -> set[tuple[int, int]]:
    """(slot, operation) that is in some sub-space within the limit: the cheapest that has it."""
    least = table.least_of_slots(count)
    fitting = set()
    for slot, row in enumerate(table.rows):
        for op, cost in enumerate(row):
            others = sorted(row[:op] + row[op + 1 :])
            cheapest = table.fixed + sum(least) - least[slot] + cost + sum(others[: count - 1])
            if cheapest <= limit:
                fitting.add((slot, op))
    return fitting


def operations(choice) -> set[tuple[int, int]]:
    """Every live operation as (slot, operation)."""
    pairs = set()
    for slot, live in enumerate(choice):
        pairs.update((slot, op) for op in live)
    return pairs


# The table


@pytest.mark.parametrize("name", ["group:full:4:4", "group:s3:2:3", "darts:full:3", "nasbench201"])
def test_the_table_adds_up_to_the_spaces_formula(name):
    space = space_of(name)
    size = Size(space.usual.cells, 4)
    table = macs_table(space, SHAPE, 10, size)
    drawn = rng(0)
    for arch in (
        space.full(),
        space.bare(),
        *(draw_subspace(space, table, 2, None, drawn) for _ in range(3)),
    ):
        assert table.of(arch) == space.cost(SHAPE, 10, arch, size).macs
    assert table.everything() == space.cost(SHAPE, 10, space.full(), size).macs


def test_a_space_that_cannot_do_without_operations_is_refused():
    assert "works without any operation, but that of cnn-tiny does not" in refusal(
        lambda: macs_table(open_space("cnn-tiny"), SHAPE, 10, Size(1, 1))
    )


def test_a_space_whose_costs_do_not_add_up_is_refused():
    class Discount(CellGroup):
        def cost(self, shape, classes, arch, size, *, affine=False):
            cost = super().cost(shape, classes, arch, size, affine=affine)
            several = any(len(live) > 1 for live in arch.choice)
            return cost._replace(macs=cost.macs - several)

    assert "MACs of operations add up" in refusal(
        lambda: macs_table(Discount("s2", 1, 2), SHAPE, 10, Size(2, 4))
    )


# Drawing


def test_without_a_limit_every_pair_is_as_likely():
    """χ² of the pairs of five options, and each slot has its own number of them."""
    draws = 4000
    drawn = rng(0)
    pairs = []
    for _ in range(draws):
        choice = drawn_uniformly([5, 3, 2], 2, drawn)
        assert choice[2] == [0, 1]
        assert set(choice[1]) < {0, 1, 2}
        pairs.append(tuple(choice[0]))
    expected = draws / comb(5, 2)
    counts = [pairs.count(pair) for pair in combinations(range(5), 2)]
    assert sum(counts) == draws
    assert sum((count - expected) ** 2 / expected for count in counts) < 34  # 9 degrees: p ≈ 1e-4


def test_what_fits_as_drawn_stays(table):
    for seed in range(5):
        free = draw_subspace(SPACE, table, 2, None, rng(seed))
        within = draw_subspace(SPACE, table, 2, table.of(free), rng(seed))
        assert within == free
        assert draw_subspace(SPACE, table, 2, table.of(free) - 1, rng(seed)) != free


def test_the_same_generator_draws_the_same(table):
    limit = table.least(2) + 300_000
    assert draw_subspace(SPACE, table, 2, limit, rng(7)) == draw_subspace(
        SPACE, table, 2, limit, rng(7)
    )


ROWS = ((0, 3, 5, 9), (0, 0, 4, 4), (2, 1, 7, 3), (6, 2, 2, 8), (1, 1, 1, 1))
SMALL = MacsTable(10, ROWS)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("spare", [0, 1, 3, 7])
def test_small_tables_are_drawn_as_all_their_subspaces_say(count, spare):
    """No draw is over the limit, and each operation of a sub-space that fits is drawn."""
    limit = SMALL.least(count) + spare
    possible = set()
    for choice in product(combinations(range(4), count), repeat=len(ROWS)):
        if SMALL.of(Arch("any", choice)) <= limit:
            possible |= operations(choice)
    assert possible == fitting_operations(SMALL, count, limit)
    drawn = rng(count, spare)
    seen = set()
    for _ in range(2000):
        choice = drawn_uniformly([4] * len(ROWS), count, drawn)
        make_fit(choice, SMALL, limit, drawn)
        assert SMALL.of(Arch("any", tuple(map(tuple, choice)))) <= limit
        assert all(len(set(live)) == count for live in choice)
        seen |= operations(choice)
    assert seen == possible


def test_thirty_thousand_draws_under_a_tight_limit():
    """None is over the limit, and every operation that fits is drawn as often as promised."""
    limit = (
        SMALL.least(2) + 4
    )  # just enough for the dearest of the fourth slot beside the cheapest of all others
    fitting = fitting_operations(SMALL, 2, limit)
    assert 0 < len(fitting) < sum(len(row) for row in ROWS)
    drawn = rng(19)
    times = dict.fromkeys(fitting, 0)
    slots = len(ROWS)
    choices = drawn_uniformly([4] * slots * 30_000, 2, drawn)
    for first in range(0, len(choices), slots):
        choice = choices[first : first + slots]
        make_fit(choice, SMALL, limit, drawn)
        cost = SMALL.fixed
        for slot, live in enumerate(choice):
            for op in live:
                cost += ROWS[slot][op]
                times[slot, op] += 1  # one that fits nowhere is not there
        assert cost <= limit
    promised = 30_000 / (slots * comb(4, 2))
    assert min(times.values()) > 0.9 * promised


@pytest.mark.parametrize("ops_per_edge", [1, 2, 3])
def test_the_real_space_under_tight_limits(table, ops_per_edge):
    """The limit is so tight that only one slot at a time can hold its dearest operation."""
    widest = max(max(row) for row in table.rows)
    limit = table.least(ops_per_edge) + widest
    fitting = fitting_operations(table, ops_per_edge, limit)
    drawn = rng(3)
    seen = set()
    for _ in range(1500):
        arch = draw_subspace(SPACE, table, ops_per_edge, limit, drawn)
        assert table.of(arch) <= limit
        assert {len(live) for live in arch.choice} == {ops_per_edge}
        seen |= operations(arch.choice)
    assert seen <= fitting
    assert len(seen) > 0.97 * len(fitting)
    SPACE.check(arch)
    assert space_of("group:full:4:4").cost(SHAPE, 10, arch, SPACE.usual).macs <= limit


def test_the_cheapest_limit_can_be_drawn(table):
    for count in (1, 2, 4, 8):
        arch = draw_subspace(SPACE, table, count, table.least(count), rng(0))
        assert table.of(arch) == table.least(count)


# What is refused


def test_a_limit_below_the_cheapest_names_it(table):
    least = table.least(5)
    text = refusal(lambda: check_subspaces(SPACE, table, 5, least - 1))
    assert f"flops_max must be at least {least:,} MACs" in text
    assert f"set flops_max={least} or more" in text
    check_subspaces(SPACE, table, 5, least)


@pytest.mark.parametrize("ops_per_edge", [0, 9])
def test_more_operations_than_there_are(table, ops_per_edge):
    expected = f"ops_per_edge must be 1 to 8, the operations of cell0.0-2, but got {ops_per_edge}"
    assert expected in refusal(
        lambda: draw_subspace(SPACE, table, ops_per_edge, None, np.random.default_rng(0))
    )
