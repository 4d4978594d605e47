"""Image files as one array: decoded once into the cache, block by block, then mapped.

All images of a data set have one size. If every one is grey there is one channel, else three, with grey ones repeated.
Palettes become colours; an alpha channel is dropped if it hides nothing, and refused if it does. Only plain formats
are opened, a file's head is looked at before its pixels, and nothing in a file can run.
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

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # Pillow knows more; one of them starts programs
SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
GREY, COLOUR = frozenset(("1", "L", "LA")), frozenset(("P", "PA", "RGB", "RGBA"))  # Pillow's modes
MOST_PIXELS = 1 << 24  # of one image: 4096 × 4096


class Coloured(Exception):
    """A colour image among grey ones: all must be decoded as colour."""


def is_picture(file: str) -> bool:
    return os.path.splitext(file)[1].lower() in SUFFIXES


def class_order(names: set[str]) -> tuple[str, ...]:
    """By number if all are numbers (01 before 1), else by name."""
    numbers = all(name.isdecimal() and len(name) < 20 for name in names)
    return tuple(sorted(names, key=lambda name: (int(name) if numbers else 0, name)))


def picture_source(name: str, files: Sequence[str], labels: Sequence[str], **facts: object) -> Source:
    """A source of image files and the name of each one's class."""
    names = class_order(set(labels))
    number = {label: index for index, label in enumerate(names)}
    y = np.fromiter((number[label] for label in labels), np.int64, len(labels))
    return Source(name, decoded(files), y, names, **facts)  # type: ignore[arg-type]


def decoded(files: Sequence[str]) -> np.ndarray:
    """[n,c,h,w], uint8, mapped from the cache."""
    key = listing_key(files)
    try:
        return cache.kept_array(key, lambda: made(files, 1))
    except Coloured:
        return cache.kept_array(key, lambda: made(files, 3))


def listing_key(files: Sequence[str]) -> str:
    """Of every file's path, size and times of change, in order; archives set mtime, nothing sets ctime."""
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


def made(files: Sequence[str], channels: int) -> tuple[tuple[int, ...], np.dtype, Iterator[np.ndarray]]:
    first = decode(files[0], channels)
    return (len(files), *first.shape), first.dtype, rows(files, first)


def rows(files: Sequence[str], first: np.ndarray) -> Iterator[np.ndarray]:
    """The images, in blocks; a block is overwritten by the next."""
    block = np.empty((min(len(files), max(1, BLOCK // first.nbytes)), *first.shape), np.uint8)
    filled = 0
    for file in with_progress("decoding images", files):
        image = decode(file, len(first))
        if image.shape != first.shape:
            must = f"{file} must be {pixels(first)} pixels as {files[0]} is"
            raise FedloomError(must, f"it is {pixels(image)}", "resize it: all images must have one size")
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
        reason = " ".join(str(error).replace(repr(file), "").split())[:200].rstrip(".") or type(error).__name__
        todo = "restore or remove it"
        raise FedloomError(f"{file} must be a whole image", f"it could not be read ({reason})", todo) from error


def check(file: str, image: Image.Image) -> None:
    """What a file's head tells, before a pixel is decoded."""
    if image.width * image.height > MOST_PIXELS:
        found = f"it claims {image.width}×{image.height}"
        raise FedloomError(f"{file} must have at most {MOST_PIXELS:,} pixels", found, "shrink or remove it")
    if getattr(image, "is_animated", False):
        raise FedloomError(f"{file} must be one image", "it is animated", "save the frame you mean")
    if image.mode not in GREY | COLOUR:
        must = f"{file} must be grey or RGB with 8 bits a channel"
        raise FedloomError(must, f"its mode is {image.mode}", "convert it, or save all as float32 in an .npz")


def planes(file: str, image: Image.Image, channels: int) -> np.ndarray:
    """[c,h,w], uint8, without palette and alpha."""
    alpha = image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info
    if alpha and image.convert("RGBA").getchannel("A").getextrema() != (255, 255):
        found = "parts of it are transparent"
        raise FedloomError(f"{file} must be opaque", found, "put it on a background of your choice")
    values = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return values[None] if channels == 1 else np.moveaxis(values, 2, 0)
