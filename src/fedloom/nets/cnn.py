"""A small convolutional network for small images; its width factor scales every channel count."""

import torch
from torch import nn

from fedloom.errors import FedloomError

SMALLEST = 4  # pixels a side: two poolings must leave one


class SmallCNN(nn.Module):
    """Three 3×3 convolutions with BN, two poolings, a linear classifier on a 2×2 map."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: float = 1.0) -> None:
        super().__init__()
        channels, height, breadth = shape
        if min(height, breadth) < SMALLEST:
            raise FedloomError(
                f"images for the cnn must be at least {SMALLEST}×{SMALLEST}", f"these are {height}×{breadth}",
                "use larger images or another network",
            )  # fmt: skip
        first, second, third = (max(1, round(size * width)) for size in (16, 32, 64))
        self.features = nn.Sequential(
            *block(channels, first), nn.MaxPool2d(2), *block(first, second), nn.MaxPool2d(2), *block(second, third),
            nn.AdaptiveAvgPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Linear(4 * third, classes)
        self.architecture = f"cnn:{width:g}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(self.features(x).flatten(1))
        return scores


def block(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
