"""One full MiLeNAS step of the DARTS supernet against the straightforward MixedOp.

    python bench/bench_milenas.py

The supernet has 8 cells, 16 channels and eight operations; steps use batches of 32 images of
3×32×32, one thread and simultaneous order. The straightforward version computes every operation
separately (its own ReLU, its own pooling, `none` as zeros, torch's convolutions with torch's
gradients), scales and sums them, and makes one backward pass for each gradient of Eq. 4: ∇_w L_tr,
∇_α L_tr, ∇_α L_val. Both versions share their weights, so that outputs and gradients can be
compared. Times are minima of CPU seconds over interleaved repetitions, which a busy machine affects
least. Memory is the peak beyond the network, each version in its own process.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from fedloom.nets.depthwise import as_plain
from fedloom.searchers.milenas import constant
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.cells.net import Cell, CellNetwork
from fedloom.spaces.choice import Mixture
from fedloom.spaces.edges import make
from fedloom.spaces.ops import Op
from measuring import high_water

BATCH = 32
REPEATS = 3
LEAST_SPEED = 3.5
MOST_MEMORY = 0.45  # of the straightforward version's


def main() -> None:
    torch.set_num_threads(1)
    straightforward = StraightforwardStep()
    ours = OurStep()
    # The first steps warm up, and their results are compared.
    expected = straightforward.gradients()
    gradients = ours.gradients()
    print(
        f"gradients differ by {largest_difference(expected.weights, gradients.weights):.1e} (w), "
        f"{largest_difference(expected.alpha, gradients.alpha):.1e} (α)"
    )
    slow_seconds = []
    fast_seconds = []
    for _ in range(REPEATS):
        slow_seconds.append(cpu_seconds_of(straightforward.gradients))
        fast_seconds.append(cpu_seconds_of(ours.gradients))
    slow = min(slow_seconds)
    fast = min(fast_seconds)
    much = peak_megabytes("straightforward")
    little = peak_megabytes("ours")
    print(f"straightforward, three passes: {slow:6.2f} s  {much:6.0f} MB")
    print(f"ours, two passes:              {fast:6.2f} s  {little:6.0f} MB")
    speed = slow / fast
    share = little / much
    print(f"speed {speed:.2f}× (target 3.5×): {outcome(speed >= LEAST_SPEED)}")
    print(f"memory {100 * share:.0f} % (target 45 %): {outcome(share <= MOST_MEMORY)}")


def outcome(holds: bool) -> str:
    if holds:
        return "holds"
    return "does not hold"


@dataclass(frozen=True)
class Batch:
    x: torch.Tensor
    y: torch.Tensor


@dataclass(frozen=True)
class Gradients:
    """Gradients of w and α: of one pass, or ∇_w L_tr and ∇_α L_tr + ∇_α L_val of a step."""

    weights: Sequence[torch.Tensor]
    alpha: Sequence[torch.Tensor]


class Setting:
    """The supernet in one memory layout, with α and the batches of a step."""

    def __init__(self, layout: torch.memory_format, *, plain: bool) -> None:
        torch.manual_seed(0)
        space = DartsCells()
        self.net = space.network((3, 32, 32), 10, space.usual)
        if plain:
            as_plain(self.net)
        self.net.to(memory_format=layout)  # type: ignore[call-overload]
        self.alpha = []
        for slot in space.slots:
            row = 1e-3 * torch.randn(len(slot.options))
            self.alpha.append(row.requires_grad_())
        self.train = random_batch()
        self.validation = random_batch()
        self.weights = list(self.net.parameters())


def random_batch() -> Batch:
    x = torch.randn(BATCH, 3, 32, 32)
    y = torch.randint(0, 10, (BATCH,))
    return Batch(x, y)


class StraightforwardStep(Setting):
    """Three forward and backward passes, each through the whole network."""

    def __init__(self) -> None:
        super().__init__(torch.contiguous_format, plain=True)
        self.forward = Straightforward(self.net)

    def gradients(self) -> Gradients:
        first = self.one_pass(self.train)
        second = self.one_pass(self.train)
        third = self.one_pass(self.validation)
        return Gradients(first.weights, sums(second.alpha, third.alpha))

    def one_pass(self, batch: Batch) -> Gradients:
        self.net.zero_grad()
        for row in self.alpha:
            row.grad = None
        functional.cross_entropy(self.forward(batch.x, self.alpha), batch.y).backward()
        weights = present([parameter.grad for parameter in self.weights])
        alpha = present([row.grad for row in self.alpha])
        return Gradients(weights, alpha)


class OurStep(Setting):
    """Two passes as in `fedloom.searchers.milenas`, the second without weight gradients."""

    def __init__(self) -> None:
        super().__init__(torch.channels_last, plain=False)

    def gradients(self) -> Gradients:
        # No name for the loss: it would keep the first graph in memory during the second pass.
        both = torch.autograd.grad(self.loss(self.train), [*self.weights, *self.alpha])
        with constant(self.weights):
            by_validation = torch.autograd.grad(self.loss(self.validation), self.alpha)
        count = len(self.weights)
        return Gradients(both[:count], sums(both[count:], by_validation))

    def loss(self, batch: Batch) -> torch.Tensor:
        scores = self.net(batch.x, Mixture.softmax(self.alpha))
        return functional.cross_entropy(scores, batch.y)


def present(gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    """The gradients of parameters that have one."""
    return [gradient for gradient in gradients if gradient is not None]


def sums(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [a + b for a, b in zip(first, second, strict=True)]


class Straightforward:
    """The supernet's forward pass as it is usually written.

    It uses the same weights, in torch's default memory layout.
    """

    def __init__(self, net: CellNetwork) -> None:
        self.net = net

    def __call__(self, x: torch.Tensor, alpha: Sequence[torch.Tensor]) -> torch.Tensor:
        weights = [torch.softmax(row, dim=0) for row in alpha]
        before_last = self.net.stem(x)
        last = before_last
        for number, cell in enumerate(self.net.cells):
            assert isinstance(cell, Cell)
            of_cell = weights[self.net.first_slot(number) :]
            output = self.cell(cell, before_last, last, of_cell)
            before_last = last
            last = output
        scores: torch.Tensor = self.net.classifier(last.mean((2, 3)))
        return scores

    def cell(
        self, cell: Cell, s0: torch.Tensor, s1: torch.Tensor, weights: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        states = [cell.pre0(torch.relu(s0)), cell.pre1(torch.relu(s1))]
        for node in range(2, 2 + cell.nodes):
            mixed = []
            for edge, (source, target) in enumerate(cell.edges.pairs):
                if target == node:
                    mixed.append(self.mixed_op(cell, edge, states[source], weights[edge]))
            states.append(sum(mixed[1:], mixed[0]))
        return torch.cat(states[2:], dim=1)

    def mixed_op(
        self, cell: Cell, edge: int, x: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        ops = getattr(cell.edges, str(edge))
        stride = cell.edges.strides[edge]
        terms = []
        for weight, name in zip(weights, cell.edges.slots[edge].options, strict=True):
            if name == "none":
                terms.append(weight * x[:, :, ::stride, ::stride].mul(0.0))
                continue
            op = ops[name]
            assert isinstance(op, Op)
            prepared = x
            if op.takes != "raw":
                prepared = make(x, op.takes, stride)
            terms.append(weight * op(prepared))
        total: torch.Tensor = sum(terms[1:], terms[0])
        return total


def cpu_seconds_of(step: Callable[[], Gradients]) -> float:
    started = time.process_time()
    step()
    return time.process_time() - started


def largest_difference(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> float:
    """The largest difference relative to the largest gradient."""
    scale = max(float(tensor.abs().max()) for tensor in a)
    difference = max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))
    return difference / scale


VERSIONS: Mapping[str, type[StraightforwardStep | OurStep]] = {
    "straightforward": StraightforwardStep,
    "ours": OurStep,
}


def peak_megabytes(version: str) -> float:
    """In a fresh process: what a step adds to the peak of building the network."""
    command = [sys.executable, __file__, version]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(ended.stdout)


def measure_peak(version: str) -> None:
    """Print the megabytes of one step; it runs in its own process."""
    torch.set_num_threads(1)
    step = VERSIONS[version]()
    before = high_water()
    step.gradients()
    print((high_water() - before) / 2**20)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure_peak(sys.argv[1])
    else:
        main()
