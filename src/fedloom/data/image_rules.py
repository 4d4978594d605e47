"""How image files become samples: what a person may ask for when they are read."""

from __future__ import annotations

from dataclasses import dataclass

from fedloom.config.models import Fit


@dataclass(frozen=True)
class ImageRules:
    side: int | None = None  # every image becomes so many pixels high and wide; None: as it is
    fit: Fit = "stretch"  # what becomes of an image that is not square, if there is a side
    skip_bad: bool = False  # leave out files that cannot be read, .wav too, and tell which
    colour: bool = False  # three channels, even if every image is grey


AS_THEY_ARE = ImageRules()
