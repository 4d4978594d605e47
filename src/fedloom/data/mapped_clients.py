"""All clients' samples on disk, memory-mapped by every worker.

A client's samples are copied out of the map when it is that client's turn. Samples that a source
already maps from a file are not copied to the run's folder: a note there says where they lie.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fedloom.data.mapped import Place, map_rows, place_of
from fedloom.data.partition import parse
from fedloom.data.partitions.changes import changed, check_changes
from fedloom.data.partitions.tint import tinted_by
from fedloom.data.parts import size_of_held
from fedloom.data.samples import ClientData, Samples
from fedloom.data.source import Source
from fedloom.data.split import ARRAYS, Split, client_slices
from fedloom.errors import FedloomError
from fedloom.files import whole_file

NOTE = "x.json"
LINK = "x.file"
RULE = "partition.npy"  # exists only if the partition transforms samples


@dataclass(frozen=True)
class Note:
    """The content of `x.json`: where the samples lie, and what tells whether the file changed."""

    file: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    size: int  # of the file, in bytes
    changed: int  # when the file was changed, in nanoseconds


class MappedClients:
    """Read-only maps of the arrays in one folder; 10^5 clients need no Python objects."""

    def __init__(self, arrays: dict[str, np.ndarray], partition: str = "iid") -> None:
        self.x = arrays["x"]
        self.y = arrays["y"]
        self.indices = arrays["indices"]
        self.offsets = arrays["offsets"]
        self.tests = arrays["tests"]
        self.held = arrays["server"]
        self.rule = parse(partition)  # only its transforms still matter

    @classmethod
    def build(cls, folder: Path, source: Source, split: Split) -> MappedClients:
        split.check(source)
        rule = parse(split.partition)
        check_changes(rule, source)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ARRAYS:
            write(folder / f"{name}.npy", getattr(split, name))
        write(folder / "y.npy", source.y)
        write_samples(folder, source.x)
        (folder / RULE).unlink(missing_ok=True)
        if rule.changes:
            write(folder / RULE, np.array(str(rule)))
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> MappedClients:
        arrays = {name: mapped(folder / f"{name}.npy") for name in ("y", *ARRAYS)}
        arrays["x"] = read_samples(folder)
        if not (folder / RULE).exists():
            return cls(arrays)
        return cls(arrays, str(mapped(folder / RULE)))

    def __len__(self) -> int:
        return len(self.tests)

    def client(self, k: int, hold: float = 0.0) -> ClientData:
        """Returns client k's samples.

        `hold` is the share of its samples outside the test part that is held back for validation:
        the last ones.
        """
        if not 0 <= hold < 1:
            rule = "the share held back must be 0 or more and below 1"
            raise FedloomError(rule, f"got {hold}", "try 0.25")
        rest, test = client_slices(self.indices, self.offsets, self.tests, k)
        cut = len(rest) - size_of_held(len(rest), hold)
        return ClientData(
            partial(self.own, k, rest[:cut]),
            partial(self.own, k, rest[cut:]),
            partial(self.own, k, test),
        )

    def own(self, k: int, chosen: np.ndarray) -> Samples:
        """Returns samples as client k sees them: a partition may rotate them or shift their hue."""
        samples = self.samples(chosen)
        return Samples(changed(samples.x, self.rule, k, len(self)), samples.y)

    def server(self) -> Samples | None:
        """Returns the central validation set, if there is one.

        It belongs to no client, so of all transforms it only gets the tint.
        """
        if not len(self.held):
            return None
        samples = self.samples(self.held)
        return Samples(tinted_by(self.rule, samples.x), samples.y)

    def samples(self, chosen: np.ndarray) -> Samples:
        return to_samples(self.x, self.y, chosen)


def to_samples(x: np.ndarray, y: np.ndarray, chosen: np.ndarray) -> Samples:
    return Samples(torch_copy(x[chosen]), torch_copy(y[chosen]))


def torch_copy(values: np.ndarray) -> torch.Tensor:
    """Copies values into memory that torch allocates, with the strides that torch chooses.

    Alignment, and the strides of a single channel (which make torch take another memory format),
    can change the last bits of a sum. The values may also lie in a read-only file, and torch would
    warn if its tensor shared them.
    """
    dtype = torch.from_numpy(np.empty(0, values.dtype)).dtype
    copy = torch.empty(values.shape, dtype=dtype)
    np.copyto(copy.numpy(), values)
    return copy


def write_samples(folder: Path, x: np.ndarray) -> None:
    """Writes `x` to a file, or a note that says which file it is mapped from."""
    (folder / NOTE).unlink(missing_ok=True)  # left by an earlier build
    (folder / LINK).unlink(missing_ok=True)
    place = place_of(x)
    if place is None:
        write(folder / "x.npy", x)
        return
    file = place.file.resolve()
    link = folder / LINK
    with suppress(OSError):  # the file is on another disk, or this disk has no hard links
        os.link(file, link)  # so that the cache may be emptied while the run goes on
        file = link.resolve()
    stat = file.stat()
    note = Note(
        file=str(file),
        offset=place.offset,
        dtype=x.dtype.str,
        shape=x.shape,
        size=stat.st_size,
        changed=stat.st_mtime_ns,
    )
    (folder / NOTE).write_text(json.dumps(asdict(note)))


def read_samples(folder: Path) -> np.ndarray:
    note = folder / NOTE
    if not note.exists():
        return mapped(folder / "x.npy")
    return mapped_from(Note(**json.loads(note.read_text())))


def mapped_from(note: Note) -> np.ndarray:
    """Maps the samples that the note names. Refuses a file that has changed since."""
    file = Path(note.file)
    rule = f"{file} must stay as it was when the run began"
    advice = "resume the run, which reads the data again"
    try:
        stat = file.stat()
        if stat.st_size != note.size or stat.st_mtime_ns != note.changed:
            raise FedloomError(rule, "it has changed", advice)
        return map_rows(Place(file, note.offset), np.dtype(note.dtype), tuple(note.shape))
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise FedloomError(rule, problem, advice) from error


def write(path: Path, values: np.ndarray) -> None:
    """Saves an array and moves it into place: a process that maps an older file keeps that."""
    with whole_file(path, durable=False) as file:
        np.save(file, values, allow_pickle=False)


def mapped(path: Path) -> np.ndarray:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        rule = f"{path} must be an array of the run's data"
        problem = f"it cannot be read ({type(error).__name__})"
        raise FedloomError(rule, problem, "remove its folder and start again") from error
