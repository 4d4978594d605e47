"""Computes several architectures of one network on one batch, and what they share only once.

The forward passes are recorded first, step by step. A step is identified by its work and its
inputs, so the same step of two architectures is recorded once, and two architectures diverge only
where their operations do. Then the steps are computed in order, and a result is kept for as long as
a later step needs it: memory holds one pass, and what other passes share with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from fedloom.spaces.supernet import Supernet
from fedloom.types import Arch


@dataclass(frozen=True)
class Later:
    """A placeholder for the tensor that a recorded step will compute."""

    step: int


class Step(NamedTuple):
    work: Callable[..., torch.Tensor]
    inputs: tuple[Any, ...]


class Joint:
    """`joint(x)` yields the scores of each architecture, bit for bit those it would give alone."""

    def __init__(self, net: Supernet, archs: Sequence[Arch]) -> None:
        self.steps: list[Step] = []
        self.results: dict[Step, Later] = {}  # the placeholder of every recorded step
        images = self._later(lambda: torch.empty(0))  # step 0 stands for the images of a call
        self.answers = [net.flow(self._later, images, arch) for arch in archs]
        self.uses = [0] * len(self.steps)
        for step in self.steps:
            self._count(step.inputs)
        self._count(self.answers)

    def _later(self, work: Callable[..., torch.Tensor], *inputs: Any) -> Later:
        step = Step(work, inputs)
        if step not in self.results:
            self.results[step] = Later(len(self.steps))
            self.steps.append(step)
        return self.results[step]

    def _count(self, inputs: Sequence[Any]) -> None:
        for value in inputs:
            if isinstance(value, Later):
                self.uses[value.step] += 1

    def __call__(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        results = {0: x}  # by the number of the step
        uses_to_come = list(self.uses)
        next_step = 1

        def use(value: Any) -> Any:
            if not isinstance(value, Later):
                return value
            uses_to_come[value.step] -= 1
            if uses_to_come[value.step] == 0:
                return results.pop(value.step)
            return results[value.step]

        for answer in self.answers:
            for number in range(next_step, answer.step + 1):
                step = self.steps[number]
                results[number] = step.work(*[use(value) for value in step.inputs])
            next_step = max(next_step, answer.step + 1)
            yield use(answer)
