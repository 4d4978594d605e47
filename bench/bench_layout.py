"""Which memory format should networks compute in: torch's default, or channels last?

    python bench/bench_layout.py

It measures the CPU seconds of a training step and of scoring with one thread, both formats in
turns, for every fixed network and a supernet on images of several sizes. A ratio above 1 means that
channels last is faster.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from fedloom.learning.optimizers import Sgd
from fedloom.networks import NETWORKS
from measuring import heading

NETS = {
    "cnn": 1.0,
    "resnet18": 0.125,
    "densenet": 0.25,
    "vgg16": 0.125,
    "alexnet": 0.125,
    "supernet:s2:2:3": 0.25,
}  # with the width that is measured
INPUTS = [((1, 8, 8), 32), ((1, 28, 28), 32), ((3, 32, 32), 20), ((3, 32, 32), 128)]
FORMATS = {"default": torch.contiguous_format, "channels last": torch.channels_last}
LEAST = 0.25  # CPU seconds of one measurement
REPEATS = 3


def main() -> None:
    heading("Memory format: channels last against torch's default, times as fast")
    torch.set_num_threads(1)
    print(f"{'network':18} {'input':14} {'batch':>5} {'training':>9} {'scoring':>8}")
    for name in NETS:
        for shape, batch in INPUTS:
            settings = {}
            for format_name, layout in FORMATS.items():
                settings[format_name] = Setting.of(name, shape, batch, layout)
                settings[format_name].train()  # warms up
            training = ratio(settings, "train")
            scoring = ratio(settings, "score")
            size = "×".join(map(str, shape))
            print(f"{name:18} {size:14} {batch:5} {training:9.2f} {scoring:8.2f}", flush=True)


@dataclass(frozen=True)
class Setting:
    net: nn.Module
    optimizer: Sgd
    x: torch.Tensor
    y: torch.Tensor

    @classmethod
    def of(
        cls, name: str, shape: tuple[int, ...], batch: int, layout: torch.memory_format
    ) -> Setting:
        torch.manual_seed(0)
        net: nn.Module = NETWORKS.get(name)(shape, 10, NETS[name])
        net.to(memory_format=layout)  # type: ignore[call-overload]
        optimizer = Sgd(dict(net.named_parameters()), 0.01, momentum=0.9)
        return cls(net, optimizer, torch.randn(batch, *shape), torch.randint(10, (batch,)))

    def train(self) -> None:
        self.net.train()
        self.optimizer.zero_grad()
        functional.cross_entropy(self.net(self.x), self.y).backward()
        self.optimizer.step()

    @torch.no_grad()
    def score(self) -> None:
        self.net.eval()
        self.net(self.x)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def seconds_of(work: Callable[[], None]) -> float:
    """The mean CPU seconds of one call."""
    calls = 0
    started = cpu_seconds()
    while cpu_seconds() - started < LEAST:
        work()
        calls += 1
    return (cpu_seconds() - started) / calls


def ratio(settings: dict[str, Setting], work: str) -> float:
    """The speed of channels last relative to the default, by the best of several turns."""
    best = dict.fromkeys(settings, float("inf"))
    for _ in range(REPEATS):
        for name, setting in settings.items():
            best[name] = min(best[name], seconds_of(getattr(setting, work)))
    return best["default"] / best["channels last"]


if __name__ == "__main__":
    main()
