"""Do two workers gain what two bare processes gain?

Two processes on two cores never gain 2×: they share caches, memory and clock. So the yardstick is measured in the
same run: a plain torch loop over the same steps, in one process and in two. Ours is FedAvg on the local engine, with
all that belongs to a round (wire, spool, journal, merge, checkpoint), from the end of one to the end of the next;
starting processes and describing clients are not in it.

The client: the small CNN on 3×32×32 images, batch 32, SGD with momentum and clipping.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn
from torch.nn import functional

from fedloom.federation.engines.local import Pool
from fedloom.federation.server.events import Event, RoundEnded
from fedloom.nets.cnn import SmallCNN
from fedloom.nets.model import Model
from fedloom.runs.experiment import create, execute
from measuring import experiment, heading, images, self_timed, verdict

SHAPE, BATCH, CLIENTS, STEPS = (3, 32, 32), 32, 8, 10  # steps a client and round
ROUNDS = 4  # a block; the first is not measured
REPEATS = 6


class Bare:
    """A process that trains so many steps when told to."""

    def __init__(self) -> None:
        command = [sys.executable, __file__, "bare"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, steps: int) -> None:
        assert self.process.stdin is not None
        print(steps, file=self.process.stdin, flush=True)

    def wait(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()


def bare() -> None:
    """The plain loop: everything a step needs, and nothing else."""
    torch.set_num_threads(1)
    net = Model(SmallCNN(SHAPE, 10), [127.5] * 3, [127.5] * 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=3e-4)
    x, y = torch.randint(256, (STEPS * BATCH, *SHAPE), dtype=torch.uint8), torch.randint(10, (STEPS * BATCH,))
    for line in sys.stdin:
        for step in range(int(line)):
            chosen = slice(step % STEPS * BATCH, (step % STEPS + 1) * BATCH)
            optimizer.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(net(x[chosen]), y[chosen])
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            loss.item()
        print("done", flush=True)


def bare_seconds(processes: list[Bare]) -> list[float]:
    """For the steps of each round of a block, shared out evenly."""
    ends = [time.perf_counter()]
    while len(ends) < ROUNDS:
        for process in processes:
            process.tell(CLIENTS * STEPS // len(processes))
        for process in processes:
            process.wait()
        ends.append(time.perf_counter())
    return [end - start for start, end in pairwise(ends)]


def our_seconds(data: str, folder: Path, numbers: count[int], pool: Pool) -> list[float]:
    """For each round of a block but the first."""
    config = experiment(
        method="fedavg", data={"name": data, "clients": CLIENTS, "partition": "iid"}, budget={"rounds": ROUNDS}
    )
    ends: list[float] = []
    run, prepared = create(config, folder / str(next(numbers)))

    def listen(event: Event) -> None:
        if isinstance(event, RoundEnded):
            ends.append(time.perf_counter())

    execute(run, prepared, pool, listen)
    return [end - start for start, end in pairwise(ends)]


def main() -> None:
    heading("Workers: steps a second on a convolutional client")
    pools, processes, numbers = [Pool(1), Pool(2)], [Bare(), Bare()], count()
    with TemporaryDirectory(prefix="fedloom-bench-") as name:
        folder = Path(name)
        data = images(folder / "images.npz", CLIENTS * STEPS * BATCH * 5 // 4, SHAPE)  # a fifth is for testing
        alternatives = {"bare, 1 process": partial(bare_seconds, processes[:1])}
        alternatives |= {"fedloom, 1 worker": partial(our_seconds, data, folder, numbers, pools[0])}
        alternatives |= {"bare, 2 processes": partial(bare_seconds, processes)}
        alternatives |= {"fedloom, 2 workers": partial(our_seconds, data, folder, numbers, pools[1])}
        found = self_timed(alternatives, REPEATS)
    for pool in pools:
        pool.close()
    for process in processes:
        process.process.communicate()
    for name, timing in found.items():
        print(f"{name:20} {CLIENTS * STEPS / timing.best:7.1f} steps/s  (median {CLIENTS * STEPS / timing.middle:.1f})")
    bare_one, our_one, bare_two, our_two = (timing.best for timing in found.values())
    gain_bare, gain_ours = bare_one / bare_two, our_one / our_two
    print(f"\ngain of two over one: bare {gain_bare:.2f}×, fedloom {gain_ours:.2f}×")
    print(f"speed against bare: 1 worker {bare_one / our_one:.1%}, 2 workers {bare_two / our_two:.1%}")
    ratio = gain_ours / gain_bare
    verdict("share of the bare gain", f"{ratio:.1%}", "at least 90 %", ratio >= 0.9)


if __name__ == "__main__":
    bare() if sys.argv[1:] == ["bare"] else main()
