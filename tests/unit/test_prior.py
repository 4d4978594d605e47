"""A client's prior: its numbers, and that training and answering see the same scores."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedloom.errors import FedloomError
from fedloom.learning.prior import fold_shift, log_prior, score_layer, shifted


def network(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, classes)).double()


def test_the_prior_in_numbers():
    prior = log_prior(torch.tensor([0, 0, 0, 2]), 3)
    expected = [math.log(3.5 / 5.5), math.log(0.5 / 5.5), math.log(1.5 / 5.5)]
    assert prior.tolist() == pytest.approx(expected, abs=1e-12)
    assert prior.exp().sum().item() == pytest.approx(1.0)


def test_without_samples_all_classes_are_equally_likely():
    assert log_prior(torch.empty(0, dtype=torch.int64), 4).exp().tolist() == pytest.approx(
        [0.25] * 4
    )


def test_one_class_is_likely_and_the_others_stay_possible():
    prior = log_prior(torch.zeros(9, dtype=torch.int64), 2)
    assert prior.exp().tolist() == pytest.approx([0.95, 0.05])


def test_shifted_and_folded_scores_are_the_same():
    net = network()
    x = torch.randn(7, 4, dtype=torch.float64)
    shift = log_prior(torch.tensor([1, 1, 2]), 3)
    plain = net(x)
    with shifted(net, shift):
        inside = net(x)
    assert torch.equal(net(x), plain)  # the shift is gone
    torch.testing.assert_close(inside, plain + shift, rtol=0, atol=1e-14)
    fold_shift(net, shift)
    torch.testing.assert_close(net(x), inside, rtol=0, atol=1e-14)


def test_no_shift_changes_nothing():
    net = network()
    before = net[2].bias.clone()
    with shifted(net, None):
        pass
    fold_shift(net, None)
    assert torch.equal(net[2].bias, before)


def test_the_shift_goes_after_an_error_too():
    net = network()
    with pytest.raises(RuntimeError), shifted(net, torch.ones(3)):
        raise RuntimeError
    assert not net[2]._forward_hooks


def test_what_is_learnt_is_the_network_without_the_shift():
    """The gradient of the shifted loss, by hand: softmax(scores + shift) less the label."""
    net = network()
    x = torch.randn(1, 4, dtype=torch.float64)
    shift = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
    with shifted(net, shift):
        functional.cross_entropy(net(x), torch.tensor([1])).backward()
    expected = (net(x) + shift).softmax(1)[0].detach()
    expected[1] -= 1
    torch.testing.assert_close(net[2].bias.grad, expected)


def test_a_network_without_a_linear_end_is_refused():
    with pytest.raises(
        FedloomError, match=r"ends in a fully connected layer.*none with 3 outputs.*prior=off"
    ):
        score_layer(nn.Conv2d(1, 3, 3), 3)
