"""Every registered space keeps the contract, and so does one from outside."""

from pathlib import Path

import pytest

from fedloom.spaces import SPACES, open_space
from fedloom.spaces.space import Size
from fedloom.testing import SpaceContract, SpaceToy

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
OUTSIDE = Path(__file__).parents[1] / "outside"
NAMES = [
    "darts:full:2",
    "darts:s1:4",
    "darts:s2:1",
    "darts:s5:3",
    "group:full:2:3",
    "group:s2:2:2",
    "nasbench201",
    "stacks:3:1:2",
    "stacks:1:2:1:sum",
]
CHAINS = [
    "cnn-l",
    "cnn-s",
    "cnn-tiny",
    "rnn",
    "map-chain",
    "text-chain",
]  # have a size of their own
SHAPES = {"nasbench201": (3, 8, 4)}  # whose sides must be divisible by 4
SHAPES_OF_A_GRID = {
    "darts:s2:2": (3, 9, 11),
    "nasbench201": (3, 8, 12),
}  # the last map is 3×3, or 2×3
CELLS = {
    "nasbench201": 1,
    "group:s2:2:2": 4,
    "stacks:3:1:2": 4,
}  # of each of its three stages; a group of two, twice


def test_none_is_forgotten():
    assert {name.partition(":")[0] for name in [*NAMES, *CHAINS]} >= set(SPACES.builtin)


class TestRegistered(SpaceContract):
    @pytest.fixture(params=NAMES)
    def toy(self, request: pytest.FixtureRequest) -> SpaceToy:
        name = request.param
        size = Size(cells=CELLS.get(name, 3), channels=2)
        return SpaceToy(open_space(name), shape=SHAPES.get(name, (3, 9, 11)), size=size)


class TestGridHead(SpaceContract):
    """A classifier that sees a grid of 2×2 means."""

    @pytest.fixture(params=["darts:s2:2", "nasbench201"])
    def toy(self, request: pytest.FixtureRequest) -> SpaceToy:
        name = request.param
        size = Size(cells=CELLS.get(name, 3), channels=2, head="grid")
        return SpaceToy(open_space(name), shape=SHAPES_OF_A_GRID[name], size=size)


class TestTinyChain(SpaceContract):
    """A map with an odd side, the last row of which a reduction leaves out."""

    space = "cnn-tiny"
    shape = (3, 10, 8)


class TestChainOfAFile(SpaceContract):
    """Without reductions, and with both of them; a grid of 2×2 means at the end."""

    space = str(EXAMPLES / "wide.toml")
    shape = (1, 9, 12)
    size = Size(cells=1, channels=1, head="grid")


class TestRecurrent(SpaceContract):
    space = "rnn"
    kind = "text"
    shape = (6,)
    classes = 5


class TestSumsOfAFile(SpaceContract):
    space = str(EXAMPLES / "three-sums.toml")
    kind = "text"
    shape = (4,)
    classes = 5


@pytest.mark.slow
class TestSpeechChain(SpaceContract):
    space = "cnn-s"
    kind = "speech"
    shape = (1, 10, 7)


@pytest.mark.slow
class TestLargeChain(SpaceContract):
    """20 million weights: the fast suite has the same operations with fewer channels."""

    space = "cnn-l"
    shape = (3, 16, 16)


class TestNoise(SpaceContract):
    """An operation that draws draws for a mixture too, where its weight is 0."""

    space = "darts:s4:2"
    size = Size(cells=3, channels=2)
    exempt = {
        "several_at_once_answer_as_each_alone": "it draws anew for each",
        "each_sample_may_go_its_own_way": "a batch draws otherwise than each of its samples",
        "a_certain_answer_is_the_path": "noise of no weight is drawn as well",
    }


class TestOutside(SpaceContract):
    space = f"{EXAMPLES}/chain.py:Chain:3"


class TestText(SpaceContract):
    """A space for text: its inputs are integers, and it has neither a map nor latencies."""

    space = f"{OUTSIDE}/text_space.py:Texts"
    kind = "text"
    shape = (6,)
    classes = 5
