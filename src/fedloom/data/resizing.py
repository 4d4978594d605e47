"""Images of another size: `--resize N` makes every image N×N, whatever it is read from.

A side that shrinks is averaged by area: each new pixel is the mean of what it covers, a pixel that
it covers in part counted in part. A side that grows is interpolated between the two nearest pixels
(bilinear, pixels being squares). Weights are whole numbers and sums are exact, so that bytes come
out the same on every machine, rounded to the nearest, halves up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedloom.data import cache
from fedloom.data.mapped import blocks, place_of
from fedloom.data.source import Source
from fedloom.errors import FedloomError

RULE = "area 1"  # of a cached array: another rule of resizing would need another name


def resized_source(source: Source, side: int) -> Source:
    """The same images, `side` pixels high and wide. Constants of normalisation stay as they are."""
    if source.kind != "image":
        raise FedloomError(
            "--resize must be given to images",
            f"{source.name} is {source.kind}",
            "leave it out",
        )
    return replace(source, x=resized(source.x, side))


def resized(x: np.ndarray, side: int) -> np.ndarray:
    """[n,c,h,w] as [n,c,side,side]. What lies in a file is resized once, into the cache."""
    if x.shape[2:] == (side, side):
        return x
    shape = (*x.shape[:2], side, side)
    place = place_of(x)
    if place is None:
        images = np.empty(shape, x.dtype)
        start = 0
        for block in resized_blocks(x, side):
            images[start : start + len(block)] = block
            start += len(block)
        return images
    version = cache.version_of(place.file)
    key = cache.key_of(RULE, version, place.offset, list(x.shape), x.dtype.str, side)
    return cache.kept_array(key, lambda: cache.Rows(shape, x.dtype, resized_blocks(x, side)))


def resized_blocks(x: np.ndarray, side: int) -> Iterator[np.ndarray]:
    rows = side_weights(x.shape[2], side)
    columns = side_weights(x.shape[3], side)
    parts = float(rows[0].sum() * columns[0].sum())  # the weights of every new pixel sum to this
    for _, block in blocks(x):
        sums = rows @ block.astype(np.float64) @ columns.T
        if x.dtype == np.uint8:
            yield np.floor((2 * sums + parts) / (2 * parts)).astype(np.uint8)
        else:
            yield (sums / parts).astype(x.dtype)


def side_weights(before: int, after: int) -> np.ndarray:
    """[after, before]: how much of each old pixel goes into each new one, in whole numbers."""
    if after <= before:
        return area_weights(before, after)
    return bilinear_weights(before, after)


def area_weights(before: int, after: int) -> np.ndarray:
    """The side is cut into before × after parts: an old pixel has `after`, a new one `before`."""
    weights = np.zeros((after, before))
    for new in range(after):
        for old in range(before):
            begin = max(old * after, new * before)
            end = min((old + 1) * after, (new + 1) * before)
            weights[new, old] = max(0, end - begin)
    return weights


def bilinear_weights(before: int, after: int) -> np.ndarray:
    """Distances between centres, in 2 × after parts of an old pixel; beyond the rim it repeats."""
    whole = 2 * after
    weights = np.zeros((after, before))
    for new in range(after):
        place = (2 * new + 1) * before - after  # of its centre, from that of the first old pixel
        left, beyond = divmod(place, whole)
        weights[new, min(max(left, 0), before - 1)] += whole - beyond
        weights[new, min(max(left + 1, 0), before - 1)] += beyond
    return weights
