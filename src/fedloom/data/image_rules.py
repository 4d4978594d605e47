"""Options for reading image files."""

from __future__ import annotations

from dataclasses import dataclass

from fedloom.config.models import Fit


@dataclass(frozen=True)
class ImageRules:
    side: int | None = None  # resize every image to this many pixels per side; None: do not resize
    fit: Fit = "stretch"  # how an image that is not square is resized
    skip_bad: bool = False  # leave out files that cannot be read, .wav too, and list them
    colour: bool = False  # three channels, even if every image is grey


AS_THEY_ARE = ImageRules()
