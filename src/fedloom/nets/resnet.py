"""ResNet: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", CVPR 2016.

This is the form for small images: a 3×3 stem without pooling, then four stages. Where the size or
the channels change, the shortcut is a 1×1 convolution (the paper's option B).
"""

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets.heads import HeadChoice, ends_in_map, settled, vector_length
from fedloom.nets.nesting import nests
from fedloom.nets.pooling import as_vector
from fedloom.nets.strided import strided_pointwise

SMALLEST = 4  # pixels per side: below, the last stages see only one pixel and its padding
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first block
BLOCKS = 2  # per stage: 1 + 4·2·2 + 1 = 18 layers


@ends_in_map
@nests
class ResNet18(nn.Module):
    """ResNet-18 for small images: 3×3 stem, no max-pooling."""

    def __init__(
        self, shape: tuple[int, ...], classes: int, width: float = 1.0, *, head: HeadChoice = "auto"
    ) -> None:
        super().__init__()
        if min(shape[1:]) < SMALLEST:
            raise FedloomError(
                f"images for resnet18 must be at least {SMALLEST}×{SMALLEST}",
                f"these are {shape[1]}×{shape[2]}",
                "use larger images or another network",
            )
        channels = max(1, round(STAGES[0][0] * width))
        self.stem = nn.Sequential(*convolution(shape[0], channels, 3, 1), nn.ReLU())
        self.blocks = nn.Sequential()
        height, breadth = shape[1:]
        for size, first_stride in STAGES:
            for block in range(BLOCKS):
                stride = first_stride if block == 0 else 1
                before = channels
                channels = max(1, round(size * width))
                self.blocks.append(Block(before, channels, stride))
            height = -(-height // first_stride)
            breadth = -(-breadth // first_stride)
        self.head = settled(head, height, breadth)
        self.classifier = nn.Linear(vector_length(self.head, channels), classes)
        self.architecture = f"resnet18:{width:g}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last_map = self.blocks(self.stem(x))
        scores: torch.Tensor = self.classifier(as_vector(last_map, self.head))
        return scores


class Block(nn.Module):
    """Computes y = relu(F(x) + x), where F is two 3×3 convolutions (Eq. 1 and 2)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *convolution(inputs, outputs, 3, stride),
            nn.ReLU(),
            *convolution(outputs, outputs, 3, 1),
        )
        self.stride = stride
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride > 1:
            self.shortcut = nn.Sequential(*convolution(inputs, outputs, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.residual(x) + strided_pointwise(self.shortcut, x, self.stride))


def convolution(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]
