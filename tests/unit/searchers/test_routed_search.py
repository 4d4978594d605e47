"""What keeps samplers from sending every sample the same way."""

import math

import pytest
import torch

from fedloom.searchers.routed_search import information

SURE = 1 - 3e-9


def log_pi(*rows):
    """One edge: a row of probabilities for every sample."""
    return torch.tensor(rows, dtype=torch.float64).log().unsqueeze(1)


@pytest.mark.parametrize(
    ("rows", "nats"),
    [
        ([(0.5, 0.5), (0.5, 0.5)], 0.0),  # nothing is chosen
        ([(SURE, 1 - SURE), (SURE, 1 - SURE)], 0.0),  # all take one way
        ([(SURE, 1 - SURE), (1 - SURE, SURE)], math.log(2)),  # each is sure, both are taken
        ([(0.75, 0.25), (0.25, 0.75)], 0.1308120),
    ],
)
def test_what_a_sample_tells_of_its_way(rows, nats):
    assert float(information([log_pi(*rows)])) == pytest.approx(nats, abs=1e-6)


def test_edges_count_the_same_wherever_they_are():
    """Two cells, of one edge and of two."""
    sure = log_pi((SURE, 1 - SURE), (1 - SURE, SURE))
    unsure = log_pi((0.5, 0.5), (0.5, 0.5))
    both = torch.cat([unsure, unsure], dim=1)
    assert float(information([sure, both])) == pytest.approx(math.log(2) / 3, abs=1e-6)


def test_its_gradient_parts_samples_that_lean_apart():
    logits = torch.tensor([[[0.1, 0.0]], [[0.0, 0.1]]], requires_grad=True)
    information([torch.log_softmax(logits, dim=-1)]).backward()
    assert logits.grad[0, 0, 0] > 0 > logits.grad[0, 0, 1]
    assert logits.grad[1, 0, 0] < 0 < logits.grad[1, 0, 1]
