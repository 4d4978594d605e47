"""What samples, labels, groups and official parts must be like, whichever source they come from.

Everything is read in blocks, so that a map of a million samples never lands in memory; what is already in the form
that everything after reads stays as it is, and what is not is rearranged in memory, or in the cache if it is mapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedloom.data import cache
from fedloom.data.mapped import blocks, place_of
from fedloom.errors import FedloomError, unknown

if TYPE_CHECKING:
    from fedloom.data.source import Source

MAX_CLASSES = 65_536  # a label above this is a mistake, and would make as many class names
KINDS = ("image", "speech", "text")


class Part(NamedTuple):
    """Checked samples of one file, or of one array of it; `where` is what an error names."""

    where: str
    x: np.ndarray
    y: np.ndarray
    labels: tuple[str, ...]


def checked(
    where: str, x: np.ndarray, y: np.ndarray, labels: tuple[str, ...], classes: int | None, kind: str = "image"
) -> Part:
    """The samples in the one form that everything after reads. What is checked already stays as it is."""
    if kind not in KINDS:
        raise unknown(f"the kind of {where}", kind, KINDS)
    count = class_count(where, labels, classes)
    x = windows(where, np.asarray(x), count) if kind == "text" else images(where, np.asarray(x))
    y = targets(where, np.asarray(y))
    if len(x) != len(y):
        todo = "save one label a sample"
        raise FedloomError(f"{where} must have as many labels as samples", f"has {len(x)} and {len(y)} labels", todo)
    limit = count or MAX_CLASSES
    wrong = np.flatnonzero((y < 0) | (y >= limit))
    if len(wrong):
        must = f"the labels of {where} must be class numbers from 0 to {limit - 1}"
        todo = "correct the labels, or the number of classes"
        raise FedloomError(must, f"row {wrong[0]} has {y[wrong[0]]}", todo)
    return Part(where, x, y.astype(np.int64, copy=False), labels)


def images(where: str, x: np.ndarray) -> np.ndarray:
    """[n,c,h,w], uint8 or finite float32."""
    found = f"its shape is {x.shape}"
    if x.size == 0:
        raise FedloomError(f"{where} must have at least one sample", found, "save it again with samples")
    arranged = channels_first(x)
    if arranged.ndim != 4 or arranged.shape[1] > 4:
        must = f"{where} must be [n,h,w], [n,c,h,w] or [n,h,w,c] with 1 to 4 channels"
        raise FedloomError(must, found, "reshape it")
    if x.dtype.kind == "f":
        return finite(where, x)
    if x.dtype.kind not in "iu":
        raise FedloomError(f"{where} must be integers or floats", f"its type is {x.dtype}", "convert it")
    low, high = bounds(x)
    if low < 0 or high > 255:
        found = f"they run from {low} to {high}"
        raise FedloomError(f"integers of {where} must lie in 0..255", found, "save them as float32")
    return in_form(x, np.dtype(np.uint8))


def channels_first(x: np.ndarray) -> np.ndarray:
    if x.ndim == 3:
        return x[:, None]
    return np.moveaxis(x, 3, 1) if x.ndim == 4 and x.shape[1] > 4 and x.shape[3] <= 4 else x


def bounds(x: np.ndarray) -> tuple[int, int]:
    """The smallest and the largest of some integers."""
    if x.dtype == np.uint8:
        return 0, 255  # nothing else fits; a pass over gigabytes is saved
    found = [(int(block.min()), int(block.max())) for _, block in blocks(x)]
    return min(low for low, _ in found), max(high for _, high in found)


def finite(where: str, x: np.ndarray) -> np.ndarray:
    for start, block in blocks(x):
        with np.errstate(over="ignore"):  # a float64 too large becomes Inf, and is refused as such
            good = np.isfinite(block.astype(np.float32, copy=False)).reshape(len(block), -1).all(axis=1)
        if not good.all():
            must = f"{where} must be finite in float32"
            found = f"row {start + good.argmin()} has NaN or Inf"
            raise FedloomError(must, found, "clean or drop such samples")
    return in_form(x, np.dtype(np.float32))


def in_form(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Channels first, contiguous, of this type: in memory if `x` is, else mapped, if need be from the cache."""
    arranged, place = channels_first(x), place_of(x)
    if place is None or (arranged.flags.c_contiguous and x.dtype == dtype):
        return np.ascontiguousarray(arranged.astype(dtype, copy=False))
    key = cache.key_of(cache.version_of(place.file), place.offset, x.shape, x.dtype.str, dtype.str)
    return cache.kept_array(key, lambda: (arranged.shape, dtype, (channels_first(block) for _, block in blocks(x))))


def windows(where: str, x: np.ndarray, symbols: int | None) -> np.ndarray:
    """[n,window] symbol numbers of a text, in the smallest of torch's full integer types."""
    if x.ndim != 2 or x.size == 0 or x.dtype.kind not in "iu":
        must = f"{where} must be [n,window] symbol numbers"
        raise FedloomError(must, f"got {x.dtype} of shape {x.shape}", "give at least one window of integers")
    if symbols is None:
        must, todo = f"{where} must name its symbols", "give them as labels, or their number as classes"
        raise FedloomError(must, "it has no labels", todo)
    for start, block in blocks(x):
        wrong = np.argwhere((block < 0) | (block >= symbols))
        if len(wrong):
            row, column = wrong[0]
            must = f"{where} must have symbol numbers from 0 to {symbols - 1}"
            raise FedloomError(must, f"row {start + row} has {block[row, column]}", "number the symbols from 0")
    return x.astype(np.uint8 if symbols <= 256 else np.int32, copy=False)  # overlapping windows stay a view


def targets(where: str, y: np.ndarray) -> np.ndarray:
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y  # MedMNIST's [n,1]
    if y.ndim != 1:
        must, found = f"{where} must have one label a sample", f"the labels have shape {y.shape}"
        raise FedloomError(must, found, "choose one column: multi-label data is not supported")
    if y.dtype.kind not in "iu":
        must, found = f"the labels of {where} must be integers", f"their type is {y.dtype}"
        raise FedloomError(must, found, "save class numbers, y.astype('int64')")
    return y


def class_count(where: str, labels: tuple[str, ...], classes: int | None) -> int | None:
    """How many classes were declared, by name or by number; None: the labels themselves tell."""
    if classes is not None and labels and classes != len(labels):
        found = f"got {classes} and {len(labels)} names"
        raise FedloomError(f"classes must be the number of label names of {where}", found, "leave it out")
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise FedloomError(f"{where} must name every class once", f"{twice!r} comes twice", "rename one")
    count = len(labels) if labels else classes
    if count is not None and not 2 <= count <= MAX_CLASSES:
        found = f"got {count}"
        raise FedloomError(f"{where} must have 2 to {MAX_CLASSES} classes", found, "name every class")
    return count


def class_names(part: Part, classes: int | None) -> tuple[str, ...]:
    if classes is None and not part.labels and part.y.min() == part.y.max():
        must, found = f"{part.where} must have at least 2 classes", f"every label is {part.y[0]}"
        raise FedloomError(must, found, "give the number of classes if the others have no samples here")
    return part.labels or tuple(str(label) for label in range(classes or int(part.y.max()) + 1))


def constants(what: str, given: Sequence[float], default: float, channels: int) -> tuple[float, ...]:
    values = tuple(float(value) for value in given) or (default,) * min(1, channels)
    good = all(np.isfinite(value) and (value > 0 or what == "mean") for value in values)
    if not good or len(values) not in (1, channels):
        count = "1 finite number" if channels == 1 else f"1 or {channels} finite numbers"
        must = f"{what} must be {count}" + " above 0" * (what == "std")
        raise FedloomError(must, f"got {list(values)}", "give one a channel, in raw units")
    return values if len(values) == channels else values * channels


def checked_groups(part: Part, source: Source) -> np.ndarray | None:
    if source.groups is None:
        return None
    groups, count = np.asarray(source.groups), len(source.group_names)
    good = groups.shape == part.y.shape and groups.dtype.kind in "iu"
    if not good or groups.min() < 0 or groups.max() >= count:
        must = f"groups of {part.where} must be one index into its {count} group_names a sample"
        raise FedloomError(must, f"got {groups.dtype} of shape {groups.shape}", "count groups from 0")
    return groups.astype(np.int64)


def checked_official(part: Part, source: Source) -> np.ndarray | None:
    if source.official is None:
        return None
    official = np.asarray(source.official)
    good = official.shape == part.y.shape and official.dtype.kind in "iu"
    if not good or official.min() < 0 or official.max() > 2:
        must = f"official of {part.where} must be 0 (train), 1 (validation) or 2 (test) for each sample"
        raise FedloomError(must, f"got {official.dtype} of shape {official.shape}", "mark every sample or none")
    return official.astype(np.uint8)
