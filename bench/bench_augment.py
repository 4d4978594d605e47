"""What does augmenting a batch cost, compared with training on it?

    python bench/bench_augment.py

Batches have 64 colour images of 32×32, as CIFAR-10's are, and a step is one step of SGD on the
small CNN: the smaller the network, the more expensive augmentation looks. Each augmentation is
measured in turns with the step, in one thread, as a worker has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from fedloom.data.augmenting.augment import augmenter
from fedloom.networks.building import build_model
from fedloom.types import Task
from measuring import heading, in_turns, verdict

BATCH = 64
REPEATS = 12
USUAL = "crop:4+flip+cutout:16"
RANDOM = "randaugment:2:9"
AUGMENTATIONS = ("crop:4", "flip", "cutout:16", "rotate:15", "hue:0.1", USUAL, RANDOM)
# The most that augmentation may cost, as a share of a step.
CHEAP = 0.1
BEARABLE = 0.5


def main() -> None:
    torch.set_num_threads(1)
    heading(f"Augmenting {BATCH} images of 3×32×32 beside a training step of the small CNN")
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (BATCH, 3, 32, 32), dtype=torch.uint8, generator=draw)
    y = torch.randint(10, (BATCH,), generator=draw)
    task = Task(
        "fedavg", {}, "image", (3, 32, 32), tuple("0123456789"), 0, (127.5,) * 3, (127.5,) * 3
    )
    net = build_model(task, "cnn", 1.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    alternatives: dict[str, Callable[[], object]] = {}
    alternatives["a step"] = partial(step, net, optimizer, x, y)
    for text in AUGMENTATIONS:
        augment = augmenter(text, task.kind, task.mean, x)
        alternatives[text] = partial(augment, x, draw)
    timings = in_turns(alternatives, REPEATS)
    shares = {}
    for name, timing in timings.items():
        shares[name] = timing.best / timings["a step"].best
        print(f"{name:24}{timing}   {100 * shares[name]:6.1f} % of a step")
    judge(USUAL, shares[USUAL], CHEAP)
    judge(RANDOM, shares[RANDOM], BEARABLE)


def step(
    net: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor
) -> None:
    optimizer.zero_grad(set_to_none=True)
    functional.cross_entropy(net(x), y).backward()
    optimizer.step()


def judge(augmentation: str, share: float, most: float) -> None:
    result = f"{100 * share:.1f} % of a step"
    verdict(augmentation, result, f"{100 * most:.0f} %", share <= most)


if __name__ == "__main__":
    main()
