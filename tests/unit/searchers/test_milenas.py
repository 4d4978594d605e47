"""MiLeNAS on a network of one weight and one α, with every number computed by hand.

The score of a sample is w·α·x and the loss is the squared error. At w = 2 and α = 3 both samples
have the score 6:

    training    x = 1, y = 2: L = 16, ∂L/∂w = 2·(6 − 2)·3 = 24, ∂L/∂α = 2·(6 − 2)·2 = 16
    validation  x = 1, y = 5: L = 1,                            ∂L/∂α = 2·(6 − 5)·2 = 4

All numbers are exact in binary, so that results are compared without a tolerance.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedloom.data.samples import Samples
from fedloom.learning.optimizers import Sgd
from fedloom.searchers.milenas import (
    MiLeNAS,
    constant,
    endless,
    share_of_search,
    tracking_norms,
    untracked,
)

TRAIN = Samples(torch.tensor([[1.0]]), torch.tensor([2.0]))
VALIDATION = Samples(torch.tensor([[1.0]]), torch.tensor([5.0]))
NEW_W = 0.5  # 2 − 24/16


class Toy:
    """A searcher of one weight and one α; it counts its forward passes."""

    def __init__(self, *, order="simultaneous", lam=0.5, clip=1e9, **more) -> None:
        self.net = nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            self.net.weight.fill_(2.0)
        self.alpha = {"slot": torch.tensor([3.0], requires_grad=True)}
        self.passes = 0
        w_optimizer = Sgd(dict(self.net.named_parameters()), 1 / 16)
        alpha_optimizer = Sgd(self.alpha, 1 / 8)
        self.searcher = MiLeNAS(
            self.net,
            self.alpha,
            self.forward,
            w_optimizer,
            alpha_optimizer,
            order=order,
            lam=lam,
            clip=clip,
            **more,
        )

    def forward(self, x: torch.Tensor, alpha: list[torch.Tensor]) -> torch.Tensor:
        self.passes += 1
        return self.net(x) * alpha[0]

    def step(self) -> float:
        return self.searcher.step(TRAIN, VALIDATION)

    @property
    def w(self) -> float:
        return self.net.weight.item()

    @property
    def a(self) -> float:
        return self.alpha["slot"].item()


def test_a_simultaneous_step_by_hand():
    """Both gradients are those at the old w and α."""
    toy = Toy(order="simultaneous", lam=0.5)
    assert toy.step() == 16.0
    assert toy.w == NEW_W
    assert toy.a == 0.75  # 3 − (16 + 4/2)/8
    assert toy.passes == 2


def test_a_sequential_step_by_hand():
    """α's gradients are those at the new w = 1/2, where the score is 3/2.

    ∂L_tr/∂α = 2·(3/2 − 2)/2 = −1/2 and ∂L_val/∂α = 2·(3/2 − 5)/2 = −7/2.
    """
    toy = Toy(order="sequential", lam=0.5)
    assert toy.step() == 16.0
    assert toy.w == NEW_W
    assert toy.a == 3.28125  # 3 − (−1/2 − 7/4)/8
    assert toy.passes == 3


@pytest.mark.parametrize(("lam", "alpha"), [(0.0, 1.0), (1.0, 0.5), (2.0, 0.0)])
def test_lambda_multiplies_the_validation_gradient(lam, alpha):
    """3 − (16 + 4λ)/8, while w never sees the validation sample."""
    toy = Toy(lam=lam)
    toy.step()
    assert toy.a == alpha
    assert toy.w == NEW_W


def test_the_clip_acts_on_the_weights_only():
    """A quarter of w's gradient is left, and all of α's."""
    toy = Toy(clip=6.0)
    toy.step()
    assert toy.w == pytest.approx(2 - 6 / 16, abs=1e-6)
    assert toy.a == 0.75


def test_a_clip_that_binds_nothing_changes_no_bit():
    toy = Toy(clip=24.5)
    toy.step()
    assert toy.w == NEW_W


@pytest.mark.parametrize("order", ["simultaneous", "sequential"])
def test_after_backward_sees_the_gradient_of_w_before_it_is_clipped(order):
    seen = []
    toy = Toy(order=order, clip=6.0, after_backward=lambda net: seen.append(net.weight.grad.item()))
    toy.step()
    assert seen == [24.0]


@pytest.mark.parametrize("order", ["simultaneous", "sequential"])
def test_no_gradient_is_left_behind(order):
    toy = Toy(order=order)
    toy.step()
    assert toy.net.weight.grad is None
    assert toy.alpha["slot"].grad is None
    assert toy.net.weight.requires_grad


def test_both_batches_in_one_pass_give_the_same_step():
    """The toy's weight is detached for validation samples, as `ForwardBoth` promises."""
    toy = Toy()

    def both(train, validation, alpha):
        return toy.net(train) * alpha[0], validation * toy.net.weight.detach() * alpha[0]

    toy.searcher.forward_both = both
    assert toy.step() == 16.0
    assert toy.w == NEW_W
    assert toy.a == 0.75
    assert toy.passes == 0


def test_a_network_that_cannot_take_both_batches_takes_one_after_the_other():
    toy = Toy(forward_both=lambda train, validation, alpha: None)
    assert toy.step() == 16.0
    assert (toy.w, toy.a) == (NEW_W, 0.75)
    assert toy.passes == 2


def test_a_sequential_search_never_takes_both_batches_at_once():
    def refuse(train, validation, alpha):
        raise AssertionError("Algorithm 1 needs the new w for α")

    toy = Toy(order="sequential", forward_both=refuse)
    toy.step()
    assert toy.passes == 3


@pytest.mark.parametrize("order", ["simultaneous", "sequential"])
def test_an_alpha_that_no_score_depends_on_stays(order):
    toy = Toy(order=order)
    unused = torch.tensor([7.0], requires_grad=True)
    toy.searcher.alpha.append(unused)
    toy.step()
    assert unused.item() == 7.0
    assert unused.grad is None
    assert toy.w == NEW_W


def test_the_share_of_search_in_one_pass_over_both_batches():
    """Validation samples need two of three products."""
    assert share_of_search(10, 0) == 0.0
    assert share_of_search(0, 10) == 1.0
    assert share_of_search(10, 30) == 60 / 90


def test_constant_weights_train_again_afterwards():
    """Even if the pass fails."""
    weight = torch.ones(1, requires_grad=True)

    def failing_pass() -> None:
        with constant([weight]):
            assert not weight.requires_grad
            raise RuntimeError("in the pass")

    with pytest.raises(RuntimeError, match="in the pass"):
        failing_pass()
    assert weight.requires_grad


def test_norms_without_running_statistics_are_not_tracked():
    """Switching them on after the pass would change the network."""
    tracked = nn.BatchNorm2d(2)
    net = nn.Sequential(tracked, nn.BatchNorm2d(2, track_running_stats=False), nn.Conv2d(2, 2, 1))
    assert tracking_norms(net) == [tracked]


def test_untracked_norms_use_the_batch_and_keep_their_statistics():
    norm = nn.BatchNorm1d(1)
    x = torch.tensor([[1.0], [3.0]])
    with untracked([norm]):
        inside = norm(x)
    assert torch.equal(norm.running_mean, torch.zeros(1))
    assert torch.equal(norm.running_var, torch.ones(1))
    assert norm.num_batches_tracked == 0
    outside = norm(x)
    assert torch.equal(inside, outside)
    assert norm.running_mean.item() == pytest.approx(0.2)  # a tenth of the batch's mean


def test_endless_epochs_have_every_sample_once_and_another_order():
    data = Samples(torch.arange(8.0), torch.arange(8))
    batches = endless(data, 4, torch.Generator().manual_seed(0))
    epochs = []
    for _ in range(3):
        epochs.append(torch.cat([next(batches).y, next(batches).y]).tolist())
    for epoch in epochs:
        assert sorted(epoch) == list(range(8))
    assert epochs[0] != epochs[1]
    assert epochs[1] != epochs[2]


def test_endless_refuses_to_wait_for_a_batch_that_never_comes():
    empty = Samples(torch.zeros(0, 1), torch.zeros(0))
    with pytest.raises(ValueError, match="nothing to validate on"):
        next(endless(empty, 4, torch.Generator()))
