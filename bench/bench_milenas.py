"""One full MiLeNAS step of the DARTS supernet against the straightforward MixedOp.

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
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional

from fedloom.nets.depthwise import as_plain
from fedloom.searchers.milenas import constant
from fedloom.spaces.cells import DartsCells
from fedloom.spaces.cells.net import Cell, CellNetwork
from fedloom.spaces.choice import Mixture
from fedloom.spaces.edges import make
from fedloom.spaces.ops import Op

BATCH = 32
REPEATS = 3
Gradients = tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]


class Straightforward:
    """The supernet's forward pass as it is usually written.

    It uses the same weights, in torch's default memory layout.
    """

    def __init__(self, net: CellNetwork) -> None:
        self.net = net

    def __call__(self, x: torch.Tensor, alpha: Sequence[torch.Tensor]) -> torch.Tensor:
        weights = [torch.softmax(row, dim=0) for row in alpha]
        s0 = s1 = self.net.stem(x)
        for number, cell in enumerate(self.net.cells):
            assert isinstance(cell, Cell)
            s0, s1 = s1, self.cell(cell, s0, s1, weights[self.net.first_slot(number) :])
        scores: torch.Tensor = self.net.classifier(s1.mean((2, 3)))
        return scores

    def cell(
        self, cell: Cell, s0: torch.Tensor, s1: torch.Tensor, weights: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        states = [cell.pre0(torch.relu(s0)), cell.pre1(torch.relu(s1))]
        for node in range(2, 2 + cell.nodes):
            into = [edge for edge, (_, target) in enumerate(cell.edges.pairs) if target == node]
            mixed = [
                self.mixed_op(cell, edge, states[cell.edges.pairs[edge][0]], weights[edge])
                for edge in into
            ]
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
            terms.append(weight * op(x if op.takes == "raw" else make(x, op.takes, stride)))
        total: torch.Tensor = sum(terms[1:], terms[0])
        return total


class Setting:
    def __init__(self, *, ours: bool) -> None:
        torch.manual_seed(0)
        space = DartsCells()
        self.net = space.network((3, 32, 32), 10, space.usual)
        if not ours:
            as_plain(self.net)
        layout = torch.channels_last if ours else torch.contiguous_format
        self.net.to(memory_format=layout)  # type: ignore[call-overload]
        self.alpha = [
            (1e-3 * torch.randn(len(slot.options))).requires_grad_() for slot in space.slots
        ]
        self.train = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
        self.validation = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
        self.weights = list(self.net.parameters())

    def straightforward(self) -> Gradients:
        """Three forward and backward passes, each through the whole network."""
        forward = Straightforward(self.net)
        gradients = []
        for x, y in (self.train, self.train, self.validation):
            self.net.zero_grad()
            for row in self.alpha:
                row.grad = None
            functional.cross_entropy(forward(x, self.alpha), y).backward()
            gradients.append(([p.grad for p in self.weights], [row.grad for row in self.alpha]))
        return checked(gradients[0][0]), [
            a + b for a, b in zip(checked(gradients[1][1]), checked(gradients[2][1]), strict=True)
        ]

    def ours(self) -> Gradients:
        """Two passes as in `fedloom.searchers.milenas`, the second without weight gradients."""

        def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(self.net(x, Mixture.softmax(self.alpha)), y)

        both = torch.autograd.grad(loss(*self.train), [*self.weights, *self.alpha])
        with constant(self.weights):
            second = torch.autograd.grad(loss(*self.validation), self.alpha)
        count = len(self.weights)
        return both[:count], [a + b for a, b in zip(both[count:], second, strict=True)]


def checked(gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    return [gradient for gradient in gradients if gradient is not None]


def seconds(work: Setting, ours: bool) -> float:
    started = time.process_time()
    work.ours() if ours else work.straightforward()
    return time.process_time() - started


def largest_difference(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> float:
    """The largest difference relative to the largest gradient."""
    scale = max(float(tensor.abs().max()) for tensor in a)
    return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True)) / scale


def peak_megabytes(way: str) -> float:
    """In a fresh process: what a step adds to the peak of building the network."""
    text = subprocess.run(
        [sys.executable, __file__, way], capture_output=True, text=True, check=True
    ).stdout
    return float(text)


def measure_peak(way: str) -> None:
    torch.set_num_threads(1)
    setting = Setting(ours=way == "ours")
    before = high_water()
    setting.ours() if way == "ours" else setting.straightforward()
    print((high_water() - before) / 1024)


def high_water() -> int:
    """KiB; ru_maxrss would start at the parent's."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1])


def main() -> None:
    torch.set_num_threads(1)
    naive = Setting(ours=False)
    ours = Setting(ours=True)
    # The first steps warm up, and their results are compared.
    a = naive.straightforward()
    b = ours.ours()
    print(
        f"gradients differ by {largest_difference(a[0], b[0]):.1e} (w), "
        f"{largest_difference(a[1], b[1]):.1e} (α)"
    )
    times = [(seconds(naive, False), seconds(ours, True)) for _ in range(REPEATS)]
    slow = min(pair[0] for pair in times)
    fast = min(pair[1] for pair in times)
    memory = peak_megabytes("straightforward"), peak_megabytes("ours")
    print(f"straightforward, three passes: {slow:6.2f} s  {memory[0]:6.0f} MB")
    print(f"ours, two passes:              {fast:6.2f} s  {memory[1]:6.0f} MB")
    speed = slow / fast
    share = memory[1] / memory[0]
    print(f"speed {speed:.2f}× (target 3.5×): {'holds' if speed >= 3.5 else 'does not hold'}")
    print(
        f"memory {100 * share:.0f} % (target 45 %): {'holds' if share <= 0.45 else 'does not hold'}"
    )


if __name__ == "__main__":
    measure_peak(sys.argv[1]) if len(sys.argv) > 1 else main()
