"""Features of speech: one second of sound as 40 numbers at 51 times, log-mel or MFCC.

A clip is cut to its first second, or padded with zeros at its end. It has 51 frames: windows of 40
ms (periodic Hann) every 20 ms, each centred on its time, with zeros beyond the ends. The power
spectrum of each frame is summed in 40 triangles of height 1, whose corners are equally spaced on
the mel scale, 2595·log10(1 + f/700), from 20 Hz to half the rate. `logmel` is the natural logarithm
of that, with 10⁻⁶ added; `mfcc` is its orthonormal DCT-II over the bands, with all 40 coefficients.

Everything is computed in float64, in plain torch, and rounded to float32 at the end. Torch is
imported with the first clip: listing the known data sets does not wait for it.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedloom.errors import unknown

if TYPE_CHECKING:
    import torch

BANDS = 40
FRAMES = 51
LOWEST = 20.0  # Hz
FLOOR = 1e-6  # keeps the logarithm finite, and the noise of 16 bits out of it
KINDS = ("mfcc", "logmel")


def features(sound: np.ndarray, rate: int, kind: str = "mfcc") -> np.ndarray:
    """Turns [samples] into [1, 40, 51] float32: channel, bands from the lowest, frames."""
    import torch

    if kind not in KINDS:
        raise unknown("the kind of features", kind, KINDS)
    hop = rate // (FRAMES - 1)
    second = torch.from_numpy(sound[:rate].astype(np.float64))
    clip = torch.zeros(rate + 2 * hop, dtype=torch.float64)  # half a window of zeros at both ends
    clip[hop : hop + len(second)] = second
    frames = clip.unfold(0, 2 * hop, hop) * torch.hann_window(2 * hop, dtype=torch.float64)
    power = torch.fft.rfft(frames).abs().square()  # [51, bins]
    values = torch.log(power @ mel_bank(rate) + FLOOR)
    if kind == "mfcc":
        values = values @ dct()
    return values.T[None].to(torch.float32).numpy()


def mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


@cache
def mel_bank(rate: int) -> torch.Tensor:
    """Returns [bins, 40]: the weight of each frequency in each band."""
    import torch

    marks = torch.linspace(mel(LOWEST), mel(rate / 2), BANDS + 2, dtype=torch.float64)
    corners = 700 * (10 ** (marks / 2595) - 1)
    hertz = torch.fft.rfftfreq(2 * (rate // (FRAMES - 1)), 1 / rate, dtype=torch.float64)[:, None]
    rise = (hertz - corners[:-2]) / (corners[1:-1] - corners[:-2])
    fall = (corners[2:] - hertz) / (corners[2:] - corners[1:-1])
    return torch.minimum(rise, fall).clamp(min=0)


@cache
def dct() -> torch.Tensor:
    """Returns the orthonormal DCT-II as [40, 40], with one column per coefficient."""
    import torch

    n = torch.arange(BANDS, dtype=torch.float64)
    table = torch.cos(math.pi / BANDS * (n[:, None] + 0.5) * n) * math.sqrt(2 / BANDS)
    table[:, 0] /= math.sqrt(2)
    return table
