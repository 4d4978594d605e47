"""AlexNet: Krizhevsky, Sutskever, Hinton, "ImageNet Classification with Deep Convolutional Neural
Networks", 2012.

This version for small images keeps the five convolutions and the three overlapping poolings, but it
has a first kernel of 5×5 without stride, one linear layer instead of the two of 4096, no response
normalisation, and no split over two GPUs. The linear layer sees the whole last map, so there is no
head to choose.
"""

import torch
from torch import nn

# channels, kernel, and whether a pooling follows
LAYERS = ((96, 5, True), (256, 5, True), (384, 3, False), (384, 3, False), (256, 3, True))


class AlexNet(nn.Module):
    """AlexNet for small images: five convolutions, three poolings, a linear classifier."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: float = 1.0) -> None:
        super().__init__()
        channels, height, breadth = shape
        self.features = nn.Sequential()
        for size, kernel, pooled in LAYERS:
            before = channels
            channels = max(1, round(size * width))
            self.features.extend([convolution(before, channels, kernel), nn.ReLU()])
            if pooled:
                self.features.append(nn.MaxPool2d(3, stride=2, padding=1))
                height = -(-height // 2)
                breadth = -(-breadth // 2)
        self.classifier = nn.Linear(channels * height * breadth, classes)
        self.architecture = f"alexnet:{width:g}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(self.features(x).flatten(1))
        return scores


def convolution(inputs: int, outputs: int, kernel: int) -> nn.Conv2d:
    """Returns a convolution with He's initial weights.

    Torch's default weights are smaller and would weaken the signal, and there is no BN to correct
    that.
    """
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    assert conv.bias is not None  # a Conv2d has a bias by default
    nn.init.zeros_(conv.bias)
    return conv
