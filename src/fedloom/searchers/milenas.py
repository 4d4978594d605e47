"""MiLeNAS: He, Ye, Shen, Zhang, CVPR 2020, first order, as FedNAS uses it (Eq. 4).

    w ← w − η_w ∇_w L_tr(w, α)
    α ← α − η_α (∇_α L_tr(w, α) + λ ∇_α L_val(w, α))

`simultaneous` is Eq. 4 as printed: both gradients at the old w, which takes two backward passes,
because one over the training batch gives ∇_w and ∇_α together. `sequential` is FedNAS's Algorithm
1: w first, then α at the new w, which takes three. The pass over the validation batch never
computes weight gradients, and leaves BN's running statistics alone: they are those of training
samples. A network that can tell the two batches apart takes both of Eq. 4's passes at once.
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
# both batches' inputs and α → both batches' scores; None: they must go one after the other
ForwardBoth = Callable[
    [torch.Tensor, torch.Tensor, Sequence[torch.Tensor]], tuple[torch.Tensor, torch.Tensor] | None
]


@dataclass(frozen=True)
class StepGradients:
    """Of Eq. 4, with the training loss."""

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
        """One minibatch of each; the training loss."""
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
        """By one pass over both batches; None: the network cannot."""
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
        """By a pass over each batch."""
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
        """λ multiplies the validation gradient."""
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
        """The clip is on the weights' gradient."""
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
    """Of the MACs of a pass over so many training and validation samples, those of searching.

    A layer's three products, the forward one and the gradients of inputs and of weights, cost the
    same. Validation samples need the first two, because weights do not learn from them.
    """
    return 2 * validation / (3 * train + 2 * validation)


@contextmanager
def constant(parameters: Sequence[torch.Tensor]) -> Iterator[None]:
    """Inside, no gradient is computed for these: about half of a backward pass."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def tracking_norms(net: nn.Module) -> list[_BatchNorm]:
    """The layers that note down statistics of what they see."""
    norms = []
    for part in net.modules():
        if isinstance(part, _BatchNorm) and part.track_running_stats:
            norms.append(part)
    return norms


@contextmanager
def untracked(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Inside, these normalise as they do, but take no note of what they see."""
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


def endless(data: Samples, size: int, generator: torch.Generator) -> Iterator[Samples]:
    """Shuffled epochs of minibatches, one after the other."""
    if not len(data):
        raise ValueError("there is nothing to validate on")
    while True:
        yield from data.batches(size, generator)
