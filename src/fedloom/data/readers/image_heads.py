"""What is known of an image file before a pixel is decoded, whatever its format."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from fedloom.errors import FedloomError

MOST_PIXELS = 1 << 24  # of one image: 4096 × 4096

# What an image's values count in: 8 bits, 16 bits, or units of its own, as a scanner's are.
Depth = Literal["byte", "short", "own"]


class Head(NamedTuple):
    width: int
    height: int
    is_colour: bool
    depth: Depth


def check_size(file: str, width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        rule = f"{file} must have at most {MOST_PIXELS:,} pixels"
        raise FedloomError(rule, f"it claims {width}×{height}", "shrink or remove it")


def repeated(grey: np.ndarray, channels: int) -> np.ndarray:
    """[h,w] as [c,h,w]."""
    return np.repeat(grey[None], channels, axis=0)
