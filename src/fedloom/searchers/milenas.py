"""MiLeNAS: He, Ye, Shen, Zhang, CVPR 2020, first order, as FedNAS uses it (Eq. 4).

    w ← w − η_w ∇_w L_tr(w, α)
    α ← α − η_α (∇_α L_tr(w, α) + λ ∇_α L_val(w, α))

`simultaneous` is Eq. 4 as printed: both gradients at the old w, which takes two backward passes,
because one over the training batch gives ∇_w and ∇_α together. `sequential` is FedNAS's Algorithm
1: w first, then α at the new w, which takes three. The pass over the validation batch never
computes weight gradients, and does not change BN's running statistics, which are those of training
samples. A network that supports it (`forward_both`) computes both passes of Eq. 4 at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedloom.cost.meter import partly_searching, searching
from fedloom.cost.repeated import RepeatedSteps
from fedloom.learning.loss import training_loss
from fedloom.learning.optimizers import Optimizer, clip_gradients

if TYPE_CHECKING:
    from fedloom.data.samples import Samples

Alpha = Mapping[str, torch.Tensor]  # a float32 vector for every slot, by the slot's name
UpdateOrder = Literal["simultaneous", "sequential"]
Gradients = Sequence[torch.Tensor | None]  # None: the loss does not depend on it
Forward = Callable[[torch.Tensor, Sequence[torch.Tensor]], torch.Tensor]  # inputs and α → scores
# both batches' inputs and α → both batches' scores; None: they must be computed one by one
ForwardBoth = Callable[
    [torch.Tensor, torch.Tensor, Sequence[torch.Tensor]], tuple[torch.Tensor, torch.Tensor] | None
]


@dataclass(frozen=True)
class StepGradients:
    """The gradients of Eq. 4, and the training loss."""

    loss: torch.Tensor
    of_w: Gradients
    of_alpha: Gradients  # ∇_α L_tr + λ ∇_α L_val


class MiLeNAS:
    """One network, its α, and the optimisers of both."""

    def __init__(
        self,
        net: nn.Module,
        alpha: Alpha,
        forward: Forward,
        w_optimizer: Optimizer,
        alpha_optimizer: Optimizer,
        *,
        lam: float,
        clip: float,
        order: UpdateOrder,
        forward_both: ForwardBoth | None = None,
        after_backward: Callable[[nn.Module], None] | None = None,
    ) -> None:
        self.net = net
        self.forward = forward
        self.forward_both = forward_both
        self.order = order
        self.weights = list(net.parameters())
        self.alpha = list(alpha.values())
        self.norms = tracking_norms(net)
        self.w_optimizer = w_optimizer
        self.alpha_optimizer = alpha_optimizer
        self.lam = lam
        self.clip = clip
        self.after_backward = after_backward
        parameters = dict(net.named_parameters())
        self.passes_for_both = RepeatedSteps(net, parameters, ("search", "w and α"))
        self.passes_at_once = RepeatedSteps(net, parameters, ("search", "both batches"))
        self.passes_for_w = RepeatedSteps(net, parameters, ("search", "w"))
        self.passes_for_alpha = RepeatedSteps(net, parameters, ("search", "α"))

    def step(self, train: Samples, validation: Samples) -> float:
        """Takes one step on one minibatch of each kind, and returns the training loss."""
        if self.order == "sequential":
            return self._sequential_step(train, validation)
        gradients = self._gradients_at_once(train, validation)
        if gradients is None:
            gradients = self._gradients_in_turn(train, validation)
        self._move_w(gradients.of_w)
        self._move_alpha(gradients.of_alpha)
        return float(gradients.loss.detach())

    def _sequential_step(self, train: Samples, validation: Samples) -> float:
        with self.passes_for_w.metered(train.x.shape):
            loss = self._loss(train)
            of_w = torch.autograd.grad(loss, self.weights, allow_unused=True)
        self._move_w(of_w)
        of_alpha = self._alpha_gradient(train)
        of_validation = self._validation_gradient(validation)
        self._move_alpha(self._weighed(of_alpha, of_validation))
        return float(loss.detach())

    def _gradients_at_once(self, train: Samples, validation: Samples) -> StepGradients | None:
        """Computes the gradients by one pass over both batches; None: the network cannot."""
        if self.forward_both is None:
            return None
        shapes = (*train.x.shape, *validation.x.shape)
        share = share_of_search(len(train.x), len(validation.x))
        with partly_searching(share), self.passes_at_once.metered(shapes):
            scores = self.forward_both(train.x, validation.x, self.alpha)
            if scores is None:
                return None
            loss = training_loss(scores[0], train)
            both_losses = loss + self.lam * training_loss(scores[1], validation)
            return self._all_gradients(loss, both_losses)

    def _gradients_in_turn(self, train: Samples, validation: Samples) -> StepGradients:
        """Computes the gradients by one pass over each batch."""
        with self.passes_for_both.metered(train.x.shape):
            loss = self._loss(train)
            of_train = self._all_gradients(loss, loss)
        of_validation = self._validation_gradient(validation)
        of_alpha = self._weighed(of_train.of_alpha, of_validation)
        return replace(of_train, of_alpha=of_alpha)

    def _all_gradients(self, loss: torch.Tensor, total: torch.Tensor) -> StepGradients:
        gradients = torch.autograd.grad(total, [*self.weights, *self.alpha], allow_unused=True)
        count = len(self.weights)
        return StepGradients(loss, gradients[:count], gradients[count:])

    def _weighed(self, train: Gradients, validation: Gradients) -> Gradients:
        """Returns ∇_α L_tr + λ ∇_α L_val."""
        gradients: list[torch.Tensor | None] = []
        for of_train, of_validation in zip(train, validation, strict=True):
            if of_train is None or of_validation is None:
                gradients.append(None)
            else:
                gradients.append(of_train + self.lam * of_validation)
        return gradients

    def _loss(self, batch: Samples) -> torch.Tensor:
        return training_loss(self.forward(batch.x, self.alpha), batch)

    def _alpha_gradient(self, batch: Samples) -> Gradients:
        with searching(), constant(self.weights), self.passes_for_alpha.metered(batch.x.shape):
            return torch.autograd.grad(self._loss(batch), self.alpha, allow_unused=True)

    def _validation_gradient(self, batch: Samples) -> Gradients:
        with untracked(self.norms):
            return self._alpha_gradient(batch)

    def _move_w(self, gradients: Gradients) -> None:
        """Takes a step on w. Only the gradient of the weights is clipped, not that of α."""
        for parameter, gradient in zip(self.weights, gradients, strict=True):
            parameter.grad = gradient
        if self.after_backward is not None:
            self.after_backward(self.net)
        clip_gradients(self.weights, self.clip)
        self.w_optimizer.step()
        self.w_optimizer.zero_grad()

    def _move_alpha(self, gradients: Gradients) -> None:
        for row, gradient in zip(self.alpha, gradients, strict=True):
            row.grad = gradient
        self.alpha_optimizer.step()
        self.alpha_optimizer.zero_grad()


def share_of_search(train: int, validation: int) -> float:
    """Returns the share of the search in the MACs of a pass over both kinds of samples.

    The three products of a layer (the forward one and the gradients of inputs and of weights) cost
    the same. Validation samples need only the first two, because weights do not learn from them.
    """
    return 2 * validation / (3 * train + 2 * validation)


@contextmanager
def constant(parameters: Sequence[torch.Tensor]) -> Iterator[None]:
    """Inside, no gradients of these parameters are computed, which saves half a backward pass."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def tracking_norms(net: nn.Module) -> list[_BatchNorm]:
    """Returns the BN layers that update running statistics."""
    norms = []
    for module in net.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            norms.append(module)
    return norms


@contextmanager
def untracked(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Inside, these layers normalise as before, but do not update their running statistics."""
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


def endless(data: Samples, size: int, generator: torch.Generator) -> Iterator[Samples]:
    """Yields minibatches of shuffled epochs without end."""
    if not len(data):
        raise ValueError("there is nothing to validate on")
    while True:
        yield from data.batches(size, generator)
