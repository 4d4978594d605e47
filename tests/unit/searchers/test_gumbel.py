"""Eq. 3: one operation is drawn, and counts fully; its gradient is that of the softmax."""

import torch

from fedloom.rng import torch_rng
from fedloom.searchers.gumbel import annealed, gumbel_noise, straight_through


def test_by_hand():
    """π = (¼, ¾), g = (½, −½), τ = ½."""
    logits = torch.tensor([0.25, 0.75], dtype=torch.float64).log().requires_grad_()
    noise = torch.tensor([0.5, -0.5], dtype=torch.float64)
    soft = torch.softmax((torch.log_softmax(logits, 0) + noise) / 0.5, 0)
    torch.testing.assert_close(
        soft, torch.tensor([0.4508530604, 0.5491469396], dtype=torch.float64), rtol=0, atol=1e-9
    )
    drawn = straight_through(torch.log_softmax(logits, 0), noise, 0.5)
    assert drawn.ops == 1
    assert drawn.factors == 1.0
    drawn.factors.backward()
    expected = torch.tensor([-0.4951691567, 0.4951691567], dtype=torch.float64)
    torch.testing.assert_close(logits.grad, expected, rtol=0, atol=1e-9)


def test_factors_are_exactly_one():
    generator = torch_rng(0, "noise")
    log_pi = torch.log_softmax(torch.randn(500, 9, generator=generator), dim=1)
    drawn = straight_through(log_pi, gumbel_noise((500, 9), generator), 0.1)
    assert torch.equal(drawn.factors, torch.ones(500))


def test_operations_are_drawn_by_their_probabilities():
    pi = torch.tensor([0.1, 0.6, 0.3])
    noise = gumbel_noise((40_000, 3), torch_rng(1, "noise"))
    drawn = straight_through(pi.log(), noise, 1.0)
    shares = torch.bincount(drawn.ops, minlength=3) / 40_000
    torch.testing.assert_close(shares, pi, rtol=0, atol=0.01)


def test_the_temperature_falls_geometrically():
    assert annealed(1.0, 0.1, 0.0) == 1.0
    assert abs(annealed(1.0, 0.1, 0.5) - 0.1**0.5) < 1e-12
    assert abs(annealed(1.0, 0.1, 1.0) - 0.1) < 1e-12
