"""Image files as one array: decoded once into the cache, block by block, then memory-mapped.

All images of a data set have one size, their own or the one that `--resize` gives them. If all are
grey there is one channel, else three, and grey images are repeated in each. Bytes stay bytes. If
any image has 16 bits, all values become float32 on the scale of 16 bits. Images in units of their
own (32 bits, DICOM) keep them. If files cannot be read, one error names all of them, or
`--skip-bad` leaves them out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedloom.data import cache
from fedloom.data.image_rules import AS_THEY_ARE, ImageRules
from fedloom.data.labels import class_order
from fedloom.data.mapped import BLOCK, blocks
from fedloom.data.progress import with_progress
from fedloom.data.readers.bad_files import (
    BadFiles,
    Listing,
    bad_file,
    listed,
    read_whole_files,
)
from fedloom.data.readers.image_files import decode, head_of, is_dicom
from fedloom.data.readers.image_heads import Depth, Head
from fedloom.data.resizing import RULE, resized
from fedloom.data.source import SkippedFile, Source
from fedloom.errors import FedloomError

CONSTANT_DIGITS = 6  # of mean and standard deviation: more would depend on the order of a sum


class Form(NamedTuple):
    """What all images of a data set have in common."""

    shape: tuple[int, ...]  # [c,h,w]
    depth: Depth

    @property
    def dtype(self) -> np.dtype:
        if self.depth == "byte":
            return np.dtype(np.uint8)
        return np.dtype(np.float32)


class Constants(NamedTuple):
    """Mean and standard deviation over all pixels, one per channel; empty for bytes."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


class Pictures(NamedTuple):
    """The images of all files that could be read."""

    x: np.ndarray  # [n,c,h,w]
    places: np.ndarray  # the indices of these images among the given files
    constants: Constants
    skipped: tuple[SkippedFile, ...]


def picture_source(
    name: str,
    files: Sequence[str],
    labels: Sequence[str],
    rules: ImageRules = AS_THEY_ARE,
    *,
    groups: np.ndarray | None = None,
    group_names: tuple[str, ...] = (),
    grouping: str = "site",
    official: np.ndarray | None = None,
) -> Source:
    """Makes a source of image files, given the class name of each file."""
    names = class_order(set(labels))
    numbers = {label: number for number, label in enumerate(names)}
    y = np.fromiter((numbers[label] for label in labels), np.int64, len(labels))
    pictures = decoded(files, rules)
    if groups is not None:
        groups = groups[pictures.places]
    if official is not None:
        official = official[pictures.places]
    return Source(
        name,
        pictures.x,
        y[pictures.places],
        names,
        pictures.constants.mean,
        pictures.constants.std,
        groups=groups,
        group_names=group_names,
        grouping=grouping,
        official=official,
        skipped=pictures.skipped,
    )


def decoded(files: Sequence[str], rules: ImageRules = AS_THEY_ARE) -> Pictures:
    """Decodes image files into the cache and maps them.

    If bad files are skipped, the cache also remembers which they are.
    """
    if any(is_dicom(file) for file in files):
        from fedloom.data.readers import dicom

        dicom.require()
    listing = listed(files, "an image file")

    def read(places: list[int]) -> np.ndarray:
        chosen = [files[place] for place in places]
        return cache.cached_array(
            key_of(chosen, listing, rules),
            lambda: rows_of(chosen, rules),
        )

    memory = f"{key_of(list(listing.versions), listing, rules)}-bad.json"
    whole = read_whole_files(
        files,
        listing.bad,
        read,
        kind="image",
        memory=memory,
        skip_bad=rules.skip_bad,
    )
    key = key_of([files[place] for place in whole.places], listing, rules)
    constants = constants_of(whole.x, key)
    return Pictures(whole.x, np.array(whole.places), constants, whole.skipped)


def key_of(files: Sequence[str], listing: Listing, rules: ImageRules) -> str:
    """Returns a hash of every file's path, size and times of change, and of the options."""
    sha = hashlib.sha256(b"pictures 1;")
    for file in files:
        sha.update(repr((file, *listing.versions[file])).encode())
    if rules.side is not None:
        sha.update(f"{RULE} {rules.side} {rules.fit};".encode())
    if rules.colour:
        sha.update(b"colour;")
    return sha.hexdigest()[:32]


# The array


def rows_of(files: Sequence[str], rules: ImageRules) -> cache.Rows:
    """Decodes files to [n,c,h,w]. Raises BadFiles after all files have been tried."""
    heads: dict[str, Head] = {}
    bad: list[SkippedFile] = []
    for file in with_progress("checking images", files):
        try:
            heads[file] = head_of(file)
        except FedloomError as error:
            bad.append(bad_file(file, error))
    if not heads:
        raise BadFiles(bad)
    form = form_of(heads, rules)
    return cache.Rows((len(files), *form.shape), form.dtype, blocks_of(files, form, rules, bad))


def form_of(heads: Mapping[str, Head], rules: ImageRules) -> Form:
    """Decides the shape and type that all images get."""
    is_colour = rules.colour or any(head.is_colour for head in heads.values())
    channels = 3 if is_colour else 1
    if rules.side is not None:
        shape = (channels, rules.side, rules.side)
    else:
        first = one_size(heads)
        shape = (channels, first.height, first.width)
    return Form(shape, common_depth(heads))


def one_size(heads: Mapping[str, Head]) -> Head:
    """Returns the header of the first file. Refuses files of another size."""
    first_file = next(iter(heads))
    first = heads[first_file]
    size = (first.width, first.height)
    others = [file for file, head in heads.items() if (head.width, head.height) != size]
    if not others:
        return first
    other = heads[others[0]]
    problem = f"it is {other.width}×{other.height}"
    if len(others) > 1:
        problem = f"{problem}, and {len(others) - 1} more have other sizes"
    raise FedloomError(
        f"{others[0]} must be {first.width}×{first.height} pixels as {first_file} is",
        problem,
        "bring all to one size with --resize N (--fit crop or pad keeps their proportions)",
    )


def common_depth(heads: Mapping[str, Head]) -> Depth:
    """Returns the units that all images get.

    Bytes among 16-bit images are scaled to 16 bits; other units cannot be mixed.
    """
    example: dict[Depth, str] = {}
    for file, head in heads.items():
        example.setdefault(head.depth, file)
    if "own" in example and len(example) > 1:
        others = [file for depth, file in example.items() if depth != "own"]
        raise FedloomError(
            "all images must have values in the same units",
            f"{example['own']} has units of its own and {others[0]} has 8 or 16 bits",
            "convert one kind, or give them as separate data sets",
        )
    if "own" in example:
        return "own"
    return "short" if "short" in example else "byte"


def blocks_of(
    files: Sequence[str],
    form: Form,
    rules: ImageRules,
    bad_heads: Sequence[SkippedFile],
) -> Iterator[np.ndarray]:
    """Yields the images in blocks. Each block is overwritten by the next."""
    bad = list(bad_heads)
    bad_names = {file.file for file in bad_heads}
    image_bytes = int(np.prod(form.shape)) * form.dtype.itemsize
    at_once = min(len(files), max(1, BLOCK // image_bytes))
    block = np.empty((at_once, *form.shape), form.dtype)
    filled = 0
    for file in with_progress("decoding images", files):
        if file in bad_names:
            continue
        try:
            block[filled] = fitted(decode(file, form.shape[0], form.depth), form, rules)
        except FedloomError as error:
            bad.append(bad_file(file, error))
            continue
        filled += 1
        if filled == len(block):
            yield block
            filled = 0
    if bad:  # only now, so that one error names all of them
        raise BadFiles(bad)
    yield block[:filled]


def fitted(image: np.ndarray, form: Form, rules: ImageRules) -> np.ndarray:
    if rules.side is None:
        if image.shape != form.shape:
            problem = f"its size became {image.shape[2]}×{image.shape[1]} while it was read"
            raise FedloomError("an image must stay as it is", problem, "start again")
        return image
    square: np.ndarray = resized(image[None], rules.side, rules.fit)[0]
    return square


# Normalisation of values that are not bytes


def constants_of(x: np.ndarray, key: str) -> Constants:
    """Returns mean and standard deviation over all pixels, per channel. Bytes need none."""
    if x.dtype == np.uint8:
        return Constants()
    mean, std = cache.cached_array(f"{key}-constants", lambda: measured(x))
    return Constants(tuple(mean.tolist()), tuple(std.tolist()))


def measured(x: np.ndarray) -> cache.Rows:
    """Computes mean and standard deviation, as [2, channels]."""
    pixels = x.size // x.shape[1]
    mean = np.zeros(x.shape[1])
    for _, block in blocks(x):
        mean += block.sum(axis=(0, 2, 3), dtype=np.float64) / pixels
    variance = np.zeros(x.shape[1])
    for _, block in blocks(x):
        distances = block - mean[:, None, None]
        variance += np.square(distances).sum(axis=(0, 2, 3)) / pixels
    std = np.sqrt(variance)
    std[std == 0] = 1.0  # all pixels are equal, and 0 cannot be divided by
    constants = np.array(
        [
            [rounded(value) for value in mean],
            [rounded(value) for value in std],
        ]
    )
    return cache.Rows(constants.shape, constants.dtype, [constants])


def rounded(value: float) -> float:
    return float(f"{value:.{CONSTANT_DIGITS}g}")
