"""SGD and Adam that keep their state by parameter name.

They compute the same bits as torch.optim, whose classes we do not use for two reasons. Creating the
first of them imports torch's compiler, which takes 1.4 seconds in every process of ours and, on
Flower, for every message. And they keep their state by parameter object, while ours must outlive
the process, and also a network that drops operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
from torch.optim.adam import adam

Named = Mapping[str, torch.Tensor]


class Optimizer(Protocol):
    memory: dict[str, torch.Tensor]

    def zero_grad(self) -> None: ...

    def step(self) -> None: ...


class Sgd:
    """v ← μ·v + (g + λ·w); w ← w − η·v. Its memory is v, by the parameter's name."""

    def __init__(
        self,
        parameters: Named,
        lr: float,
        *,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        memory: Named | None = None,
    ) -> None:
        self.parameters = dict(parameters)
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.memory: dict[str, torch.Tensor] = {}
        if memory is None:
            return
        for name, parameter in parameters.items():
            if name in memory:
                self.memory[name] = memory[name].to(parameter.device, copy=True)

    def zero_grad(self) -> None:
        forget_gradients(self.parameters)

    @torch.no_grad()
    def step(self) -> None:
        """Moves all parameters at once, in place. It overwrites the gradients.

        The bits are those of torch.optim.SGD.
        """
        gradients = gradients_of(self.parameters)
        if not gradients:
            return
        moving = entries(self.parameters, gradients)
        if self.weight_decay:
            torch._foreach_add_(list(gradients.values()), moving, alpha=self.weight_decay)
        if not self.momentum:
            torch._foreach_add_(moving, list(gradients.values()), alpha=-self.lr)
            return
        self._accelerate(gradients)
        torch._foreach_add_(moving, entries(self.memory, gradients), alpha=-self.lr)

    def _accelerate(self, gradients: Named) -> None:
        """Sets v ← μ·v + g. The first velocity of a parameter is its gradient itself."""
        moved_before = [name for name in gradients if name in self.memory]
        if moved_before:
            velocities = entries(self.memory, moved_before)
            torch._foreach_mul_(velocities, self.momentum)
            torch._foreach_add_(velocities, entries(gradients, moved_before))
        for name, gradient in gradients.items():
            if name not in self.memory:
                self.memory[name] = gradient
                self.parameters[name].grad = None


class Adam:
    """Kingma and Ba 2015. Its memory is `step/NAME`, `exp_avg/NAME` and `exp_avg_sq/NAME`."""

    def __init__(
        self,
        parameters: Named,
        lr: float,
        *,
        betas: tuple[float, float],
        weight_decay: float = 0.0,
        memory: Named | None = None,
    ) -> None:
        self.parameters = dict(parameters)
        self.lr = lr
        self.betas = betas
        self.weight_decay = weight_decay
        self.memory: dict[str, torch.Tensor] = {}
        if memory is None:
            return
        for name, parameter in parameters.items():
            if f"step/{name}" not in memory:
                continue
            self.memory[f"step/{name}"] = memory[f"step/{name}"].to("cpu", copy=True)
            for moment in ("exp_avg", "exp_avg_sq"):
                key = f"{moment}/{name}"
                self.memory[key] = memory[key].to(parameter.device, copy=True)

    def zero_grad(self) -> None:
        forget_gradients(self.parameters)

    @torch.no_grad()
    def step(self) -> None:
        gradients = gradients_of(self.parameters)
        for name in gradients:
            if f"step/{name}" not in self.memory:
                self.memory[f"step/{name}"] = torch.tensor(0.0)
                self.memory[f"exp_avg/{name}"] = torch.zeros_like(self.parameters[name])
                self.memory[f"exp_avg_sq/{name}"] = torch.zeros_like(self.parameters[name])
        adam(
            entries(self.parameters, gradients),
            list(gradients.values()),
            self._memories("exp_avg", gradients),
            self._memories("exp_avg_sq", gradients),
            [],
            self._memories("step", gradients),
            lr=self.lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    def _memories(self, kind: str, names: Iterable[str]) -> list[torch.Tensor]:
        return [self.memory[f"{kind}/{name}"] for name in names]


@torch.no_grad()
def clip_gradients(parameters: Iterable[torch.Tensor], most: float) -> None:
    """Scales all gradients so that their joint norm is at most `most`.

    The bits are those of torch.nn.utils.clip_grad_norm_, which takes three times as long because it
    allows for networks with several devices and data types.
    """
    gradients = [weight.grad for weight in parameters if weight.grad is not None]
    if not gradients:
        return
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    scale = norm.add_(1e-6).reciprocal_().mul_(most).clamp_(max=1.0)
    torch._foreach_mul_(gradients, scale)


def entries(tensors: Named, names: Iterable[str]) -> list[torch.Tensor]:
    """Returns the tensors of these names, in the order of the names."""
    return [tensors[name] for name in names]


def gradients_of(parameters: Named) -> dict[str, torch.Tensor]:
    """Returns the gradients of the parameters that have one.

    An operation that is not on the path has none, and its parameters stay as they are.
    """
    gradients = {}
    for name, parameter in parameters.items():
        if parameter.grad is not None:
            gradients[name] = parameter.grad
    return gradients


def forget_gradients(parameters: Named) -> None:
    """Sets gradients to None, not to zero: momentum must not move a parameter without gradient."""
    for parameter in parameters.values():
        parameter.grad = None


def remembered(optimizer: Optimizer) -> dict[str, torch.Tensor]:
    """Returns the optimiser's memory to be stored. The optimiser must make no further step."""
    return {name: tensor.detach().cpu() for name, tensor in optimizer.memory.items()}
