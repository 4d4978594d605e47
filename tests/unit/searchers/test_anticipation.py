"""Eq. 5 by hand, in float64."""

import pytest
import torch

from fedloom.cost.meter import Meter
from fedloom.federation.protocol.aggregate import aggregate
from fedloom.searchers.anticipation import anticipate
from fedloom.types import Order, Reply


def numbers(*values):
    return [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values]


def stepped(parameters, lr):
    return [float(parameter.detach() - lr * parameter.grad) for parameter in parameters]


@pytest.mark.parametrize(
    ("hessian", "wanted"), [("outer", 1.24976), ("none", 1.132), ("exact", 1.16144)]
)
def test_a_product_of_two_numbers(hessian, wanted):
    """L = ½(b·p − y)², b = 2, p = 1.5, y = 1: g = 4, p̃ = 1.42, g̃ = 3.68."""
    b, p = numbers(2.0, 1.5)
    result = anticipate(lambda: (b * p - 1) ** 2 / 2, {"b": b}, {"p": p}, 0.02, hessian)
    base, personal = stepped([b, p], 0.1)
    assert personal == pytest.approx(wanted, abs=1e-9)
    assert base == pytest.approx(1.73872, abs=1e-9)
    assert result.bend == pytest.approx(0.02 * 16)
    assert result.align == pytest.approx(1.0)
    assert p.item() == 1.5  # it was moved back, to the bit


@pytest.mark.parametrize(
    ("hessian", "wanted"),
    [("outer", (0.892, 0.284)), ("none", (0.82, 0.14)), ("exact", (0.838, 0.176))],
)
def test_one_dot_product_over_weights_and_logits(hessian, wanted):
    """L = ½(b(p₁ + 2p₂))²; a product for each group apart would give (0.8344, 0.2552)."""
    b, weight, logit = numbers(1.0, 1.0, 0.5)

    def loss():
        return (b * (weight + 2 * logit)) ** 2 / 2

    anticipate(loss, {"b": b}, {"weight": weight, "logit": logit}, 0.02, hessian)
    base, *personal = stepped([b, weight, logit], 0.1)
    assert personal == pytest.approx(wanted, abs=1e-9)
    assert base == pytest.approx(0.676, abs=1e-9)


def test_the_exact_hessian_of_a_network():
    """Against autograd through the inner step, on a small network with a nonlinearity."""
    torch.manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64)
    base = torch.nn.Linear(3, 4, dtype=torch.float64)
    personal = torch.nn.Linear(4, 2, dtype=torch.float64)
    labels = torch.tensor([0, 1, 1, 0, 1, 0])

    def loss_of(weight, bias):
        scores = torch.nn.functional.linear(torch.tanh(base(x)), weight, bias)
        return torch.nn.functional.cross_entropy(scores, labels)

    parameters = [personal.weight, personal.bias]
    inner = torch.autograd.grad(loss_of(*parameters), parameters, create_graph=True)
    tuned = [
        parameter - 0.3 * gradient for parameter, gradient in zip(parameters, inner, strict=True)
    ]
    expected = torch.autograd.grad(loss_of(*tuned), parameters)
    named = dict(personal.named_parameters())
    anticipate(lambda: loss_of(*parameters), dict(base.named_parameters()), named, 0.3, "exact")
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def test_uphill():
    """b = p = 2, y = 1, both rates 0.1."""
    b, p = numbers(2.0, 2.0)
    result = anticipate(lambda: (b * p - 1) ** 2 / 2, {"b": b}, {"p": p}, 0.1, "outer")
    assert stepped([p], 0.1) == pytest.approx([2.936], abs=1e-9)
    assert result.bend == pytest.approx(3.6, abs=1e-9)


def test_a_parameter_off_both_ways_has_no_gradient():
    b, p, off = numbers(1.0, 1.0, 1.0)
    anticipate(lambda: (b * p) ** 2, {"b": b}, {"p": p, "off": off}, 0.1, "outer")
    assert off.grad is None


@pytest.mark.parametrize("hessian", ["outer", "none", "exact"])
def test_ways_that_differ_between_the_passes(hessian):
    """The first pass takes one number, the second another: each has its part of the gradient."""
    b, first, second = numbers(1.0, 2.0, 3.0)
    factors = iter([first, second])
    anticipate(
        lambda: (b * next(factors)) ** 2 / 2,
        {"b": b},
        {"first": first, "second": second},
        0.1,
        hessian,
    )
    assert float(second.grad) == pytest.approx(3.0)  # gᵀg̃ is 0: nothing is corrected
    assert first.grad is None or float(first.grad) == 0
    assert float(b.grad) == pytest.approx(9.0)


def test_the_base_is_not_differentiated_in_the_first_pass():
    b, p = numbers(2.0, 1.5)
    seen = []

    def loss():
        seen.append(b.requires_grad)
        return (b * p) ** 2

    anticipate(loss, {"b": b}, {"p": p}, 0.1, "none")
    assert seen == [False, True]


def test_two_clients_and_the_plain_mean_of_their_steps():
    """y = 1 and y = 4.5, rates 0.02 and 0.1; a reply weighs 1, whatever its client's size."""
    start = {
        "b": torch.tensor(2.0, dtype=torch.float64),
        "p": torch.tensor(1.5, dtype=torch.float64),
    }
    replies = []
    for client, y in enumerate((1.0, 4.5)):
        b, p = numbers(2.0, 1.5)
        anticipate(lambda b=b, p=p, y=y: (b * p - y) ** 2 / 2, {"b": b}, {"p": p}, 0.02, "outer")
        base, personal = stepped([b, p], 0.1)
        tensors = {
            "b": torch.tensor(base, dtype=torch.float64),
            "p": torch.tensor(personal, dtype=torch.float64),
        }
        replies.append(Reply(client, tensors, 1.0))
    alone = replies[1].tensors
    assert (float(alone["p"]), float(alone["b"])) == pytest.approx((1.72632, 2.21528), abs=1e-9)
    orders = [Order(client, "search", start) for client in range(2)]
    together = aggregate(start, replies, orders)
    assert (float(together["p"]), float(together["b"])) == pytest.approx((1.48804, 1.977), abs=1e-9)


def test_the_products_of_the_exact_hessian_are_counted():
    """A layer of M = 6·4·2 products behind a fixed base of B = 6·3·4.

    Both passes: B + M forward. First gradient: M for the weight. Second: M for the weight, M
    inwards, B for the base's weight. The Hessian's: M from the gradient of the weight to that of
    the scores, M from the scores to the weight.
    """
    x = torch.randn(6, 3)
    base = torch.nn.Linear(3, 4, bias=False)
    personal = torch.nn.Linear(4, 2, bias=False)
    parameters = dict(personal.named_parameters())
    counts = {}
    for hessian in ("none", "outer", "exact"):
        with Meter() as meter:
            anticipate(
                lambda: personal(base(x)).square().mean(),
                dict(base.named_parameters()),
                parameters,
                0.1,
                hessian,
            )
        counts[hessian] = meter.macs
    base_macs = 6 * 3 * 4
    own_macs = 6 * 4 * 2
    plain = 2 * (base_macs + own_macs) + own_macs + 2 * own_macs + base_macs
    assert counts == {"none": plain, "outer": plain, "exact": plain + 2 * own_macs}
