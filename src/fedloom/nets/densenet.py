"""DenseNet: Huang, Liu, van der Maaten, Weinberger, "Densely Connected Convolutional Networks",
CVPR 2017.

This is the variant BC (bottlenecks, compression 0.5) in its form for CIFAR: three dense blocks and
two transitions.
"""

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets.heads import HeadChoice, ends_in_map, settled, vector_length
from fedloom.nets.pooling import as_vector

SMALLEST = 4  # pixels per side: one must remain after two poolings
# The paper's small network, with 0.8 M parameters.
GROWTH = 12
DEPTH = 100
BLOCKS = 3
BOTTLENECK = 4  # a layer's 1×1 convolution has four times the growth rate as output channels


@ends_in_map
class DenseNet(nn.Module):
    """DenseNet-BC for small images: growth rate 12 × width, 100 layers in three dense blocks."""

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        width: float = 1.0,
        *,
        growth: int = GROWTH,
        depth: int = DEPTH,
        head: HeadChoice = "auto",
    ) -> None:
        super().__init__()
        check(shape, depth)
        growth = max(1, round(growth * width))
        channels = 2 * growth
        layers = (depth - 4) // (2 * BLOCKS)  # a layer has two convolutions
        self.stem = nn.Conv2d(shape[0], channels, 3, padding=1, bias=False)
        self.blocks = nn.Sequential()
        for block in range(BLOCKS):
            if block:
                self.blocks.append(transition(channels, channels // 2))
                channels //= 2
            for _ in range(layers):
                self.blocks.append(Layer(channels, growth))
                channels += growth
        self.last = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
        reduction = 2 ** (BLOCKS - 1)  # each transition halves the map
        self.head = settled(head, shape[1] // reduction, shape[2] // reduction)
        self.classifier = nn.Linear(vector_length(self.head, channels), classes)
        self.architecture = f"densenet:{width:g}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last_map = self.last(self.blocks(self.stem(x)))
        scores: torch.Tensor = self.classifier(as_vector(last_map, self.head))
        return scores


class Layer(nn.Module):
    """A dense layer: it appends `growth` channels to its input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        middle = BOTTLENECK * growth
        self.new = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, middle, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(),
            nn.Conv2d(middle, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.new(x)], dim=1)


def transition(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.AvgPool2d(2),
    )


def check(shape: tuple[int, ...], depth: int) -> None:
    if min(shape[1:]) < SMALLEST:
        raise FedloomError(
            f"images for densenet must be at least {SMALLEST}×{SMALLEST}",
            f"these are {shape[1]}×{shape[2]}",
            "use larger images or another network",
        )
    if depth < 10 or (depth - 4) % (2 * BLOCKS):
        rule = "a DenseNet-BC must have 6·n + 4 layers, n at least 1"
        raise FedloomError(rule, f"got {depth}", "try 40 or 100")
