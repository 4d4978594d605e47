"""MACs as FedorAS's tool counts them, of any network."""

import numpy as np
import pytest

from fedloom.cost.paper import macs_both_ways
from fedloom.nets.cnn import SmallCNN
from fedloom.nets.lstm import CharLSTM
from fedloom.spaces import open_space


def test_a_small_cnn_by_hand():
    """8×8 pixels, 2, 4 and 8 channels, a grid of 4 means, 3 classes."""
    products = 64 * 2 * 9 + 16 * 4 * 2 * 9 + 4 * 8 * 4 * 9 + 32 * 3
    elements = 64 * 2 + 16 * 4 + 4 * 8  # each is normalised (2) and rectified (1)
    pools = 64 * 2 + 16 * 4 + 4 * 8
    net = SmallCNN((1, 8, 8), 3, 0.125)
    assert macs_both_ways(net, (1, 8, 8)) == (products, products + 3 * elements + pools + 3)


def test_an_lstm_by_hand():
    """Two layers of 4 units over 5 symbols, embedded in 8 numbers each."""
    products = 5 * (4 * 4 * (8 + 4) + 4 * 4 * (4 + 4)) + 4 * 3
    net = CharLSTM((5,), 3, 1 / 64)
    assert macs_both_ways(net, (5,)) == (products, products + 18 * 2 * 4 * 5 + 3)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_as_a_spaces_own_table(seed):
    space = open_space("cnn-tiny")
    shape = (3, 16, 16)
    arch = space.sample(np.random.default_rng(seed))
    net = space.network(shape, 10, space.usual, arch=arch, affine=True)
    table = space.cost_table(shape, 10, space.usual)
    assert macs_both_ways(net, shape) == (table.of(arch, "macs"), table.of(arch, "macs_paper"))
