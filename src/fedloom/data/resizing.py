"""Resizing of images: `--resize N` makes every image N×N, whatever it is read from.

An image that is not square is stretched; or with `--fit crop` it is cut to its central square; or
with `--fit pad` it is put in the middle of a black square. Black is 0 for bytes. Floats have no
fixed black, so it is the lowest value of the image. If an odd number of pixels is cut or added, the
extra one is on the right or at the bottom.

A side that shrinks is averaged by area: each new pixel is the mean of the old pixels that it
covers, and one that it covers in part counts in part. A side that grows is interpolated between the
two nearest pixels (bilinear, with pixels as squares). Weights are whole numbers and sums are exact,
so bytes are the same on every machine: rounded to the nearest, halves up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from fedloom.config.models import Fit
from fedloom.data import cache
from fedloom.data.mapped import blocks, place_of
from fedloom.data.source import Source
from fedloom.errors import FedloomError

RULE = "area 1"  # part of a cached array's key: another way of resizing needs another name


def resized_source(source: Source, side: int, fit: Fit = "stretch") -> Source:
    """Returns the same images, `side` pixels high and wide. Their mean and std are not changed."""
    if source.kind != "image":
        raise FedloomError(
            "--resize must be given to images",
            f"{source.name} is {source.kind}",
            "leave it out",
        )
    return replace(source, x=resized(source.x, side, fit))


def resized(x: np.ndarray, side: int, fit: Fit = "stretch") -> np.ndarray:
    """Resizes [n,c,h,w] to [n,c,side,side].

    A memory-mapped array is resized once, into the cache.
    """
    if x.shape[2:] == (side, side):
        return x
    shape = (*x.shape[:2], side, side)
    place = place_of(x)
    if place is None:
        images = np.empty(shape, x.dtype)
        start = 0
        for block in resized_blocks(x, side, fit):
            images[start : start + len(block)] = block
            start += len(block)
        return images
    rule = RULE if fit == "stretch" else f"{RULE}, {fit}"
    version = cache.version_of(place.file)
    key = cache.key_of(rule, version, place.offset, list(x.shape), x.dtype.str, side)
    return cache.cached_array(key, lambda: cache.Rows(shape, x.dtype, resized_blocks(x, side, fit)))


def resized_blocks(x: np.ndarray, side: int, fit: Fit) -> Iterator[np.ndarray]:
    for _, block in blocks(x):
        square = squared(block, fit)
        rows = side_weights(square.shape[2], side)
        columns = side_weights(square.shape[3], side)
        # The weights of every new pixel have the same sum.
        total_weight = float(rows[0].sum() * columns[0].sum())
        sums = rows @ square.astype(np.float64) @ columns.T
        if x.dtype == np.uint8:
            yield np.floor((2 * sums + total_weight) / (2 * total_weight)).astype(np.uint8)
        else:
            yield (sums / total_weight).astype(x.dtype)


def squared(x: np.ndarray, fit: Fit) -> np.ndarray:
    """Makes images square: cuts out the central square, or pads them with black."""
    height, width = x.shape[2:]
    if fit == "stretch" or height == width:
        return x
    if fit == "crop":
        side = min(height, width)
        top = (height - side) // 2
        left = (width - side) // 2
        return x[:, :, top : top + side, left : left + side]
    side = max(height, width)
    top = (side - height) // 2
    left = (side - width) // 2
    square = np.zeros((*x.shape[:2], side, side), x.dtype)
    if x.dtype != np.uint8:
        square += x.min(axis=(1, 2, 3), keepdims=True)
    square[:, :, top : top + height, left : left + width] = x
    return square


@lru_cache(maxsize=32)  # the files of a folder have few sizes, and each occurs many times
def side_weights(before: int, after: int) -> np.ndarray:
    """[after, before]: how much of each old pixel goes into each new one, in whole numbers."""
    make_weights = area_weights if after <= before else bilinear_weights
    weights = make_weights(before, after)
    weights.flags.writeable = False
    return weights


def area_weights(before: int, after: int) -> np.ndarray:
    """Weights by covered area, for a side that shrinks.

    The side is divided into before × after parts: an old pixel has `after` of them, a new one
    `before`.
    """
    new = np.arange(after)[:, None]
    old = np.arange(before)[None]
    begin = np.maximum(old * after, new * before)
    end = np.minimum((old + 1) * after, (new + 1) * before)
    weights: np.ndarray = np.maximum(0, end - begin).astype(np.float64)
    return weights


def bilinear_weights(before: int, after: int) -> np.ndarray:
    """Weights by distance between pixel centres, for a side that grows.

    Distances are counted in parts of an old pixel, 2 × after of them. Beyond the border the
    outermost pixel repeats.
    """
    pixel = 2 * after
    weights = np.zeros((after, before))
    for new in range(after):
        place = (2 * new + 1) * before - after  # of its centre, from that of the first old pixel
        left, beyond = divmod(place, pixel)
        weights[new, min(max(left, 0), before - 1)] += pixel - beyond
        weights[new, min(max(left + 1, 0), before - 1)] += beyond
    return weights
