"""Image files as one array: decoded once into the cache, block by block, then mapped.

All images of a data set have one size. If every one is grey there is one channel, else three, with
grey ones repeated. Palettes become colours; an alpha channel is dropped if it hides nothing, and
refused if it does. Only plain formats are opened, a file's head is looked at before its pixels, and
nothing in a file can run.
"""

from __future__ import annotations

import hashlib
import os
import stat
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image

from fedloom.data import cache
from fedloom.data.mapped import BLOCK
from fedloom.data.progress import with_progress
from fedloom.data.source import Source
from fedloom.errors import FedloomError

# Pillow knows more formats; one of them starts programs.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
# Pillow's modes
GREY = frozenset(("1", "L", "LA"))
COLOUR = frozenset(("P", "PA", "RGB", "RGBA"))
MOST_PIXELS = 1 << 24  # of one image: 4096 × 4096


class Coloured(Exception):
    """A colour image among grey ones: all must be decoded as colour."""


def is_picture(file: str) -> bool:
    return os.path.splitext(file)[1].lower() in SUFFIXES


def class_order(names: set[str]) -> tuple[str, ...]:
    """By number if all are numbers (01 before 1), else by name."""
    if all(name.isdecimal() and len(name) < 20 for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def picture_source(
    name: str,
    files: Sequence[str],
    labels: Sequence[str],
    *,
    groups: np.ndarray | None = None,
    group_names: tuple[str, ...] = (),
    grouping: str = "site",
    official: np.ndarray | None = None,
) -> Source:
    """A source of image files and the name of each one's class."""
    names = class_order(set(labels))
    numbers = {label: number for number, label in enumerate(names)}
    y = np.fromiter((numbers[label] for label in labels), np.int64, len(labels))
    return Source(
        name,
        decoded(files),
        y,
        names,
        groups=groups,
        group_names=group_names,
        grouping=grouping,
        official=official,
    )


def decoded(files: Sequence[str]) -> np.ndarray:
    """[n,c,h,w], uint8, mapped from the cache."""
    key = listing_key(files)
    try:
        return cache.kept_array(key, lambda: array_of(files, 1))
    except Coloured:
        return cache.kept_array(key, lambda: array_of(files, 3))


def listing_key(files: Sequence[str]) -> str:
    """Of every file's path, size and times of change, in order.

    Archives set mtime, nothing sets ctime.
    """
    sha = hashlib.sha256(b"pictures 1;")
    for file in files:
        try:
            facts = os.stat(file)
        except OSError as error:
            found = f"it cannot be read ({error.strerror})"
            raise FedloomError(f"{file} must be an image file", found, "restore it") from error
        if not stat.S_ISREG(facts.st_mode):  # to open a pipe would be to wait for ever
            raise FedloomError(f"{file} must be an image file", "it is no file", "remove it")
        sha.update(repr((file, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)).encode())
    return sha.hexdigest()[:32]


def array_of(files: Sequence[str], channels: int) -> cache.Rows:
    first = decode(files[0], channels)
    return cache.Rows((len(files), *first.shape), first.dtype, blocks_of(files, first))


def blocks_of(files: Sequence[str], first: np.ndarray) -> Iterator[np.ndarray]:
    """The images, in blocks; a block is overwritten by the next."""
    at_once = min(len(files), max(1, BLOCK // first.nbytes))
    block = np.empty((at_once, *first.shape), np.uint8)
    filled = 0
    for file in with_progress("decoding images", files):
        image = decode(file, len(first))
        if image.shape != first.shape:
            rule = f"{file} must be {pixels(first)} pixels as {files[0]} is"
            advice = "resize it: all images must have one size"
            raise FedloomError(rule, f"it is {pixels(image)}", advice)
        block[filled] = image
        filled += 1
        if filled == len(block):
            yield block
            filled = 0
    yield block[:filled]


def pixels(image: np.ndarray) -> str:
    return f"{image.shape[2]}×{image.shape[1]}"


def decode(file: str, channels: int) -> np.ndarray:
    """[c,h,w], uint8."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they warn of is refused below, or harms no pixel
            with Image.open(file, formats=FORMATS) as image:
                check(file, image)
                if channels == 1 and image.mode in COLOUR:
                    raise Coloured
                return planes(file, image, channels)
    except (FedloomError, Coloured):
        raise
    except Exception as error:  # a damaged file can raise almost anything
        words = str(error).replace(repr(file), "").split()
        reason = " ".join(words)[:200].rstrip(".") or type(error).__name__
        rule = f"{file} must be a whole image"
        found = f"it could not be read ({reason})"
        raise FedloomError(rule, found, "restore or remove it") from error


def check(file: str, image: Image.Image) -> None:
    """What a file's head tells, before a pixel is decoded."""
    if image.width * image.height > MOST_PIXELS:
        rule = f"{file} must have at most {MOST_PIXELS:,} pixels"
        found = f"it claims {image.width}×{image.height}"
        raise FedloomError(rule, found, "shrink or remove it")
    if getattr(image, "is_animated", False):
        raise FedloomError(f"{file} must be one image", "it is animated", "save the frame you mean")
    if image.mode not in GREY | COLOUR:
        rule = f"{file} must be grey or RGB with 8 bits a channel"
        advice = "convert it, or save all as float32 in an .npz"
        raise FedloomError(rule, f"its mode is {image.mode}", advice)


def planes(file: str, image: Image.Image, channels: int) -> np.ndarray:
    """[c,h,w], uint8, without palette and alpha."""
    alpha = image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info
    if alpha and image.convert("RGBA").getchannel("A").getextrema() != (255, 255):
        found = "parts of it are transparent"
        raise FedloomError(f"{file} must be opaque", found, "put it on a background of your choice")
    if channels == 1:
        return np.asarray(image.convert("L"))[None]
    return np.moveaxis(np.asarray(image.convert("RGB")), 2, 0)
