"""A small convolutional network for small images; its width factor scales every channel count."""

import torch
from torch import nn

from fedloom.errors import FedloomError
from fedloom.nets.heads import HeadChoice, ends_in_map, settled, vector_length
from fedloom.nets.nesting import nests
from fedloom.nets.pooling import as_vector

SMALLEST = 4  # pixels per side: one must remain after two poolings


@ends_in_map
@nests
class SmallCNN(nn.Module):
    """Three 3×3 convolutions with BN, two poolings, a linear classifier."""

    def __init__(
        self, shape: tuple[int, ...], classes: int, width: float = 1.0, *, head: HeadChoice = "auto"
    ) -> None:
        super().__init__()
        channels, height, breadth = shape
        if min(height, breadth) < SMALLEST:
            raise FedloomError(
                f"images for the cnn must be at least {SMALLEST}×{SMALLEST}",
                f"these are {height}×{breadth}",
                "use larger images or another network",
            )
        first = max(1, round(16 * width))
        second = max(1, round(32 * width))
        third = max(1, round(64 * width))
        self.head = settled(head, height // 4, breadth // 4, old="grid")
        self.features = nn.Sequential(
            *block(channels, first),
            nn.MaxPool2d(2),
            *block(first, second),
            nn.MaxPool2d(2),
            *block(second, third),
        )
        self.classifier = nn.Linear(vector_length(self.head, third), classes)
        self.architecture = f"cnn:{width:g}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(as_vector(self.features(x), self.head))
        return scores


def block(inputs: int, outputs: int) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    ]
