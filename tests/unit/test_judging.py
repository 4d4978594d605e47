"""Sums over validation samples, and when they decide."""

import math

import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.learning.judging import (
    Disagreement,
    ValidationSums,
    disagreement,
    held_back,
    is_decisive,
    validation_sums,
)


def samples(count, classes=2):
    return Samples(torch.arange(count).float().view(-1, 1), torch.arange(count) % classes)


class Scores(nn.Module):
    """(x, 0): the first class where x > 0."""

    def forward(self, x):
        return torch.cat([x, torch.zeros_like(x)], dim=1)


def test_held_back_samples_are_the_last_ones():
    parts = held_back(samples(10), 0.2)
    assert parts.train.x.flatten().tolist() == list(range(8))
    assert parts.validation.x.flatten().tolist() == [8, 9]


def test_fewer_than_four_samples_are_all_trained_on():
    parts = held_back(samples(3), 0.2)
    assert len(parts.train) == 3
    assert len(parts.validation) == 0
    assert validation_sums(Scores(), parts.validation, "cpu") == ValidationSums(0.0, 0, 0)


def test_sums_by_hand():
    part = Samples(torch.tensor([[2.0], [-1.0]]), torch.tensor([0, 0]))
    sums = validation_sums(Scores(), part, "cpu")
    assert sums.correct == 1
    assert sums.samples == 2
    expected = math.log(1 + math.exp(-2)) + math.log(1 + math.exp(1))
    assert math.isclose(sums.nll, expected, rel_tol=1e-9)


def test_disagreement_counts_who_alone_is_right():
    part = Samples(torch.zeros(4, 1), torch.tensor([0, 0, 1, 1]))
    first = torch.tensor([[1.0, 0], [1, 0], [1, 0], [0, 1]])  # right, right, wrong, right
    second = torch.tensor([[1.0, 0], [0, 1], [0, 1], [1, 0]])  # right, wrong, right, wrong
    assert disagreement(first, second, part) == Disagreement(2, 1, 4)


def test_decisive_is_more_than_the_root():
    assert is_decisive(4, 0)  # 4 > 2
    assert not is_decisive(1, 0)  # 1 > 1 is wrong
    assert is_decisive(9, 4)  # 5 > √13 = 3.6
    assert not is_decisive(10, 7)
    assert not is_decisive(0, 9)


def test_numbers_are_judged_by_squares():
    part = Samples(torch.tensor([[2.0], [-1.0]]), torch.tensor([1.0, -3.0]))
    assert validation_sums(Scores(), part, "cpu") == ValidationSums(1.0 + 4.0, 0, 2)
    near = torch.tensor([[1.5, 0], [0.0, 0]])
    far = torch.tensor([[3.0, 0], [0.0, 0]])
    assert disagreement(near, far, part) == Disagreement(1, 0, 2)
