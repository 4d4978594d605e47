"""One image file as an array: its head first, then its pixels.

Grey images have 8, 16 or 32 bits, colours 8 a channel (16-bit colours come from Pillow with their
upper 8). Palettes become colours; an alpha channel is dropped if it hides nothing, and refused if
it does. Only plain formats are opened, a file's head is looked at before its pixels, and nothing in
a file can run.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from PIL import Image

from fedloom.data.readers.bad_files import unknown_format
from fedloom.data.readers.image_heads import Depth, Head, check_size, repeated
from fedloom.errors import FedloomError

# Pillow knows more formats; one of them starts programs.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
DICOM_SUFFIXES = {".dcm", ".dicom"}
SUFFIXES = {
    ".bmp",
    ".gif",
    ".jpeg",
    ".jpg",
    ".pgm",
    ".png",
    ".ppm",
    ".tif",
    ".tiff",
    ".webp",
    *DICOM_SUFFIXES,
}
# Pillow's modes
GREY = frozenset(("1", "L", "LA"))
COLOUR = frozenset(("P", "PA", "RGB", "RGBA"))
SHORT = frozenset(("I;16", "I;16B", "I;16L", "I;16N"))
OWN = frozenset(("I", "F"))
BYTE_TO_SHORT = 257  # white is 255 of 8 bits and 65,535 of 16

Result = TypeVar("Result")


def is_picture(file: str) -> bool:
    return os.path.splitext(file)[1].lower() in SUFFIXES


def is_dicom(file: str) -> bool:
    return os.path.splitext(file)[1].lower() in DICOM_SUFFIXES


def head_of(file: str) -> Head:
    if not is_picture(file):
        rule = f"{file} must be an image ({', '.join(sorted(SUFFIXES))})"
        raise FedloomError(rule, f"it has {unknown_format(file)}", "convert, hide or remove it")

    def read() -> Head:
        if is_dicom(file):
            from fedloom.data.readers import dicom

            return dicom.head_of(file)
        with Image.open(file, formats=FORMATS) as image:
            check(file, image)
            return Head(image.width, image.height, image.mode in COLOUR, depth_of(image))

    return reading(file, read)


def decode(file: str, channels: int, depth: Depth = "byte") -> np.ndarray:
    """[c,h,w], uint8 for bytes, else float32. `depth`: what all images of the set count in."""

    def read() -> np.ndarray:
        if is_dicom(file):
            from fedloom.data.readers import dicom

            return dicom.planes(file, channels)
        with Image.open(file, formats=FORMATS) as image:
            check(file, image)
            return planes(file, image, channels)

    image = reading(file, read)
    if depth == "byte" or image.dtype != np.uint8:
        return image
    return image.astype(np.float32) * BYTE_TO_SHORT


def reading(file: str, read: Callable[[], Result]) -> Result:
    """What `read` gives; what goes wrong becomes a sentence that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they warn of is refused, or harms no pixel
            return read()
    except FedloomError:
        raise
    except Exception as error:  # a damaged file can raise almost anything
        words = str(error).replace(repr(file), "").split()
        reason = " ".join(words)[:200].rstrip(".") or type(error).__name__
        rule = f"{file} must be a whole image"
        found = f"it could not be read ({reason})"
        raise FedloomError(rule, found, "restore or remove it") from error


# Pillow's images


def check(file: str, image: Image.Image) -> None:
    """What a file's head tells, before a pixel is decoded."""
    check_size(file, image.width, image.height)
    if getattr(image, "is_animated", False):
        raise FedloomError(f"{file} must be one image", "it is animated", "save the frame you mean")
    if image.mode not in GREY | COLOUR | SHORT | OWN:
        rule = f"{file} must be grey or RGB"
        advice = "convert it, or save all as float32 in an .npz"
        raise FedloomError(rule, f"its mode is {image.mode}", advice)


def depth_of(image: Image.Image) -> Depth:
    if image.mode in SHORT:
        return "short"
    if image.mode in OWN:
        return "own"
    return "byte"


def channels_of(image: Image.Image) -> int:
    if image.mode in COLOUR:
        return 3
    return 1


def planes(file: str, image: Image.Image, channels: int) -> np.ndarray:
    """[c,h,w], uint8 or float32, without palette and alpha."""
    if depth_of(image) != "byte":
        values = np.asarray(image).astype(np.float32)
        transparent = image.info.get("transparency")
        if isinstance(transparent, int) and (values == transparent).any():
            raise not_opaque(file)
        return repeated(values, channels)
    alpha = image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info
    if alpha and image.convert("RGBA").getchannel("A").getextrema() != (255, 255):
        raise not_opaque(file)
    if channels == 1:
        return np.asarray(image.convert("L"))[None]
    return np.moveaxis(np.asarray(image.convert("RGB")), 2, 0)


def not_opaque(file: str) -> FedloomError:
    found = "parts of it are transparent"
    return FedloomError(f"{file} must be opaque", found, "put it on a background of your choice")
