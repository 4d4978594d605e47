"""VGG: Simonyan, Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
ICLR 2015.

This is configuration D, with a BN after every convolution and one linear layer as classifier, as is
usual for small images.
"""

import torch
from torch import nn

from fedloom.nets.heads import HeadChoice, ends_in_map, settled, vector_length
from fedloom.nets.pooling import as_vector

# The channels of the convolutions of each stage. A pooling follows each stage.
STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


@ends_in_map
class VGG16(nn.Module):
    """VGG16 with BN and a linear classifier.

    A pooling that would leave no pixel of a small image is left out.
    """

    def __init__(
        self, shape: tuple[int, ...], classes: int, width: float = 1.0, *, head: HeadChoice = "auto"
    ) -> None:
        super().__init__()
        channels, height, breadth = shape
        self.features = nn.Sequential()
        for stage in STAGES:
            for size in stage:
                before = channels
                channels = max(1, round(size * width))
                conv = nn.Conv2d(before, channels, 3, padding=1)
                self.features.extend([conv, nn.BatchNorm2d(channels), nn.ReLU()])
            if min(height, breadth) >= 2:
                self.features.append(nn.MaxPool2d(2))
                height //= 2
                breadth //= 2
        self.head = settled(head, height, breadth)  # of 32×32 pixels, one is left here
        self.classifier = nn.Linear(vector_length(self.head, channels), classes)
        self.architecture = f"vgg16:{width:g}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(as_vector(self.features(x), self.head))
        return scores
