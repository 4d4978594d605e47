"""Image files as one array: decoded once into the cache, block by block, then mapped.

All images of a data set have one size, their own or the one that `--resize` gives them. If every
one is grey there is one channel, else three, with grey ones repeated. Bytes stay bytes; where one
has 16 bits, all values are float32 of 16 bits, and images with units of their own (32 bits, DICOM)
keep these. Files that cannot be read are told all at once, or left out with `--skip-bad`.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedloom.data import cache
from fedloom.data.image_rules import AS_THEY_ARE, ImageRules
from fedloom.data.labels import class_order
from fedloom.data.mapped import BLOCK, blocks
from fedloom.data.progress import with_progress
from fedloom.data.readers.image_files import decode, head_of, is_dicom
from fedloom.data.readers.image_heads import Depth, Head
from fedloom.data.resizing import RULE, resized
from fedloom.data.source import SkippedFile, Source
from fedloom.errors import FedloomError

CONSTANT_DIGITS = 6  # of a mean or a spread: more would depend on the order of a sum


class BadFiles(Exception):
    """Files that could not be read, among others that could."""

    def __init__(self, files: Sequence[SkippedFile]) -> None:
        super().__init__(f"{len(files)} files could not be read")
        self.files = files


class Listing(NamedTuple):
    """What tells one version of the files from another, and those that are no files."""

    versions: dict[str, str]
    bad: list[SkippedFile]


class Form(NamedTuple):
    """What all images of a set have in common."""

    shape: tuple[int, ...]  # [c,h,w]
    depth: Depth

    @property
    def dtype(self) -> np.dtype:
        if self.depth == "byte":
            return np.dtype(np.uint8)
        return np.dtype(np.float32)


class Pictures(NamedTuple):
    x: np.ndarray  # [n,c,h,w]
    places: np.ndarray  # of these images among the files that were given
    mean: tuple[float, ...]  # of all pixels, a channel; empty: they are bytes
    std: tuple[float, ...]
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
    """A source of image files and the name of each one's class."""
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
        pictures.mean,
        pictures.std,
        groups=groups,
        group_names=group_names,
        grouping=grouping,
        official=official,
        skipped=pictures.skipped,
    )


def decoded(files: Sequence[str], rules: ImageRules = AS_THEY_ARE) -> Pictures:
    """Mapped from the cache. Which files are bad is kept there too, where they are skipped."""
    if any(is_dicom(file) for file in files):
        from fedloom.data.readers import dicom

        dicom.require()
    listing = listed(files)
    bad = listing.bad
    if rules.skip_bad:
        bad = remembered(listing, rules) or bad
    x = None
    while x is None:
        files_left = whole(files, bad)
        key = listing_key(files_left, listing, rules)
        try:
            x = array_of(files_left, key, rules)
        except BadFiles as error:
            bad = [*bad, *error.files]
            if rules.skip_bad:
                remember(listing, rules, bad)
        if bad and not rules.skip_bad:
            raise refusal(bad, len(files))
    bad_names = {file.file for file in bad}
    places = [place for place, file in enumerate(files) if file not in bad_names]
    mean, std = constants_of(x, key)
    return Pictures(x, np.array(places), mean, std, tuple(bad))


# Which files there are, and which cannot be read


def listed(files: Sequence[str]) -> Listing:
    """By size and times of change: archives set mtime, nothing sets ctime."""
    versions: dict[str, str] = {}
    bad = []
    for file in files:
        try:
            facts = os.stat(file)
        except OSError as error:
            found = f"it cannot be read ({error.strerror})"
            bad.append(SkippedFile(file, f"{file} must be an image file", found))
            continue
        if not stat.S_ISREG(facts.st_mode):  # to open a pipe would be to wait for ever
            bad.append(SkippedFile(file, f"{file} must be an image file", "it is no file"))
            continue
        versions[file] = repr((file, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))
    return Listing(versions, bad)


def whole(files: Sequence[str], bad: Iterable[SkippedFile]) -> list[str]:
    """Those that are not bad."""
    bad_names = {file.file for file in bad}
    return [file for file in files if file not in bad_names]


def listing_key(files: Sequence[str], listing: Listing, rules: ImageRules) -> str:
    """Of every file's path, size and times of change, in order, and of what is made of them."""
    sha = hashlib.sha256(b"pictures 1;")
    for file in files:
        sha.update(listing.versions[file].encode())
    if rules.side is not None:
        sha.update(f"{RULE} {rules.side} {rules.fit};".encode())
    if rules.colour:
        sha.update(b"colour;")
    return sha.hexdigest()[:32]


def refusal(bad: Sequence[SkippedFile], files: int) -> FedloomError:
    """Names every one of them."""
    if len(bad) == 1:
        advice = "restore or remove it, or leave it out with --skip-bad"
        return FedloomError(bad[0].rule, bad[0].reason, advice)
    details = [f"{file.file}: {file.reason}" for file in bad]
    return FedloomError(
        "every image file must be whole",
        f"{len(bad)} of {files} are not",
        "restore or remove them, or leave them out with --skip-bad",
        details=details,
    )


def memory_of(listing: Listing, rules: ImageRules) -> str:
    """The name in the cache of what is known of bad files among these."""
    return f"{listing_key(list(listing.versions), listing, rules)}-bad.json"


def remembered(listing: Listing, rules: ImageRules) -> list[SkippedFile] | None:
    """None: nothing is known, or it was damaged since."""
    try:
        text = (cache.folder() / memory_of(listing, rules)).read_text(encoding="utf-8")
        bad = [SkippedFile(*map(str, row)) for row in json.loads(text)]
    except (OSError, ValueError, TypeError):
        return None
    return bad


def remember(listing: Listing, rules: ImageRules, bad: Sequence[SkippedFile]) -> None:
    with cache.filling(cache.folder() / memory_of(listing, rules)) as stream:
        stream.write(json.dumps(bad).encode())


# The array


def array_of(files: Sequence[str], key: str, rules: ImageRules) -> np.ndarray:
    """[n,c,h,w], mapped. Raises BadFiles when all files have been tried."""
    if not files:
        raise FedloomError(
            "one image file at least must be whole", "none is", "restore them, or give others"
        )
    return cache.kept_array(key, lambda: rows_of(files, rules))


def rows_of(files: Sequence[str], rules: ImageRules) -> cache.Rows:
    heads: dict[str, Head] = {}
    bad: list[SkippedFile] = []
    for file in with_progress("looking at images", files):
        try:
            heads[file] = head_of(file)
        except FedloomError as error:
            bad.append(SkippedFile(file, error.must, error.found))
    if not heads:
        raise BadFiles(bad)
    form = form_of(heads, rules)
    return cache.Rows((len(files), *form.shape), form.dtype, blocks_of(files, form, rules, bad))


def form_of(heads: Mapping[str, Head], rules: ImageRules) -> Form:
    is_colour = rules.colour or any(head.is_colour for head in heads.values())
    channels = 3 if is_colour else 1
    if rules.side is not None:
        shape = (channels, rules.side, rules.side)
    else:
        first = one_size(heads)
        shape = (channels, first.height, first.width)
    return Form(shape, common_depth(heads))


def one_size(heads: Mapping[str, Head]) -> Head:
    """The head of the first file, if all have its size."""
    first_file = next(iter(heads))
    first = heads[first_file]
    size = (first.width, first.height)
    others = [file for file, head in heads.items() if (head.width, head.height) != size]
    if not others:
        return first
    other = heads[others[0]]
    found = f"it is {other.width}×{other.height}"
    if len(others) > 1:
        found = f"{found}, and {len(others) - 1} more have other sizes"
    raise FedloomError(
        f"{others[0]} must be {first.width}×{first.height} pixels as {first_file} is",
        found,
        "bring all to one size with --resize N (--fit crop or pad keeps their proportions)",
    )


def common_depth(heads: Mapping[str, Head]) -> Depth:
    """Bytes among images of 16 bits are brought to these; other units cannot be mixed."""
    example: dict[Depth, str] = {}
    for file, head in heads.items():
        example.setdefault(head.depth, file)
    if "own" in example and len(example) > 1:
        others = [file for depth, file in example.items() if depth != "own"]
        raise FedloomError(
            "all images must have values in the same units",
            f"{example['own']} has units of its own and {others[0]} has 8 or 16 bits",
            "convert one kind, or give them as data sets of their own",
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
    """The images, in blocks; a block is overwritten by the next."""
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
            bad.append(SkippedFile(file, error.must, error.found))
            continue
        filled += 1
        if filled == len(block):
            yield block
            filled = 0
    if bad:  # after all of them, so that they are named together
        raise BadFiles(bad)
    yield block[:filled]


def fitted(image: np.ndarray, form: Form, rules: ImageRules) -> np.ndarray:
    if rules.side is None:
        if image.shape != form.shape:
            found = f"it became {image.shape[2]}×{image.shape[1]} pixels while it was read"
            raise FedloomError("an image must stay as it is", found, "start again")
        return image
    square: np.ndarray = resized(image[None], rules.side, rules.fit)[0]
    return square


# What normalises values that are no bytes


def constants_of(x: np.ndarray, key: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and the spread of all pixels, a channel; bytes need none."""
    if x.dtype == np.uint8:
        return (), ()
    table = cache.kept_array(f"{key}-constants", lambda: measured(x))
    return tuple(table[0].tolist()), tuple(table[1].tolist())


def measured(x: np.ndarray) -> cache.Rows:
    """[mean and spread, channels]."""
    pixels = x.size // x.shape[1]
    mean = np.zeros(x.shape[1])
    for _, block in blocks(x):
        mean += block.sum(axis=(0, 2, 3), dtype=np.float64) / pixels
    variance = np.zeros(x.shape[1])
    for _, block in blocks(x):
        distances = block - mean[:, None, None]
        variance += np.square(distances).sum(axis=(0, 2, 3)) / pixels
    spread = np.sqrt(variance)
    spread[spread == 0] = 1.0  # every pixel is the same: there is nothing to divide by
    table = np.array([[rounded(value) for value in row] for row in (mean, spread)])
    return cache.Rows(table.shape, table.dtype, [table])


def rounded(value: float) -> float:
    return float(f"{value:.{CONSTANT_DIGITS}g}")
