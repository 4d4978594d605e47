"""Files that cannot be read: one error names all of them, or `--skip-bad` leaves them out.

A reader tries every file before it raises `BadFiles`. With `--skip-bad` it is then called again
without these files. The cache remembers which they are, so opening the data again decodes nothing.
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
    """What changes whenever a file does. Archives can set mtime, but nothing can set ctime."""

    size: int
    mtime: int  # in nanoseconds
    ctime: int


class Listing(NamedTuple):
    """The version of every file, and paths that are not files."""

    versions: dict[str, Version]
    bad: list[SkippedFile]


class WholeFiles(NamedTuple):
    """The samples of all files that could be read."""

    x: np.ndarray  # one row per sample
    places: list[int]  # the indices of these samples among those that were asked for
    skipped: tuple[SkippedFile, ...]


def bad_file(file: str, error: FedloomError) -> SkippedFile:
    return SkippedFile(file, error.rule, error.found, error.advice)


def unknown_format(file: str) -> str:
    """Describes the format of a file whose name ends in nothing known, for an error."""
    suffix = os.path.splitext(file)[1]
    if not suffix:
        return "an unknown format (its name has no ending)"
    return f"an unknown format (its name ends in {suffix})"


def listed(files: Iterable[str], must_be: str) -> Listing:
    """Looks up the version of every file. `must_be` names what each must be: "an image file"."""
    versions: dict[str, Version] = {}
    bad: dict[str, SkippedFile] = {}
    for file in files:
        rule = f"{file} must be {must_be}"
        try:
            facts = os.stat(file)
        except OSError as error:
            problem = f"it cannot be read ({error.strerror})"
            bad[file] = SkippedFile(file, rule, problem, "restore or remove it")
            continue
        if not stat.S_ISREG(facts.st_mode):  # opening a pipe could wait for ever
            bad[file] = SkippedFile(file, rule, "it is not a file", "remove it")
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
    """Returns the samples of those files that can be read.

    `files` has the file of every sample. `read` returns the samples at the given indices, or raises
    `BadFiles` after it has tried all of them. Errors call a file `kind`. `memory` is the name of
    the cache file that remembers bad files.
    """
    bad = list(known_bad)
    if skip_bad:
        bad = remembered(memory) or bad
    x = None
    while x is None:
        places = places_without(files, bad)
        if not places and skip_bad:
            raise none_usable(bad, len(files), kind)
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
    """The error that names every bad file."""
    if len(bad) == 1:
        advice = f"{bad[0].advice}, or leave it out with --skip-bad"
        return FedloomError(bad[0].rule, bad[0].reason, advice)
    return FedloomError(
        f"every {kind} file must be usable",
        f"{len(bad)} of {files} are not",
        "repair or remove them, or leave them out with --skip-bad",
        details=reasons(bad),
    )


def none_usable(bad: Sequence[SkippedFile], files: int, kind: str) -> FedloomError:
    return FedloomError(
        f"at least one {kind} file must be usable",
        f"none of {files} is",
        "repair them, or give others",
        details=reasons(bad),
    )


def reasons(bad: Iterable[SkippedFile]) -> list[str]:
    return [f"{file.file}: {file.reason}" for file in sorted(bad)]


# Remembering bad files


def remembered(name: str) -> list[SkippedFile] | None:
    """Returns the bad files that the cache remembers. None: it has no readable note of them."""
    try:
        text = (cache.folder() / name).read_text(encoding="utf-8")
        return [SkippedFile(*map(str, row)) for row in json.loads(text)]
    except (OSError, ValueError, TypeError):
        return None


def remember(name: str, bad: Sequence[SkippedFile]) -> None:
    with cache.filling(cache.folder() / name) as stream:
        stream.write(json.dumps(bad).encode())
