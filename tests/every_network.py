"""Every registered network and every space, at any number of channels, for tests of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedloom.nets import MAPS
from fedloom.networks import NETWORKS
from fedloom.networks.building import build_model
from fedloom.rng import rng
from fedloom.spaces import space_for
from fedloom.spaces.cells.space import OP_SETS
from fedloom.spaces.mixed import Mixed, fresh_alpha, plain, supernet_model
from fedloom.spaces.options import SpaceOptions
from fedloom.types import Task

CHANNELS = (1, 3, 4, 8, 12, 16)
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
LABELS = ("a", "b", "c")
ARCHITECTURES = 3  # drawn from every space
# The fewest channels of a network of width 1: with width k / fewest, it has k channels there. A new
# network may be left out.
FEWEST_CHANNELS = {
    "alexnet": 64,
    "densenet": 12,
    "lstm": 256,
    "mlp": 64,
    "resnet18": 64,
    "vgg16": 64,
}
USUAL_CHANNELS = 16
CHANNELS_OF_A_CHAIN = 8  # it has a size of its own


@dataclass(frozen=True)
class Built:
    """A network in training mode, and samples for it."""

    name: str
    net: nn.Module
    samples: torch.Tensor


def every_network(channels: int, layout: str) -> Iterator[Built]:
    yield from registered_networks(channels, layout)
    yield from networks_of_spaces(channels, layout)


def registered_networks(channels: int, layout: str) -> Iterator[Built]:
    for name in NETWORKS.names():
        kind = getattr(NETWORKS.get(name), "kinds", MAPS)[0]
        width = channels / FEWEST_CHANNELS.get(name, USUAL_CHANNELS)
        task = task_of(kind, (3, 8, 8))
        yield built(name, build_model(task, name, width), task, layout)


def networks_of_spaces(channels: int, layout: str) -> Iterator[Built]:
    """Of each the mixture of everything, and architectures drawn at random, cut from it."""
    for options in spaces(channels):
        shape = (3, 9, 10) if options.space == "darts" else (3, 8, 12)  # an odd side is padded
        task = task_of("image", shape)
        space = space_for(options)
        mixture = Mixed(supernet_model(task, options), fresh_alpha(options, 0))
        yield built(f"{space.name}, mixture", mixture, task, layout)
        for number in range(ARCHITECTURES):
            arch = space.sample(rng(number, space.name))
            cut = plain(supernet_model(task, options, arch=arch, affine=True))
            yield built(f"{space.name}, architecture {number}", cut, task, layout)


def spaces(channels: int) -> Iterator[SpaceOptions]:
    for ops in OP_SETS:
        nodes = (
            4 if ops == "s1" else 1
        )  # s1 is only for four; with one, a cell hands on as few channels as it can
        yield SpaceOptions(ops=ops, cells=3, nodes=nodes, channels=channels)
    yield SpaceOptions(space="nasbench201", cells=1, channels=channels)
    if channels == CHANNELS_OF_A_CHAIN:
        yield SpaceOptions(space="cnn-tiny")


def task_of(kind: str, shape: tuple[int, ...]) -> Task:
    if kind == "text":
        return Task("fedavg", {}, kind, (6,), LABELS, 0, (), ())
    if kind == "table":
        return Task("fedavg", {}, kind, (6,), LABELS, 0, (0.5,) * 6, (0.25,) * 6)
    return Task("fedavg", {}, kind, shape, LABELS, 0, (0.5,) * shape[0], (0.25,) * shape[0])


def built(name: str, net: nn.Module, task: Task, layout: str) -> Built:
    draw = torch.Generator().manual_seed(0)
    if task.kind == "text":
        return Built(
            name, net.train(), torch.randint(0, len(LABELS), (4, *task.shape), generator=draw)
        )
    if task.kind == "table":
        return Built(name, net.train(), torch.rand(4, *task.shape, generator=draw))
    net.to(memory_format=LAYOUTS[layout])
    samples = torch.rand(4, *task.shape, generator=draw).contiguous(memory_format=LAYOUTS[layout])
    return Built(name, net.train(), samples)


class StridedPointwise(TorchDispatchMode):
    """Records every 1×1 convolution with a stride that is computed inside, however written."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.convolution.default:
            weight = args[1]
            stride = args[3]
            if all(side == 1 for side in weight.shape[2:]) and any(step > 1 for step in stride):
                self.found.append(f"weights {list(weight.shape)}, stride {list(stride)}")
        return function(*args, **(kwargs or {}))


def strided_pointwise_in(net: nn.Module, samples: torch.Tensor) -> list[str]:
    """Those of one forward pass."""
    with torch.no_grad(), StridedPointwise() as seen:
        net(samples)
    return seen.found
