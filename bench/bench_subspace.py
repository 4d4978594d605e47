"""A search step in a sub-space (two of eight operations per edge), and in the whole supernet.

    python bench/bench_subspace.py [--side 16]

The network is FINCH's group of four cells with 16 channels; steps use batches of 50, images of
3×16×16 and 3×32×32, one thread and simultaneous order. A whole step of MiLeNAS is measured (both
passes, clipping, both optimisers). Five sub-spaces are drawn without a limit. All run in turns in
one process; times are CPU seconds.
"""

from __future__ import annotations

import argparse
import time
from statistics import mean

import torch

from fedloom.data.samples import Samples
from fedloom.learning.optimizers import Adam, Sgd
from fedloom.rng import rng
from fedloom.searchers.milenas import MiLeNAS
from fedloom.searchers.subspaces import MacsTable, draw_subspace, macs_table
from fedloom.spaces import GROUP, open_space
from fedloom.spaces.mixed import Mixed, MixedPart, fresh_alpha, live_alpha, model_of_space
from fedloom.spaces.options import SpaceOptions
from fedloom.types import Arch, Task
from measuring import heading, self_timed, verdict

BATCH = 50
SIDES = (16, 32)
OPS_PER_EDGE = 2
SUBSPACES = 5
TURNS = 5
TARGET = 0.4
SPACE = open_space(GROUP)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, help="of the images, instead of both")
    side = parser.parse_args().side
    torch.set_num_threads(1)
    heading("A search step of a sub-space")
    if side is not None:
        measure(side)
        return
    for usual_side in SIDES:
        measure(usual_side)


class Search:
    """One client in the middle of its search, in a sub-space or in the whole space."""

    def __init__(self, side: int, arch: Arch | None) -> None:
        shape = (3, side, side)
        labels = tuple(str(digit) for digit in range(10))
        task = Task("fednas", {}, "image", shape, labels, seed=0, mean=(0.5,) * 3, std=(0.3,) * 3)
        net = model_of_space(task, SPACE, SPACE.usual, arch=arch)
        net.train()
        alpha = fresh_alpha(SpaceOptions.model_validate({"space": GROUP}), 0)
        mixed_class = Mixed
        if arch is not None:
            alpha = live_alpha(alpha, arch)
            mixed_class = MixedPart
        for row in alpha.values():
            row.requires_grad_()
        mixed = mixed_class(net, alpha)
        self.searcher = MiLeNAS(
            net,
            alpha,
            mixed.mix_to_train,
            Sgd(dict(net.named_parameters()), 0.05, momentum=0.9, weight_decay=4e-5),
            Adam(alpha, 0.003, betas=(0.5, 0.999), weight_decay=1e-3),
            lam=1.0,
            clip=5.0,
            order="simultaneous",
            forward_both=mixed.mix_both_to_train,
        )
        self.train = batch(shape)
        self.validation = batch(shape)

    def step(self) -> list[float]:
        started = time.process_time()
        self.searcher.step(self.train, self.validation)
        return [time.process_time() - started]


def batch(shape: tuple[int, ...]) -> Samples:
    return Samples(torch.rand(BATCH, *shape), torch.randint(0, 10, (BATCH,)))


def measure(side: int) -> None:
    table = macs_table(SPACE, (3, side, side), 10, SPACE.usual)
    drawn = rng(0, "sub-spaces")
    searches = {"whole": Search(side, None)}
    shares = []
    for number in range(SUBSPACES):
        arch = draw_subspace(SPACE, table, OPS_PER_EDGE, None, drawn)
        shares.append(share_of_macs(table, arch))
        searches[f"sub-space {number}"] = Search(side, arch)
    timings = self_timed({name: search.step for name, search in searches.items()}, TURNS)
    print(f"images of {side}×{side}")
    for name, timing in timings.items():
        print(f"  {name:12} {timing}")
    whole = timings.pop("whole")
    print(f"  MACs: {mean(shares):.2f} of the whole's")
    judge("by minima", mean(timing.best / whole.best for timing in timings.values()))
    judge("by medians", mean(timing.middle / whole.middle for timing in timings.values()))


def judge(kind: str, share: float) -> None:
    verdict(
        f"  a step, mean of {SUBSPACES}, {kind}", f"{share:.2f}×", f"{TARGET}×", share <= TARGET
    )


def share_of_macs(table: MacsTable, arch: Arch) -> float:
    return table.of(arch) / table.everything()


if __name__ == "__main__":
    main()
