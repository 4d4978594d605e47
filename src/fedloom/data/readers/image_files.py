"""Reads one image file as an array: its header first, then its pixels.

Grey images have 8, 16 or 32 bits, colour images 8 per channel (of 16-bit colours, Pillow reads the
upper 8 bits). Palettes become colours. An alpha channel is dropped if everything is opaque;
otherwise the file is refused. Only plain formats are opened, a file's header is checked before its
pixels are decoded, and nothing in a file can run.
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

# Pillow supports more formats, and one of them starts programs.
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
    """Decodes an image as [c,h,w]: uint8 if it has bytes, else float32.

    `depth` is that of all images of the data set: bytes among 16-bit images are scaled to 16 bits.
    """

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
    """Calls `read`, and turns its errors into a sentence that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are about what is refused or harmless
            return read()
    except FedloomError:
        raise
    except Exception as error:  # a damaged file can raise almost anything
        message = " ".join(str(error).replace(repr(file), "").split())
        reason = message[:200].rstrip(".") or type(error).__name__
        rule = f"{file} must be a complete image"
        problem = f"it could not be read ({reason})"
        raise FedloomError(rule, problem, "restore or remove it") from error


# Images opened by Pillow


def check(file: str, image: Image.Image) -> None:
    """Checks what a file's header says, before pixels are decoded."""
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
    """Returns the pixels as [c,h,w], uint8 or float32, without palette and alpha."""
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
    problem = "parts of it are transparent"
    return FedloomError(f"{file} must be opaque", problem, "put it on a background of your choice")
