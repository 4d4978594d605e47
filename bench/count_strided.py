"""How many input channels did the strided 1×1 convolutions behind the documented tables have?

Until they were computed on a slice (`fedloom.nets.strided`), their gradients could be wrong in
channels_last with fewer input channels than a block of oneDNN: 8 with AVX2, 16 with AVX-512. Every
network of docs/results that has such convolutions is built here as its command builds it, and one
forward pass counts each of them with its layout.

    python bench/count_strided.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import torch
from torch import nn

from fedloom.nets.strided import strided_pointwise
from fedloom.networks.building import build_model
from fedloom.runs.comparison import nearest_width
from fedloom.spaces.mixed import supernet_model
from fedloom.spaces.options import SpaceOptions
from fedloom.types import Task

BLOCK = 16  # channels, the larger of the two
USERS = ("fedloom.spaces.ops", "fedloom.nets.resnet")  # modules that call strided_pointwise


class Setting(NamedTuple):
    """One network of a table."""

    page: str
    table: str
    build: Callable[[Task], nn.Module]
    shape: tuple[int, ...] = (3, 32, 32)


def cells(**sizes: int | str) -> Callable[[Task], nn.Module]:
    """A network of cells, as searches build it."""
    return lambda task: supernet_model(task, SpaceOptions.model_validate(sizes))


def fixed(name: str, width: float) -> Callable[[Task], nn.Module]:
    return lambda task: build_model(task, name, width)


def resnet_of(parameters: int) -> Callable[[Task], nn.Module]:
    """A ResNet of the width that `--match-params` gives."""

    def build(task: Task) -> nn.Module:
        def of_width(width: float) -> nn.Module:
            return build_model(task, "resnet18", width)

        return of_width(nearest_width(of_width, parameters))

    return build


SETTINGS = (
    Setting(
        "fednas.md",
        "digits, and the demo",
        cells(ops="s2", cells=3, channels=8, nodes=2),
        (1, 8, 8),
    ),
    Setting("fednas.md", "CIFAR-10, FedNAS", cells(ops="s3", cells=3, channels=8, nodes=2)),
    Setting("fednas.md", "CIFAR-10, ResNet-18 of 18 k parameters", resnet_of(18_000)),
    Setting("fednas.md", "CIFAR-10, ResNet-18 of 20 k parameters", resnet_of(20_000)),
    Setting("fednas.md", "ranks, NAS-Bench-201", cells(space="nasbench201", cells=1, channels=8)),
    Setting(
        "fednas.md", "speed of the search step", cells(ops="full", cells=8, channels=16, nodes=4)
    ),
    Setting(
        "spider.md", "CIFAR-10, SPIDER and FedNAS", cells(ops="s2", cells=3, channels=8, nodes=2)
    ),
    Setting("spider.md", "CIFAR-10, baselines on the supernet", fixed("supernet:s2:2:3", 0.5)),
    Setting(
        "spider.md",
        "PneumoniaMNIST, SPIDER",
        cells(ops="s2", cells=3, channels=8, nodes=2),
        (1, 28, 28),
    ),
    Setting(
        "spider.md", "digits, Ditto on a small supernet", fixed("supernet:s2:2:3", 0.25), (1, 8, 8)
    ),
    Setting("spider.md", "the search", cells(ops="s2", cells=8, channels=16, nodes=4)),
    Setting(
        "spider.md",
        "memory with 100 clients",
        cells(ops="s2", cells=3, channels=8, nodes=2),
        (1, 8, 8),
    ),
)


def main() -> int:
    unsafe = 0
    for setting in SETTINGS:
        convolutions = count(setting)
        endangered = [conv for conv in convolutions if conv.channels_last and conv.channels < BLOCK]
        unsafe += len(endangered)
        line = f"{setting.page}: {setting.table}: "
        if not convolutions:
            print(line + "none")
            continue
        layouts = {conv.layout for conv in convolutions}
        fewest = min(convolutions).channels
        most = max(convolutions).channels
        print(
            line
            + f"{len(convolutions)} with {fewest} to {most} input channels, "
            + f"{' and '.join(sorted(layouts))}"
        )
    print(f"in channels_last with fewer than {BLOCK}: {unsafe}")
    return int(unsafe > 0)


class Counted(NamedTuple):
    channels: int
    channels_last: bool

    @property
    def layout(self) -> str:
        if self.channels_last:
            return "channels_last"
        return "contiguous"


@contextmanager
def counting() -> Iterator[list[Counted]]:
    """Collects every strided 1×1 convolution that is computed inside the block."""
    convolutions: list[Counted] = []

    def noted(
        layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, stride: int
    ) -> torch.Tensor:
        if stride > 1:
            convolutions.append(Counted(x.shape[1], x.stride(1) == 1 and x.shape[1] > 1))
        return strided_pointwise(layer, x, stride)

    with (
        mock.patch(f"{USERS[0]}.strided_pointwise", noted),
        mock.patch(f"{USERS[1]}.strided_pointwise", noted),
    ):
        yield convolutions


def count(setting: Setting) -> list[Counted]:
    shape = setting.shape
    labels = tuple(f"class {number}" for number in range(10))
    task = Task("fedavg", {}, "image", shape, labels, 0, (0.5,) * shape[0], (0.25,) * shape[0])
    with counting() as convolutions, torch.no_grad():
        setting.build(task)(torch.rand(2, *shape))
    return convolutions


if __name__ == "__main__":
    sys.exit(main())
