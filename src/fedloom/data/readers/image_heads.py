"""The header of an image file, in any format: what is known before pixels are decoded."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from fedloom.errors import FedloomError

MOST_PIXELS = 1 << 24  # in one image: 4096 × 4096

# The units of an image's values: 8 bits, 16 bits, or its own, as those of a scanner.
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
    """Repeats a grey image [h,w] for every channel, [c,h,w]."""
    return np.repeat(grey[None], channels, axis=0)
