"""A choice that is asked during the forward pass, by hand; the contract suite tests all spaces."""

import pytest
import torch

from fedloom.errors import FedloomError
from fedloom.nets.model import seeded
from fedloom.spaces import open_space
from fedloom.spaces.choice import Mixture, Place, part_of
from fedloom.spaces.joint import Joint
from fedloom.spaces.space import Size
from fedloom.types import Arch

X = torch.zeros(2, 3, 4, 4)


class Fixed:
    """Answers with the same rows whoever asks, and remembers who did."""

    def __init__(self, rows):
        self.rows = rows
        self.places = []

    def weights(self, place, inputs):
        self.places.append(
            (place.number, list(place.slots), [tuple(value.shape) for value in inputs])
        )
        return [self.rows[slot] for slot in place.slots]


def test_parts_by_hand():
    place = Place(5, range(1, 3))
    assert part_of(None, place, (X,)) == (None, None)
    assert part_of(Arch("x", ((0,), (1,), (2, 0), (3,))), place, (X,)) == (None, ((1,), (2, 0)))
    mixture = Mixture(tuple(torch.tensor([float(slot), 10.0 * slot]) for slot in range(4)))
    scales, live = part_of(mixture, place, (X,))
    assert live is None
    assert [row.tolist() for row in map(torch.stack, scales)] == [[1.0, 10.0], [2.0, 20.0]]


def test_an_asked_answer_is_for_the_batch_or_for_each_sample():
    rows = [torch.tensor([0.25, 0.75]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])]
    scales, live = part_of(Fixed(rows), Place(0, range(2)), (X,))
    assert live is None
    assert [value.tolist() for value in scales[0]] == [0.25, 0.75]
    assert [value.tolist() for value in scales[1]] == [
        [1.0, 0.0],
        [0.0, 1.0],
    ]  # an option's weight, sample by sample


@pytest.mark.parametrize(
    ("name", "cells", "expected"),
    [
        (
            "darts:s2:1",
            3,
            [(0, [0, 1], 2), (1, [2, 3], 2), (2, [2, 3], 2)],
        ),  # normal, reduce, reduce
        ("nasbench201", 1, [(number, [0, 1, 2, 3, 4, 5], 1) for number in range(3)]),
    ],
)
def test_every_cell_asks_with_what_goes_into_it(name, cells, expected):
    net = open_space(name).network((3, 8, 8), 3, Size(cells, 2)).eval()
    rule = Fixed([torch.ones(len(slot.options)) for slot in net.space.slots])
    net(torch.zeros(2, 3, 8, 8), rule)
    places = []
    for number, slots, shapes in rule.places:
        places.append((number, slots, len(shapes)))
        assert all(shape[0] == 2 for shape in shapes)
    assert places == expected


class Answering:
    """Says of every place what it was told to."""

    def __init__(self, answer):
        self.answer = answer

    def weights(self, place, inputs):
        return self.answer


FIVE = torch.ones(5)
ANSWERS = {
    "too many rows": ([FIVE] * 7, "for place 0 must have 6 rows, one per slot, but it has 7"),
    "too few rows": ([FIVE] * 5, "for place 0 must have 6 rows, one per slot, but it has 5"),
    "no rows": (None, "must have 6 rows, one per slot, but it is None"),
    "a row too long": (
        [*[FIVE] * 5, torch.ones(6)],
        r"for slot 5 must be .*, but its shape is \[6\]",
    ),
    "a row too short": (
        [torch.ones(2, 4), *[FIVE] * 5],
        r"for slot 0 must be .*, but its shape is \[2, 4\]",
    ),
    "a number": ([torch.tensor(1.0)] * 6, r"for slot 0 must be .*, but its shape is \[\]"),
    "a list": (
        [[1.0] * 5] * 6,
        r"for slot 0 must be a tensor of \[5\] or \[batch, 5\] weights, but it is",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_that_does_not_fit_is_refused(case):
    answer, sentence = ANSWERS[case]
    net = open_space("nasbench201").network((3, 8, 8), 3, Size(1, 2)).eval()
    with pytest.raises(FedloomError, match=sentence):
        net(torch.zeros(2, 3, 8, 8), Answering(answer))


def test_a_choice_that_cannot_be_asked():
    net = open_space("nasbench201").network((3, 8, 8), 3, Size(1, 2)).eval()
    with pytest.raises(FedloomError, match="or an object with a method `weights`, but got 'skip'"):
        net(torch.zeros(2, 3, 8, 8), "skip")


def test_gradients_reach_the_answer():
    """A rule may be trained: its weights are part of the graph, for each sample."""
    with seeded(0):
        net = open_space("darts:s2:1").network((3, 8, 8), 3, Size(3, 2)).train()
        x = torch.randn(4, 3, 8, 8)
    rows = [torch.full((4, len(slot.options)), 0.5, requires_grad=True) for slot in net.space.slots]
    net(x, Fixed(rows)).square().sum().backward()
    assert all(row.grad is not None and row.grad.any(dim=1).all() for row in rows)


def test_steps_for_later_cannot_be_asked():
    net = open_space("nasbench201").network((3, 8, 8), 3, Size(1, 2))
    with pytest.raises(TypeError, match="needs the values themselves"):
        Joint(net, [Fixed([torch.ones(5)] * 6)])
