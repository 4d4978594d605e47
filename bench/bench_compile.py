"""Does `torch.compile` pay for a client's training?

    python bench/bench_compile.py

It measures the CPU seconds of a training step of one shape, plain and compiled, in turns, with one
thread and channels last; and those of the first compiled step, in which torch generates and
compiles C++. Every worker process compiles for itself. The smaller last batch of an epoch would be
another shape to compile; it is left out here, in favour of compiling.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from fedloom.allocator import settle
from fedloom.learning.optimizers import Sgd
from fedloom.networks import NETWORKS
from measuring import heading

JOBS = {
    "small CNN, 3×32×32, batch 20": ("cnn", (3, 32, 32), 20),
    "small CNN, 1×8×8, batch 32": ("cnn", (1, 8, 8), 32),
    "ResNet-18 of an eighth, 3×32×32, batch 20": ("resnet18", (3, 32, 32), 20),
}
WIDTHS = {"cnn": 1.0, "resnet18": 0.125}
REPEATS = 60


def main() -> None:
    heading(
        "torch.compile: CPU milliseconds of a training step, CPU seconds of the first compiled one"
    )
    torch.set_num_threads(1)
    settle()
    print(f"{'':44} {'plain':>7} {'compiled':>9} {'gain':>7} {'first':>8}")
    for name, (network, shape, batch) in JOBS.items():
        compare(name, network, shape, batch)


@dataclass(frozen=True)
class Training:
    forward: Callable[[torch.Tensor], torch.Tensor]
    optimizer: Sgd
    x: torch.Tensor
    y: torch.Tensor

    @classmethod
    def of(cls, network: str, shape: tuple[int, ...], batch: int, *, compiled: bool) -> Training:
        torch.manual_seed(0)
        net: nn.Module = NETWORKS.get(network)(shape, 10, WIDTHS[network])
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = Sgd(dict(net.named_parameters()), 0.01, momentum=0.9)
        forward: Callable[[torch.Tensor], torch.Tensor] = net
        if compiled:
            forward = torch.compile(net)
        return cls(forward, optimizer, torch.randn(batch, *shape), torch.randint(10, (batch,)))

    def step(self) -> float:
        """Make a training step, and return its CPU seconds."""
        started = time.process_time()
        self.optimizer.zero_grad()
        functional.cross_entropy(self.forward(self.x), self.y).backward()
        self.optimizer.step()
        return time.process_time() - started


def compare(name: str, network: str, shape: tuple[int, ...], batch: int) -> None:
    plain = Training.of(network, shape, batch, compiled=False)
    compiled = Training.of(network, shape, batch, compiled=True)
    plain.step()
    first = compiled.step()
    best_plain = float("inf")
    best_compiled = float("inf")
    for _ in range(REPEATS):
        best_plain = min(best_plain, plain.step())
        best_compiled = min(best_compiled, compiled.step())
    gain = best_plain - best_compiled
    pays = "never pays"
    if gain > 0:
        pays = f"pays after {first / gain:,.0f} steps a process"
    ratio = best_plain / best_compiled
    print(
        f"{name:44} {1e3 * best_plain:7.2f} {1e3 * best_compiled:9.2f} {ratio:6.2f}× {first:8.1f} "
        f" {pays}",
        flush=True,
    )


if __name__ == "__main__":
    main()
