"""Training in anticipation of fine-tuning: FedPNAS, Eq. 5 and Eq. 7.

    g  = ∇_p L(b, p)                        the first pass; b is not differentiated
    p̃  = p − η₁ g                           the step that a client will take by itself
    g̃  = ∇_p L(b, p̃)                        the second pass, together with ∇_b L(b, p̃)

The gradient of L(b, p̃) by p is (I − η₁ ∇²L) g̃. The paper takes the outer product of g for the
Hessian: g̃ − η₁ g (gᵀ g̃), one dot product over all of p. b takes ∇_b L(b, p̃); the mixed second
derivative is left out, in the paper and here.

For η₁‖g‖² above 1 the outer product turns the step uphill: the largest of them is told as `bend`.
`align` is the cosine of g and g̃.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from fedloom.cost.meter import second_derivatives

Hessian = Literal["outer", "none", "exact"]
Parameters = Mapping[str, torch.Tensor]
Gradients = list[torch.Tensor | None]  # None: the loss does not depend on it


@dataclass(frozen=True)
class Anticipated:
    """Of one minibatch; the gradients themselves are left in `.grad`."""

    bend: float  # η₁‖g‖²
    align: float | None  # None: one of the two gradients is zero


def anticipate(
    loss_now: Callable[[], torch.Tensor],
    base: Parameters,
    personal: Parameters,
    inner_lr: float,
    hessian: Hessian,
) -> Anticipated:
    """Two passes: `loss_now` is asked twice, and may draw another way through the network."""
    own = list(personal.values())
    with fixed(base):
        first_loss = loss_now()
        first = gradients(first_loss, own, create_graph=hessian == "exact")
    with moved(own, first, -inner_lr):
        loss = loss_now()
        second = gradients(loss, [*base.values(), *own])
    of_base = second[: len(base)]
    of_personal = second[len(base) :]
    product = dot(first, of_personal)
    if hessian == "outer":
        corrected = added(of_personal, first, -inner_lr * product)
    elif hessian == "exact":
        with second_derivatives():
            curved = hessian_times(first, of_personal, own)
        corrected = added(of_personal, curved, -inner_lr)
    else:
        corrected = of_personal
    for parameter, gradient in zip([*base.values(), *own], [*of_base, *corrected], strict=True):
        parameter.grad = gradient
    squared = dot(first, first)
    norms = (squared * dot(of_personal, of_personal)) ** 0.5
    align = None
    if norms > 0:
        align = product / norms
    return Anticipated(inner_lr * squared, align)


@contextmanager
def fixed(parameters: Parameters) -> Iterator[None]:
    """Inside, nothing is differentiated by them."""
    trained = [parameter for parameter in parameters.values() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def gradients(
    loss: torch.Tensor, parameters: Sequence[torch.Tensor], *, create_graph: bool = False
) -> Gradients:
    return list(torch.autograd.grad(loss, parameters, create_graph=create_graph, allow_unused=True))


@contextmanager
def moved(
    parameters: Sequence[torch.Tensor], directions: Gradients, amount: float
) -> Iterator[None]:
    """Inside, every parameter stands a step along its direction; then it is as it was.

    Its values are exchanged, not overwritten: the graph of the first pass still needs the old ones.
    """
    before = [parameter.data for parameter in parameters]
    for parameter, direction in zip(parameters, directions, strict=True):
        if direction is not None:
            parameter.data = parameter.data + amount * direction.detach()
    try:
        yield
    finally:
        for parameter, values in zip(parameters, before, strict=True):
            parameter.data = values


def dot(first: Gradients, second: Gradients) -> float:
    """Over all parameters together."""
    product = 0.0
    for one, other in zip(first, second, strict=True):
        if one is not None and other is not None:
            product += float((one.detach() * other.detach()).sum(dtype=torch.float64))
    return product


def added(gradient: Gradients, more: Gradients, factor: float) -> Gradients:
    """gradient + factor · more; where there is neither, there is none."""
    sums: Gradients = []
    for one, other in zip(gradient, more, strict=True):
        if other is None:
            sums.append(one)
        elif one is None:
            sums.append(factor * other.detach())
        else:
            sums.append(one + factor * other.detach())
    return sums


def hessian_times(
    first: Gradients, vector: Gradients, parameters: Sequence[torch.Tensor]
) -> Gradients:
    """∇²L(b, p) times the vector, by differentiating gᵀ·vector; g must have its graph."""
    product = None
    for gradient, along in zip(first, vector, strict=True):
        if gradient is None or along is None or not gradient.requires_grad:
            continue
        term = (gradient * along.detach()).sum()
        product = term if product is None else product + term
    if product is None:
        return [None] * len(parameters)
    return gradients(product, parameters)
