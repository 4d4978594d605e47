import json
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.errors import FedloomError
from fedloom.rng import rng
from fedloom.spaces import space_of
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.cells.chosen import EIGHT
from fedloom.spaces.cells.space import DARTS_V2, OP_SETS, S1_NORMAL, S1_REDUCE, from_genotype
from fedloom.types import Arch

UNHURRIED = settings(deadline=None)  # other work may share the machine
SPACES = st.builds(
    DartsCells, st.sampled_from([name for name in OP_SETS if name != "s1"]), st.integers(1, 5)
) | st.just(DartsCells("s1", 4))
SEEDS = st.integers(0, 2**32)


def operations_into_nodes(space: DartsCells, arch: Arch) -> list[list[str]]:
    """Per node of both cells, the names of the operations that lead into it."""
    names_by_node = []
    for kind, node in product(("normal", "reduce"), range(space.nodes)):
        names = []
        for slot in space.slots_into(kind, node):
            names += [space.slots[slot].options[op] for op in arch.choice[slot]]
        names_by_node.append(names)
    return names_by_node


# Tables


def test_edges():
    assert DartsCells("full", 1).edges == ((0, 2), (1, 2))
    assert len(DartsCells("full", 4).edges) == 14
    assert DartsCells("full", 4).edges[5:9] == ((0, 4), (1, 4), (2, 4), (3, 4))
    assert [target for _, target in DartsCells("s2", 4).edges] == [2] * 2 + [3] * 3 + [4] * 4 + [
        5
    ] * 5
    assert DartsCells("s2", 2).slots_into("normal", 1) == [2, 3, 4]
    assert DartsCells("s2", 2).slots_into("reduce", 0) == [5, 6]


def test_slots():
    slots = DartsCells("s3", 2).slots
    assert [slot.name for slot in slots[:5]] == [
        "normal.0-2",
        "normal.1-2",
        "normal.0-3",
        "normal.1-3",
        "normal.2-3",
    ]
    assert [slot.name.split(".")[0] for slot in slots] == ["normal"] * 5 + ["reduce"] * 5
    assert DartsCells("full", 4).name == "darts:full:4"


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("full", EIGHT),
        ("s2", ("skip_connect", "sep_conv_3x3")),
        ("s3", ("none", "skip_connect", "sep_conv_3x3")),
        ("s4", ("noise", "sep_conv_3x3")),
        ("s5", EIGHT[1:]),
    ],
)
def test_op_sets(ops, expected):
    assert {slot.options for slot in DartsCells(ops, 4).slots} == {expected}
    assert EIGHT[0] == "none"
    assert len(EIGHT) == 8


def test_s1_differs_from_edge_to_edge():
    """Zela et al. 2020, appendix: spot checks of both cells."""
    slots = DartsCells("s1", 4).slots
    assert [slot.options for slot in slots] == [*S1_NORMAL, *S1_REDUCE]
    assert slots[0].options == ("skip_connect", "dil_conv_3x3")
    assert slots[5].options == ("max_pool_3x3", "skip_connect")
    assert slots[13].options == ("dil_conv_3x3", "dil_conv_5x5")
    assert slots[14].options == ("max_pool_3x3", "avg_pool_3x3")
    assert slots[20].options == ("max_pool_3x3", "sep_conv_3x3")
    assert slots[27].options == ("skip_connect", "dil_conv_5x5")
    assert {len(slot.options) for slot in slots} == {2}


# Sample


@UNHURRIED
@given(SPACES, SEEDS)
def test_every_sample_is_a_network_that_a_search_could_find(space, seed):
    arch = space.sample(rng(seed))
    space.check(arch)
    assert all(len(ops) == 2 and "none" not in ops for ops in operations_into_nodes(space, arch))
    assert all(len(live) <= 1 for live in arch.choice)
    assert arch == space.sample(rng(seed))
    assert space_of(arch.space) == space
    assert Arch.from_json(arch.to_json()) == arch
    assert hash(Arch.from_json(arch.to_json())) == hash(arch)
    json.loads(arch.to_json())


def test_samples_are_uniform():
    """Two nodes of s2: 2² operations on the first, C(3,2)·2² on the second, in each cell."""
    space = DartsCells("s2", 2)
    draws = 3000
    drawn = rng(0)
    cells = [space.sample(drawn).choice[:5] for _ in range(draws)]
    counts = {cell: cells.count(cell) for cell in set(cells)}
    assert len(counts) == 4 * comb(3, 2) * 4
    assert (
        sum((count - draws / 48) ** 2 / (draws / 48) for count in counts.values()) < 90
    )  # χ², 47 degrees: p ≈ 1e-4


# Mutate


@UNHURRIED
@given(SPACES, SEEDS)
def test_a_mutation_is_one_decision(space, seed):
    drawn = rng(seed)
    arch = space.sample(drawn)
    other = space.mutate(arch, drawn)
    space.check(other)
    assert other != arch
    assert all(len(ops) == 2 and "none" not in ops for ops in operations_into_nodes(space, other))
    changed = [slot for slot, live in enumerate(arch.choice) if live != other.choice[slot]]
    assert len(changed) in (1, 2)  # another operation, or another source
    nodes = {
        space.slots[slot].name.partition("-")[0][:6] + space.slots[slot].name.partition("-")[2]
        for slot in changed
    }
    assert len(nodes) == 1
    if len(changed) == 2:
        assert (
            sum(bool(arch.choice[slot]) for slot in changed)
            == sum(bool(other.choice[slot]) for slot in changed)
            == 1
        )


def test_every_neighbour_is_reached():
    """One node of s2: either operation of either cell, and nothing else."""
    space = DartsCells("s2", 1)
    arch = Arch(space.name, ((0,), (0,), (1,), (1,)))
    drawn = rng(0)
    choices = {space.mutate(arch, drawn).choice for _ in range(100)}
    assert choices == {
        ((1,), (0,), (1,), (1,)),
        ((0,), (1,), (1,), (1,)),
        ((0,), (0,), (0,), (1,)),
        ((0,), (0,), (1,), (0,)),
    }


# Derive


def test_derive_by_hand():
    """s3 (none, skip, sep), two nodes.

    The second node drops the source whose best operation is weakest.
    """
    space = DartsCells("s3", 2)
    normal = [[0.8, 0.1, 0.1], [0.0, 0.4, 0.6], [0.1, 0.5, 0.4], [0.9, 0.06, 0.04], [0.3, 0.2, 0.5]]
    reduce = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.2, 0.4, 0.4], [0.2, 0.3, 0.5], [0.2, 0.6, 0.2]]
    arch = space.derive([np.array(row) for row in normal + reduce])
    # node 0 keeps both: skip before sep where they tie. Node 1: 0.5 (skip), 0.06, 0.5 (sep).
    assert arch.choice[:5] == ((1,), (2,), (1,), (), (2,))
    assert arch.choice[5:] == ((1,), (2,), (), (2,), (1,))


def test_ties_go_to_the_first():
    space = DartsCells("full", 4)
    arch = space.derive([np.full(8, 0.125)] * 28)
    assert arch.choice == 2 * (
        (1,),
        (1,),
        (1,),
        (1,),
        (),
        (1,),
        (1,),
        (),
        (),
        (1,),
        (1,),
        (),
        (),
        (),
    )


@UNHURRIED
@given(SPACES, SEEDS)
def test_derived_networks_could_be_sampled(space, seed):
    drawn = rng(seed)
    strength = [drawn.dirichlet(np.full(len(slot.options), 0.3)) for slot in space.slots]
    arch = space.derive(strength)
    space.check(arch)
    assert all(len(ops) == 2 and "none" not in ops for ops in operations_into_nodes(space, arch))
    doubled = space.derive([2 * row for row in strength])  # only the order counts
    assert doubled == arch


@UNHURRIED
@given(SPACES, SEEDS)
def test_a_derived_one_hot_is_itself(space, seed):
    arch = space.sample(rng(seed))
    strength = [np.zeros(len(slot.options)) for slot in space.slots]
    for row, live in zip(strength, arch.choice, strict=True):
        row[list(live)] = 1.0
    assert space.derive(strength) == arch


# Names and JSON


@pytest.mark.parametrize(
    "name", ["darts:full:4", "darts:s1:4", "darts:s2:2", "darts:s5:1", "nasbench201"]
)
def test_space_of_a_name(name):
    space = space_of(name)
    assert space.name == name
    assert Arch.from_json(space.full().to_json()) == space.full()
    space.check(space.full())


# Genotypes


def test_the_published_genotype():
    arch = from_genotype(DARTS_V2, DartsCells("full", 4))
    sep3 = 4
    skip = 3
    dil3 = 6
    most = 1
    assert arch.choice[:14] == (
        (sep3,), (sep3,),
        (sep3,), (sep3,), (),
        (skip,), (sep3,), (), (),
        (skip,), (), (dil3,), (), (),
    )  # fmt: skip
    assert arch.choice[14:] == (
        (most,), (most,),
        (), (most,), (skip,),
        (most,), (), (skip,), (),
        (), (most,), (skip,), (), (),
    )  # fmt: skip
    DartsCells("full", 4).check(arch)
    assert from_genotype(DARTS_V2, DartsCells("s5", 4)).choice[0] == (sep3 - 1,)


# What is refused


def refusal(work) -> str:
    with pytest.raises(FedloomError) as caught:
        work()
    return str(caught.value)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda: DartsCells("s9", 4), "an op set must be a known name, but got 's9'"),
        (lambda: DartsCells("ful", 4), "did you mean full?"),
        (lambda: DartsCells("full", 0), "1 to 32 nodes, but got 0"),
        (lambda: DartsCells("s1", 3), "op set s1 must have cells of 4 nodes, but got 3"),
        (lambda: space_of("darts"), "must look like darts:OPS:NODES, but got darts"),
        (lambda: space_of("darts:s2:-1"), "1 to 32 nodes, but got -1"),
        (
            lambda: space_of("darts:s2:four"),
            "NODES in darts:OPS:NODES must be a valid integer, but got darts:s2:four",
        ),
        (lambda: space_of("darts:s2:4:8"), "must look like darts:OPS:NODES, but got darts:s2:4:8"),
        (lambda: space_of("darts:s2:0"), "1 to 32 nodes"),
        (lambda: space_of("stack:s2:4"), "search space must be a known name, but got 'stack'"),
        (
            lambda: space_of("nasbench201:4"),
            "must be named without parameters, but got '4'",
        ),
    ],
)
def test_bad_spaces(work, expected):
    assert expected in refusal(work)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (((0,),) * 3, "must be of darts:s2:1 with 4 slots, but it is of darts:s2:1 with 3 slots"),
        (
            ((0,), (2,), (0,), (0,)),
            "slot normal.1-2 must choose among 0 skip_connect, 1 sep_conv_3x3, but got [2]",
        ),
        (((0,), (0,), (-1,), (0,)), "slot reduce.0-2 must choose among"),
        (((0,), (0,), (0,), (1, 1)), "slot reduce.1-2 must choose among"),
    ],
)
def test_architectures_that_do_not_fit(choice, expected):
    assert expected in refusal(lambda: DartsCells("s2", 1).check(Arch("darts:s2:1", choice)))
    assert "but it is of darts:s3:1" in refusal(
        lambda: DartsCells("s2", 1).check(Arch("darts:s3:1", choice))
    )


@pytest.mark.parametrize(
    ("genotype", "ops", "nodes", "expected"),
    [
        (
            DARTS_V2,
            "full",
            3,
            "a genotype's normal cell must have 6 inputs, but it has 8; use a space of 4 nodes",
        ),
        (DARTS_V2, "s2", 4, "slot normal.2-5 must be a known name, but got 'dil_conv_3x3'"),
        ({"normal": DARTS_V2["normal"]}, "full", 4, "reduce cell must have 8 inputs, but it has 0"),
        (
            {"normal": (("skip_connect", 0), ("skip_connect", 2))},
            "s2",
            1,
            "must take an input below 2, but got 2",
        ),
        (
            {"normal": (("skip_connect", 0), ("skip_connect", -1))},
            "s2",
            1,
            "must take an input below 2, but got -1",
        ),
        (
            {"normal": (("skip_connect", 0), ("sep_conv_3x3", 0))},
            "s2",
            1,
            "two different inputs, but got 0 twice",
        ),
    ],
)
def test_genotypes_that_do_not_fit(genotype, ops, nodes, expected):
    assert expected in refusal(lambda: from_genotype(genotype, DartsCells(ops, nodes)))
