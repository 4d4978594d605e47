"""Latencies of a chain's operations on a device: pieces of every layer, and sums of paths."""

from collections import Counter

import pytest
import torch
from test_profile import profile

from fedloom.cost.latencies import operation_latencies
from fedloom.cost.steps import Piece, Steps
from fedloom.errors import FedloomError
from fedloom.nets.model import Model
from fedloom.rng import rng
from fedloom.spaces import open_space
from fedloom.spaces.mixed import model_of_space
from fedloom.spaces.space import Size
from fedloom.types import Arch, Task

SPACES = {"cnn-tiny": (3, 16, 16), "cnn-s": (1, 40, 51), "rnn": (12,)}


def supernet(name: str) -> Model:
    space = open_space(name)
    shape = SPACES[name]
    constants = shape[0] if len(shape) == 3 else 0
    labels = tuple(str(label) for label in range(10))
    task = Task("x", {}, space.kinds[0], shape, labels, 0, (0.0,) * constants, (1.0,) * constants)
    size = space.usual
    if space.takes_head:
        size = size._replace(head="mean")
    assert isinstance(size, Size)
    return model_of_space(task, space, size, affine=True)


@pytest.mark.parametrize("name", SPACES)
def test_every_piece_of_a_chain_can_be_measured(name: str) -> None:
    """Steps have the shapes of a real pass, and each runs on the inputs it is measured with."""
    steps = Steps(supernet(name))
    pieces = steps.all_pieces()
    space = steps.net.space
    for layer, slot in enumerate(space.slots):
        for op in range(len(slot.options)):
            choice = [(0,)] * len(space.slots)
            choice[layer] = (op,)
            assert set(steps.of(Arch(space.name, tuple(choice)))) <= pieces
    for piece in pieces:
        work, inputs = steps.examples[piece]
        with torch.no_grad():
            result = work(*steps.tensors(inputs))
        channels = 2 if result.dim() == 3 else 1
        assert result.shape[channels] == piece.outputs, piece


@pytest.mark.parametrize("name", SPACES)
def test_the_sum_over_layers_is_that_of_the_paths_pieces(name: str) -> None:
    steps = Steps(supernet(name))
    draws = rng(0, "times")
    times = {piece: float(draws.uniform(0.1, 2.0)) for piece in sorted(steps.all_pieces())}
    of_device = profile(times)
    costs = operation_latencies(steps.model, of_device)
    for number in range(20):
        arch = steps.net.space.sample(rng(number, "path"))
        expected = of_device.latency_ms(steps.of(arch))
        assert costs.of([ops[0] for ops in arch.choice]) == pytest.approx(expected)
    assert min(min(row) for row in costs.rows) >= 0


def test_a_layer_by_hand() -> None:
    """An identity takes no time, and a convolution the time of its one piece."""
    steps = Steps(supernet("cnn-tiny"))
    times = dict.fromkeys(steps.all_pieces(), 1.0)
    slot = steps.net.space.slots[0]
    conv = next(piece for piece in times if piece.op == slot.options[0] and piece.height == 16)
    times[conv] = 5.0
    costs = operation_latencies(steps.model, profile(times))
    assert costs.rows[0][0] == 5.0
    assert costs.rows[0][slot.options.index("identity")] == 0.0
    assert costs.rows[-1][0] == 1.0
    assert costs.fixed == 3 + 4  # reductions; normalise, stem, mean, classifier


def test_a_sum_of_two_takes_an_addition() -> None:
    steps = Steps(supernet("rnn"))
    costs = operation_latencies(steps.model, profile(dict.fromkeys(steps.all_pieces(), 1.0)))
    branch = steps.net.space.slots[1].options
    assert costs.rows[1][branch.index("zero")] == 0.0
    assert costs.rows[1][branch.index("lstm")] == 2.0  # the operation, and the sum that it makes


def test_a_profile_that_does_not_cover_the_space_is_refused() -> None:
    steps = Steps(supernet("cnn-tiny"))
    pieces: Counter[Piece] = steps.of(Arch(steps.net.space.name, ((0,),) * 6))
    with pytest.raises(
        FedloomError, match="mine must have every operation of the network, but it has no"
    ):
        operation_latencies(steps.model, profile(dict.fromkeys(pieces, 1.0)), "mine")
