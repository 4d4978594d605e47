"""VGG: Simonyan, Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015,
configuration D, with a BN after every convolution and one linear layer as its head, as is usual for small images."""

import torch
from torch import nn

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))  # a pooling after each


class VGG16(nn.Module):
    """VGG16 with BN and a linear head; a pooling that would leave nothing of a small image is left out."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: float = 1.0) -> None:
        super().__init__()
        channels, side = shape[0], min(shape[1:])
        self.features = nn.Sequential()
        for stage in STAGES:
            for size in stage:
                before, channels = channels, max(1, round(size * width))
                self.features.extend([nn.Conv2d(before, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()])
            if side >= 2:
                self.features.append(nn.MaxPool2d(2))
                side //= 2
        self.classifier = nn.Linear(channels, classes)
        self.architecture = f"vgg16:{width:g}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classifier(self.features(x).mean((2, 3)))  # 32×32 has come down to one pixel
        return scores
