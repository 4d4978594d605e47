"""The samples on disk, mapped by every worker: a client's are copied out when it is its turn.

Samples that a source already maps from a file are not copied to the run's folder: a note says where
they lie.
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
RULE = "partition.npy"  # there only if the partition changes samples


@dataclass(frozen=True)
class Note:
    """Where the samples lie, as `x.json` has it, and by what one sees that the file is the same."""

    file: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    size: int
    changed: int


class MappedClients:
    """Read-only maps of the arrays in one folder; 10^5 clients cost no Python objects."""

    def __init__(self, arrays: dict[str, np.ndarray], partition: str = "iid") -> None:
        self.x = arrays["x"]
        self.y = arrays["y"]
        self.indices = arrays["indices"]
        self.offsets = arrays["offsets"]
        self.tests = arrays["tests"]
        self.held = arrays["server"]
        self.rule = parse(partition)  # of which only the transforms still matter

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
        """Client k's samples; the last `hold` of what is not test is held back for validation."""
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
        """Samples as client k sees them: the partition may rotate them or shift their hue."""
        samples = self.samples(chosen)
        return Samples(changed(samples.x, self.rule, k, len(self)), samples.y)

    def server(self) -> Samples | None:
        """The central validation set, if one was carved out. It is nobody's: it is only tinted."""
        if not len(self.held):
            return None
        samples = self.samples(self.held)
        return Samples(tinted_by(self.rule, samples.x), samples.y)

    def samples(self, chosen: np.ndarray) -> Samples:
        return to_samples(self.x, self.y, chosen)


def to_samples(x: np.ndarray, y: np.ndarray, chosen: np.ndarray) -> Samples:
    return Samples(torch_copy(x[chosen]), torch_copy(y[chosen]))


def torch_copy(values: np.ndarray) -> torch.Tensor:
    """In memory that torch allocated, with the strides it gives.

    Alignment, and strides of a single channel (which make torch take another memory format), can
    change the last bits of a sum. The values may be those of a file that nobody may write to, of
    which torch would warn if it were to share them.
    """
    dtype = torch.from_numpy(np.empty(0, values.dtype)).dtype
    copy = torch.empty(values.shape, dtype=dtype)
    np.copyto(copy.numpy(), values)
    return copy


def write_samples(folder: Path, x: np.ndarray) -> None:
    """`x` as a file of its own, or a note of the file it is mapped from."""
    (folder / NOTE).unlink(missing_ok=True)  # of an earlier build
    (folder / LINK).unlink(missing_ok=True)
    place = place_of(x)
    if place is None:
        write(folder / "x.npy", x)
        return
    file = place.file.resolve()
    link = folder / LINK
    with suppress(OSError):  # another disk, or none that has links
        os.link(file, link)  # so that a cache may be emptied while the run goes on
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
    """The samples where they lie, if the file is still the one that the note was made of."""
    file = Path(note.file)
    rule = f"{file} must stay as it was when the run began"
    advice = "resume the run, which reads the data again"
    try:
        stat = file.stat()
        if stat.st_size != note.size or stat.st_mtime_ns != note.changed:
            raise FedloomError(rule, "it has changed", advice)
        return map_rows(Place(file, note.offset), np.dtype(note.dtype), tuple(note.shape))
    except OSError as error:
        found = f"it cannot be read ({error.strerror})"
        raise FedloomError(rule, found, advice) from error


def write(path: Path, values: np.ndarray) -> None:
    """Moved into place whole, so that a process that maps an older one keeps what it has."""
    with whole_file(path, durable=False) as file:
        np.save(file, values, allow_pickle=False)


def mapped(path: Path) -> np.ndarray:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        rule = f"{path} must be an array of the run's data"
        found = f"it cannot be read ({type(error).__name__})"
        raise FedloomError(rule, found, "remove its folder and start again") from error
