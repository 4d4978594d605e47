"""SGD and Adam whose memory is named by parameter.

The arithmetic is that of torch.optim, to the bit. Its classes are not used for two reasons: making the
first of them imports torch's compiler, 1.4 seconds in every process of ours and, on Flower, for every message; and
their memory is keyed by object, where ours must outlive the process and a network that drops operations.
"""

from __future__ import annotations

from collections.abc import Mapping
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
        self, parameters: Named, lr: float, *, momentum: float = 0.0, weight_decay: float = 0.0,
        memory: Named | None = None,
    ) -> None:  # fmt: skip
        self.parameters, self.lr, self.momentum, self.weight_decay = dict(parameters), lr, momentum, weight_decay
        found = {} if memory is None else memory
        self.memory = {
            name: found[name].to(value.device, copy=True) for name, value in parameters.items() if name in found
        }

    def zero_grad(self) -> None:
        forget_gradients(self.parameters)

    @torch.no_grad()
    def step(self) -> None:
        """In place and for all parameters at once; gradients are used up. The bits are torch.optim.SGD's."""
        gradients = gradients_of(self.parameters)
        if not gradients:
            return
        moved = [self.parameters[name] for name in gradients]
        if self.weight_decay:
            torch._foreach_add_(list(gradients.values()), moved, alpha=self.weight_decay)
        if not self.momentum:
            torch._foreach_add_(moved, list(gradients.values()), alpha=-self.lr)
            return
        known = [name for name in gradients if name in self.memory]
        if known:
            velocities = [self.memory[name] for name in known]
            torch._foreach_mul_(velocities, self.momentum)
            torch._foreach_add_(velocities, [gradients[name] for name in known])
        for name, gradient in gradients.items():
            if name not in self.memory:  # the first velocity is the gradient itself
                self.memory[name] = gradient
                self.parameters[name].grad = None
        torch._foreach_add_(moved, [self.memory[name] for name in gradients], alpha=-self.lr)


class Adam:
    """Kingma and Ba 2015. Its memory: `step/NAME`, `exp_avg/NAME`, `exp_avg_sq/NAME`."""

    def __init__(
        self, parameters: Named, lr: float, *, betas: tuple[float, float], weight_decay: float = 0.0,
        memory: Named | None = None,
    ) -> None:  # fmt: skip
        self.parameters, self.lr, self.betas, self.weight_decay = dict(parameters), lr, betas, weight_decay
        found = {} if memory is None else memory
        self.memory: dict[str, torch.Tensor] = {}
        for name, value in parameters.items():
            if f"step/{name}" in found:
                self.memory[f"step/{name}"] = found[f"step/{name}"].to("cpu", copy=True)
                for part in ("exp_avg", "exp_avg_sq"):
                    self.memory[f"{part}/{name}"] = found[f"{part}/{name}"].to(value.device, copy=True)

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
        kept = ([self.memory[f"{part}/{name}"] for name in gradients] for part in ("exp_avg", "exp_avg_sq", "step"))
        means, squares, steps = kept
        adam(
            [self.parameters[name] for name in gradients], list(gradients.values()), means, squares, [], steps,
            lr=self.lr, beta1=self.betas[0], beta2=self.betas[1], weight_decay=self.weight_decay, eps=1e-8,
            amsgrad=False, maximize=False,
        )  # fmt: skip


def gradients_of(parameters: Named) -> dict[str, torch.Tensor]:
    """Of those that have one: an operation off the path has none, and stays where it is."""
    return {name: value.grad for name, value in parameters.items() if value.grad is not None}


def forget_gradients(parameters: Named) -> None:
    """None, not zeros: momentum must not move what has no gradient."""
    for value in parameters.values():
        value.grad = None


def remembered(optimizer: Optimizer) -> dict[str, torch.Tensor]:
    """Its memory, to be kept: the optimiser must make no further step."""
    return {name: value.detach().cpu() for name, value in optimizer.memory.items()}
