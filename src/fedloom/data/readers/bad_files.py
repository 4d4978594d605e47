"""Files that cannot be read: all are told at once, or left out with `--skip-bad`.

A reader tries every file before it raises `BadFiles`. With `--skip-bad` it is then asked again,
without these, and which they are is kept in the cache: the next opening decodes nothing.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fedloom.data import cache
from fedloom.data.source import SkippedFile
from fedloom.errors import FedloomError


class BadFiles(Exception):
    """Files that could not be read, among others that could."""

    def __init__(self, files: Sequence[SkippedFile]) -> None:
        super().__init__(f"{len(files)} files could not be read")
        self.files = files


class Version(NamedTuple):
    """What tells one version of a file from another: archives set mtime, nothing sets ctime."""

    size: int
    mtime: int  # in nanoseconds
    ctime: int


class Listing(NamedTuple):
    """The version of every file, and those that are no files."""

    versions: dict[str, Version]
    bad: list[SkippedFile]


class WholeFiles(NamedTuple):
    x: np.ndarray  # a row a sample
    places: list[int]  # of these samples among those that were asked for
    skipped: tuple[SkippedFile, ...]


def bad_file(file: str, error: FedloomError) -> SkippedFile:
    return SkippedFile(file, error.must, error.found, error.todo)


def unknown_format(file: str) -> str:
    """What a file has whose name says nothing, in the words of an error."""
    suffix = os.path.splitext(file)[1]
    if not suffix:
        return "an unknown format (its name has no ending)"
    return f"an unknown format (its name ends in {suffix})"


def listed(files: Iterable[str], must_be: str) -> Listing:
    """`must_be`: what each has to be, as in "an image file"."""
    versions: dict[str, Version] = {}
    bad: dict[str, SkippedFile] = {}
    for file in files:
        rule = f"{file} must be {must_be}"
        try:
            facts = os.stat(file)
        except OSError as error:
            found = f"it cannot be read ({error.strerror})"
            bad[file] = SkippedFile(file, rule, found, "restore or remove it")
            continue
        if not stat.S_ISREG(facts.st_mode):  # to open a pipe would be to wait for ever
            bad[file] = SkippedFile(file, rule, "it is no file", "remove it")
            continue
        versions[file] = Version(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    return Listing(versions, list(bad.values()))


def read_whole_files(
    files: Sequence[str],
    known_bad: Sequence[SkippedFile],
    read: Callable[[list[int]], np.ndarray],
    *,
    kind: str,
    memory: str,
    skip_bad: bool,
) -> WholeFiles:
    """The samples of those files that can be read.

    `files` has the file of every sample. `read` gives the samples at these places, or raises
    `BadFiles` when it has tried all of them. `kind` is what errors call a file, and `memory` the
    name in the cache under which bad ones are remembered.
    """
    bad = list(known_bad)
    if skip_bad:
        bad = remembered(memory) or bad
    x = None
    while x is None:
        places = places_without(files, bad)
        if not places and skip_bad:
            raise nothing_left(bad, len(files), kind)
        if not places:
            raise refusal(bad, len(files), kind)
        try:
            x = read(places)
        except BadFiles as error:
            bad += error.files
            if skip_bad:
                remember(memory, bad)
        if bad and not skip_bad:
            raise refusal(bad, len(files), kind)
    return WholeFiles(x, places, tuple(sorted(bad)))


def places_without(files: Sequence[str], bad: Iterable[SkippedFile]) -> list[int]:
    bad_names = {file.file for file in bad}
    return [place for place, file in enumerate(files) if file not in bad_names]


def refusal(bad: Sequence[SkippedFile], files: int, kind: str) -> FedloomError:
    """Names every one of them."""
    if len(bad) == 1:
        advice = f"{bad[0].advice}, or leave it out with --skip-bad"
        return FedloomError(bad[0].rule, bad[0].reason, advice)
    return FedloomError(
        f"every {kind} file must be whole",
        f"{len(bad)} of {files} are not",
        "mend or remove them, or leave them out with --skip-bad",
        details=told(bad),
    )


def nothing_left(bad: Sequence[SkippedFile], files: int, kind: str) -> FedloomError:
    return FedloomError(
        f"one {kind} file at least must be whole",
        f"none of {files} is",
        "mend them, or give others",
        details=told(bad),
    )


def told(bad: Iterable[SkippedFile]) -> list[str]:
    return [f"{file.file}: {file.reason}" for file in sorted(bad)]


# Which files are known to be bad


def remembered(name: str) -> list[SkippedFile] | None:
    """None: nothing is known, or it was damaged since."""
    try:
        text = (cache.folder() / name).read_text(encoding="utf-8")
        return [SkippedFile(*map(str, row)) for row in json.loads(text)]
    except (OSError, ValueError, TypeError):
        return None


def remember(name: str, bad: Sequence[SkippedFile]) -> None:
    with cache.filling(cache.folder() / name) as stream:
        stream.write(json.dumps(bad).encode())
