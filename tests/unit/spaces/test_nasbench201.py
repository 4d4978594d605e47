import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.errors import FedloomError
from fedloom.rng import rng
from fedloom.spaces import space_of
from fedloom.spaces.nasbench201 import NasBench201Cells
from fedloom.spaces.nasbench201.space import EDGES, OPS, from_string
from fedloom.types import Arch

UNHURRIED = settings(deadline=None)  # other work may share the machine
SPACE = NasBench201Cells()
STRING = "|avg_pool_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|nor_conv_3x3~0|skip_connect~1|none~2|"
CHOICES = st.tuples(*[st.integers(0, 4)] * 6)


def string(choice) -> str:
    """The benchmark's text of a cell, such as `|none~0|+|none~0|none~1|+…`."""
    names = iter(OPS[op] for op in choice)
    nodes = []
    for target in range(1, 4):
        edges = [f"{next(names)}~{source}|" for source in range(target)]
        nodes.append("|" + "".join(edges))
    return "+".join(nodes)


def test_the_cell():
    assert EDGES == ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
    assert [slot.name for slot in SPACE.slots] == ["0-1", "0-2", "1-2", "0-3", "1-3", "2-3"]
    assert {slot.options for slot in SPACE.slots} == {OPS}
    assert len(OPS) ** len(EDGES) == 15_625
    assert SPACE.full().choice == ((0, 1, 2, 3, 4),) * 6


def test_its_own_notation():
    assert from_string(STRING).choice == ((4,), (2,), (1,), (3,), (1,), (0,))
    assert from_string(STRING).space == "nasbench201"


@UNHURRIED
@given(CHOICES)
def test_notation_there_and_back(choice):
    arch = from_string(string(choice))
    assert arch == Arch("nasbench201", tuple((op,) for op in choice))
    SPACE.check(arch)
    assert space_of(arch.space) == SPACE
    assert Arch.from_json(arch.to_json()) == arch


@UNHURRIED
@given(st.integers(0, 2**32))
def test_sample_and_mutate(seed):
    drawn = rng(seed)
    arch = SPACE.sample(drawn)
    other = SPACE.mutate(arch, drawn)
    for one in (arch, other):
        SPACE.check(one)
        assert all(len(live) == 1 for live in one.choice)
    assert sum(a != b for a, b in zip(arch.choice, other.choice, strict=True)) == 1
    assert arch == SPACE.sample(rng(seed))


def test_samples_use_everything():
    drawn = rng(0)
    counts = np.zeros((6, 5))
    for _ in range(2000):
        counts[np.arange(6), np.ravel(SPACE.sample(drawn).choice)] += 1
    assert counts.min() > 320
    assert counts.max() < 480


def test_derive_by_hand():
    """`none` is an operation like any other here, and a tie goes to the first."""
    rows = [
        [1, 0, 0, 0, 0],
        [0, 0.4, 0.4, 0.2, 0],
        [0.2] * 5,
        [0, 0, 0, 0.1, 0.9],
        [0, 0, 1, 0, 0],
        [0.3, 0, 0, 0.7, 0],
    ]
    assert SPACE.derive([np.array(row) for row in rows]).choice == (
        (0,),
        (1,),
        (0,),
        (4,),
        (2,),
        (3,),
    )


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        (
            Arch("nasbench201", ((0,),) * 5),
            "must be of nasbench201 with 6 slots, but it is of nasbench201 with 5",
        ),
        (Arch("darts:s2:1", ((0,),) * 6), "but it is of darts:s2:1"),
        (
            Arch("nasbench201", ((0,),) * 5 + ((5,),)),
            "slot 2-3 must choose among 0 none, 1 skip_connect, 2 nor_conv_1x1",
        ),
        (Arch("nasbench201", ((0,),) * 5 + ((-1,),)), "but got [-1]"),
        (Arch("nasbench201", ((0, 0),) + ((0,),) * 5), "slot 0-1 must choose among"),
    ],
)
def test_architectures_that_do_not_fit(arch, expected):
    with pytest.raises(FedloomError) as caught:
        SPACE.check(arch)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "must look like |op~0|+"),
        (STRING.replace("~2", "~1"), "must look like |op~0|+"),
        (STRING[:-20], "must look like |op~0|+"),
        ("some" + STRING, "must look like |op~0|+"),
        (STRING + "some", "must look like |op~0|+"),
        (STRING + "+" + STRING, "must look like |op~0|+"),
        (
            STRING.replace("none", "nothing"),
            "an operation of NAS-Bench-201 must be a known name, but got 'nothing'",
        ),
    ],
)
def test_notation_that_does_not_fit(text, expected):
    with pytest.raises(FedloomError) as caught:
        from_string(text)
    assert expected in str(caught.value)
