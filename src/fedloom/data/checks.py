"""Checks of samples, labels, groups and official parts, whichever source they come from.

Arrays are read in blocks, so that a memory-mapped array of a million samples is never loaded whole.
An array that already has the expected layout and type is returned as it is. Any other array is
converted: in memory, or into the cache if it is memory-mapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedloom.data import cache
from fedloom.data.mapped import blocks, place_of
from fedloom.errors import FedloomError, unknown

if TYPE_CHECKING:
    from fedloom.data.source import Source

MAX_CLASSES = 65_536  # a larger label is a mistake, and would create as many class names
LEAST_CLASSES = 2  # in all the data that a model learns from
LEAST_OF_A_SITE = 1  # at one site: other sites may have the other classes
TABLES = ("table", "regression")  # kinds whose samples are rows of numbers
KINDS = ("image", "speech", "text", *TABLES)


class Part(NamedTuple):
    """Checked samples of one file, or of one array in it. Errors call it `where`."""

    where: str
    x: np.ndarray
    y: np.ndarray
    labels: tuple[str, ...]


def checked(
    where: str,
    x: np.ndarray,
    y: np.ndarray,
    labels: tuple[str, ...],
    classes: int | None,
    kind: str = "image",
    least: int = LEAST_CLASSES,
) -> Part:
    """Checks samples and their labels, and returns them in the layout that all later code expects.

    Arrays that have this layout already are returned as they are.
    """
    if kind not in KINDS:
        raise unknown(f"the kind of {where}", kind, KINDS)
    x = np.asarray(x)
    if kind == "regression":
        return Part(where, rows(where, x), numbers(where, np.asarray(y), len(x)), labels)
    count = class_count(where, labels, classes, least)
    if kind == "text":
        x = windows(where, x, count)
    elif kind == "table":
        x = rows(where, x)
    else:
        x = images(where, x)
    y = targets(where, np.asarray(y))
    if len(x) != len(y):
        rule = f"{where} must have as many labels as samples"
        raise FedloomError(rule, f"has {len(x)} and {len(y)} labels", "save one label per sample")
    limit = count or MAX_CLASSES
    wrong = np.flatnonzero((y < 0) | (y >= limit))
    if len(wrong):
        rule = f"the labels of {where} must be class numbers from 0 to {limit - 1}"
        problem = f"row {wrong[0]} has {y[wrong[0]]}"
        raise FedloomError(rule, problem, "correct the labels, or the number of classes")
    return Part(where, x, y.astype(np.int64, copy=False), labels)


# Images


def images(where: str, x: np.ndarray) -> np.ndarray:
    """Returns images as [n,c,h,w], either uint8 or finite float32."""
    shape = f"its shape is {x.shape}"
    if x.size == 0:
        rule = f"{where} must have at least one sample"
        raise FedloomError(rule, shape, "save it again with samples")
    arranged = channels_first(x)
    if arranged.ndim != 4 or arranged.shape[1] > 4:
        rule = f"{where} must be [n,h,w], [n,c,h,w] or [n,h,w,c] with 1 to 4 channels"
        raise FedloomError(rule, shape, "reshape it")
    if x.dtype.kind == "f":
        return finite(where, x)
    if x.dtype.kind not in "iu":
        rule = f"{where} must be integers or floats"
        raise FedloomError(rule, f"its type is {x.dtype}", "convert it")
    low, high = bounds(x)
    if low < 0 or high > 255:
        rule = f"integers of {where} must lie in 0..255"
        raise FedloomError(rule, f"they run from {low} to {high}", "save them as float32")
    return in_layout(x, np.dtype(np.uint8))


def channels_first(x: np.ndarray) -> np.ndarray:
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[1] > 4 and x.shape[3] <= 4:
        return np.moveaxis(x, 3, 1)
    return x


def bounds(x: np.ndarray) -> tuple[int, int]:
    """Returns the smallest and the largest value of an array of integers."""
    if x.dtype == np.uint8:
        return 0, 255  # all that a byte can hold; this saves a pass over gigabytes
    lows = []
    highs = []
    for _, block in blocks(x):
        lows.append(int(block.min()))
        highs.append(int(block.max()))
    return min(lows), max(highs)


def finite(where: str, x: np.ndarray) -> np.ndarray:
    """Returns `x` as float32, with channels first.

    Refuses values that are not finite in float32.
    """
    for start, block in blocks(x):
        with np.errstate(over="ignore"):  # a float64 too large for float32 becomes Inf
            values_finite = np.isfinite(block.astype(np.float32, copy=False))
        rows_finite = values_finite.reshape(len(block), -1).all(axis=1)
        if not rows_finite.all():
            rule = f"{where} must be finite in float32"
            problem = f"row {start + rows_finite.argmin()} has NaN or Inf"
            raise FedloomError(rule, problem, "clean or drop such samples")
    return in_layout(x, np.dtype(np.float32))


def in_layout(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns `x` as a contiguous array of this type, with channels first.

    The result is in memory if `x` is. Otherwise it is memory-mapped: from the file of `x` if
    nothing has to be converted, else from the cache.
    """
    arranged = channels_first(x)
    place = place_of(x)
    if place is None or (arranged.flags.c_contiguous and x.dtype == dtype):
        return np.ascontiguousarray(arranged.astype(dtype, copy=False))
    version = cache.version_of(place.file)
    key = cache.key_of(version, place.offset, x.shape, x.dtype.str, dtype.str)
    rows = cache.Rows(arranged.shape, dtype, arranged_blocks(x))
    return cache.cached_array(key, lambda: rows)


def arranged_blocks(x: np.ndarray) -> Iterator[np.ndarray]:
    for _, block in blocks(x):
        yield channels_first(block)


# Text


def windows(where: str, x: np.ndarray, symbols: int | None) -> np.ndarray:
    """Returns windows of symbol numbers, [n,window], as uint8 if they fit, else as int32."""
    if x.ndim != 2 or x.size == 0 or x.dtype.kind not in "iu":
        rule = f"{where} must be [n,window] symbol numbers"
        problem = f"got {x.dtype} of shape {x.shape}"
        raise FedloomError(rule, problem, "give at least one window of integers")
    if symbols is None:
        rule = f"{where} must name its symbols"
        advice = "give them as labels, or their number as classes"
        raise FedloomError(rule, "it has no labels", advice)
    for start, block in blocks(x):
        wrong = np.argwhere((block < 0) | (block >= symbols))
        if len(wrong):
            row, column = wrong[0]
            rule = f"{where} must have symbol numbers from 0 to {symbols - 1}"
            problem = f"row {start + row} has {block[row, column]}"
            raise FedloomError(rule, problem, "number the symbols from 0")
    dtype = symbol_type(symbols)
    return x.astype(dtype, copy=False)  # overlapping windows stay a view


def symbol_type(symbols: int) -> np.dtype:
    """Returns the smallest type for so many symbols in which torch computes fully."""
    if symbols <= 256:
        return np.dtype(np.uint8)
    return np.dtype(np.int32)


# Tables


def rows(where: str, x: np.ndarray) -> np.ndarray:
    """Returns the rows of a table, [n,inputs], as finite float32."""
    if x.ndim != 2 or x.size == 0 or x.dtype.kind != "f":
        rule = f"{where} must be [n,inputs] numbers"
        problem = f"got {x.dtype} of shape {x.shape}"
        raise FedloomError(rule, problem, "give at least one row of floats")
    return finite(where, x)


def numbers(where: str, y: np.ndarray, samples: int) -> np.ndarray:
    """Returns the labels of a regression, [n], as finite float32."""
    if y.shape != (samples,) or y.dtype.kind != "f" or not np.isfinite(y).all():
        rule = f"{where} must have a finite number as the label of each of its {samples} samples"
        raise FedloomError(rule, f"got {y.dtype} of shape {y.shape}", "correct the labels")
    return y.astype(np.float32, copy=False)


# Labels


def targets(where: str, y: np.ndarray) -> np.ndarray:
    """Returns class numbers as [n]. They must be integers; their range is checked later."""
    if y.ndim == 2 and y.shape[1] == 1:  # MedMNIST's [n,1]
        y = y[:, 0]
    if y.ndim != 1:
        rule = f"{where} must have one label per sample"
        advice = "choose one column: multi-label data is not supported"
        raise FedloomError(rule, f"the labels have shape {y.shape}", advice)
    if y.dtype.kind not in "iu":
        rule = f"the labels of {where} must be integers"
        problem = f"their type is {y.dtype}"
        raise FedloomError(rule, problem, "save class numbers, y.astype('int64')")
    return y


def class_count(
    where: str,
    labels: tuple[str, ...],
    classes: int | None,
    least: int,
) -> int | None:
    """Returns how many classes were declared, by name or by number.

    None: none were declared, so the labels themselves decide.
    """
    if classes is not None and labels and classes != len(labels):
        rule = f"classes must be the number of label names of {where}"
        raise FedloomError(rule, f"got {classes} and {len(labels)} names", "leave it out")
    if len(set(labels)) < len(labels):
        repeated = next(label for label in labels if labels.count(label) > 1)
        rule = f"{where} must name every class once"
        raise FedloomError(rule, f"{repeated!r} comes twice", "rename one")
    count = classes
    if labels:
        count = len(labels)
    if count is not None and not least <= count <= MAX_CLASSES:
        rule = f"{where} must have {least} to {MAX_CLASSES} classes"
        raise FedloomError(rule, f"got {count}", "name every class")
    return count


def class_names(
    part: Part,
    classes: int | None,
    least: int = LEAST_CLASSES,
) -> tuple[str, ...]:
    if part.labels:
        return part.labels
    has_one_class = part.y.min() == part.y.max()
    if classes is None and has_one_class and least > LEAST_OF_A_SITE:
        rule = f"{part.where} must have at least 2 classes"
        advice = "give the number of classes if the others have no samples here"
        raise FedloomError(rule, f"every label is {part.y[0]}", advice)
    count = classes or int(part.y.max()) + 1
    return tuple(str(label) for label in range(count))


# Normalisation constants, groups and official parts


def constants(
    name: str,
    numbers: Sequence[float],
    default: float,
    channels: int,
) -> tuple[float, ...]:
    """Returns one number per channel: those given, a single given one repeated, or the default."""
    values = tuple(float(number) for number in numbers)
    if not values and channels:
        values = (default,)
    valid = all(np.isfinite(value) and (value > 0 or name == "mean") for value in values)
    if not valid or len(values) not in (1, channels):
        rule = f"{name} must be 1 or {channels} finite numbers"
        if channels == 1:
            rule = f"{name} must be 1 finite number"
        if name == "std":
            rule = f"{rule} above 0"
        raise FedloomError(rule, f"got {list(values)}", "give one per channel, in raw units")
    if len(values) == channels:
        return values
    return values * channels


def checked_groups(part: Part, source: Source) -> np.ndarray | None:
    if source.groups is None:
        return None
    groups = np.asarray(source.groups)
    count = len(source.group_names)
    well_formed = groups.shape == part.y.shape and groups.dtype.kind in "iu"
    if not well_formed or groups.min() < 0 or groups.max() >= count:
        rule = f"groups of {part.where} must be one index into its {count} group_names per sample"
        problem = f"got {groups.dtype} of shape {groups.shape}"
        if well_formed:
            problem = f"got indices from {groups.min()} to {groups.max()}"
        raise FedloomError(rule, problem, "number the groups from 0, and name each of them")
    return groups.astype(np.int64)


def checked_official(part: Part, source: Source) -> np.ndarray | None:
    if source.official is None:
        return None
    official = np.asarray(source.official)
    well_formed = official.shape == part.y.shape and official.dtype.kind in "iu"
    if not well_formed or official.min() < 0 or official.max() > 2:
        parts = "0 (train), 1 (validation) or 2 (test)"
        rule = f"official of {part.where} must be {parts} for each sample"
        problem = f"got {official.dtype} of shape {official.shape}"
        raise FedloomError(rule, problem, "mark every sample or none")
    return official.astype(np.uint8)
