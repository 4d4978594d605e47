"""Training in anticipation of fine-tuning: FedPNAS, Eq. 5 and Eq. 7.

    g  = ∇_p L(b, p)                        the first pass; no gradient of b is computed
    p̃  = p − η₁ g                           the step with which a client will fine-tune
    g̃  = ∇_p L(b, p̃)                        the second pass, together with ∇_b L(b, p̃)

The gradient of L(b, p̃) by p is (I − η₁ ∇²L) g̃. The paper replaces the Hessian by the outer product
of g: g̃ − η₁ g (gᵀ g̃), one dot product over all of p. The gradient of b is ∇_b L(b, p̃); the mixed
second derivative is left out, in the paper and here.

If η₁‖g‖² is above 1, the outer product turns the step uphill: its largest value is reported as
`bend`. `align` is the cosine of g and g̃.
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
    """Figures of one minibatch. The gradients themselves are in `.grad` of the parameters."""

    bend: float  # η₁‖g‖²
    align: float | None  # None: one of the two gradients is zero


def anticipate(
    loss_now: Callable[[], torch.Tensor],
    base: Parameters,
    personal: Parameters,
    inner_lr: float,
    hessian: Hessian,
) -> Anticipated:
    """Computes both passes and sets `.grad` of all parameters.

    `loss_now` is called twice, and may draw another route through the network each time.
    """
    personal_tensors = list(personal.values())
    all_tensors = [*base.values(), *personal_tensors]
    with fixed(base):
        first_loss = loss_now()
        first_grads = gradients(first_loss, personal_tensors, create_graph=hessian == "exact")
    with moved(personal_tensors, first_grads, -inner_lr):
        loss = loss_now()
        second_grads = gradients(loss, all_tensors)
    base_grads = second_grads[: len(base)]
    personal_grads = second_grads[len(base) :]
    product = dot(first_grads, personal_grads)
    if hessian == "outer":
        corrected = added(personal_grads, first_grads, -inner_lr * product)
    elif hessian == "exact":
        with second_derivatives():
            hessian_product = hessian_times(first_grads, personal_grads, personal_tensors)
        corrected = added(personal_grads, hessian_product, -inner_lr)
    else:
        corrected = personal_grads
    for parameter, gradient in zip(all_tensors, [*base_grads, *corrected], strict=True):
        parameter.grad = gradient
    squared_norm = dot(first_grads, first_grads)
    product_of_norms = (squared_norm * dot(personal_grads, personal_grads)) ** 0.5
    align = None
    if product_of_norms > 0:
        align = product / product_of_norms
    return Anticipated(inner_lr * squared_norm, align)


@contextmanager
def fixed(parameters: Parameters) -> Iterator[None]:
    """Inside, no gradients of these parameters are computed."""
    trained = []
    for parameter in parameters.values():
        if parameter.requires_grad:
            trained.append(parameter)
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
    """Inside, every parameter is moved along its direction; afterwards it is restored.

    Its tensor is replaced, not overwritten: the graph of the first pass still needs the old values.
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
    """Returns the dot product over all parameters together."""
    product = 0.0
    for left, right in zip(first, second, strict=True):
        if left is not None and right is not None:
            product += float((left.detach() * right.detach()).sum(dtype=torch.float64))
    return product


def added(originals: Gradients, corrections: Gradients, factor: float) -> Gradients:
    """Returns originals + factor · corrections, parameter by parameter.

    A missing one of the two counts as zero; the sum is None if both are missing.
    """
    sums: Gradients = []
    for gradient, correction in zip(originals, corrections, strict=True):
        if correction is None:
            sums.append(gradient)
        elif gradient is None:
            sums.append(factor * correction.detach())
        else:
            sums.append(gradient + factor * correction.detach())
    return sums


def hessian_times(
    first: Gradients, vector: Gradients, parameters: Sequence[torch.Tensor]
) -> Gradients:
    """Returns ∇²L(b, p) times the vector, by differentiating gᵀ·vector; g must have its graph."""
    terms = []
    for gradient, along in zip(first, vector, strict=True):
        if gradient is None or along is None or not gradient.requires_grad:
            continue
        terms.append((gradient * along.detach()).sum())
    if not terms:
        return [None] * len(parameters)
    product = terms[0]
    for term in terms[1:]:
        product = product + term
    return gradients(product, parameters)
