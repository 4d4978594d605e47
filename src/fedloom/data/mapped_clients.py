"""The samples on disk, mapped by every worker: a client's are copied out when it is its turn.

Samples that a source already maps from a file are not copied to the run's folder: a note says where they lie.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fedloom.data.mapped import Place, map_rows, place_of
from fedloom.data.partition import parse
from fedloom.data.partitions.changes import changed, check_changes
from fedloom.data.parts import size_of_held
from fedloom.data.samples import ClientData, Samples
from fedloom.data.source import Source
from fedloom.data.split import ARRAYS, Split, client_slices
from fedloom.errors import FedloomError
from fedloom.files import whole_file

NOTE, LINK = "x.json", "x.file"
RULE = "partition.npy"  # there only if the partition changes samples


class MappedClients:
    """Read-only maps of the arrays in one folder; 10^5 clients cost no Python objects."""

    def __init__(self, arrays: dict[str, np.ndarray], partition: str = "iid") -> None:
        self.x, self.y = arrays["x"], arrays["y"]
        self.indices, self.offsets, self.tests, self.held = (arrays[name] for name in ARRAYS)
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
        shelve(folder, source.x)
        (folder / RULE).unlink(missing_ok=True)
        if rule.changes:
            write(folder / RULE, np.array(str(rule)))
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> MappedClients:
        arrays = {name: mapped(folder / f"{name}.npy") for name in ("y", *ARRAYS)}
        note = folder / NOTE
        partition = str(mapped(folder / RULE)) if (folder / RULE).exists() else "iid"
        return cls({"x": noted(note) if note.exists() else mapped(folder / "x.npy"), **arrays}, partition)

    def __len__(self) -> int:
        return len(self.tests)

    def client(self, k: int, hold: float = 0.0) -> ClientData:
        """Client k's samples; the last `hold` of what is not test is held back for validation."""
        if not 0 <= hold < 1:
            raise FedloomError("the share held back must be 0 or more and below 1", f"got {hold}", "try 0.25")
        rest, test = client_slices(self.indices, self.offsets, self.tests, k)
        cut = len(rest) - size_of_held(len(rest), hold)
        return ClientData(
            partial(self.own, k, rest[:cut]),
            partial(self.own, k, rest[cut:]),
            partial(self.own, k, test),
        )

    def own(self, k: int, chosen: np.ndarray) -> Samples:
        """Samples as client k sees them: the partition may rotate them or shift their hue."""
        found = self.samples(chosen)
        return Samples(changed(found.x, self.rule, k, len(self)), found.y)

    def server(self) -> Samples | None:
        """The central validation set, if one was carved out."""
        return self.samples(self.held) if len(self.held) else None

    def samples(self, chosen: np.ndarray) -> Samples:
        return to_samples(self.x, self.y, chosen)


def to_samples(x: np.ndarray, y: np.ndarray, chosen: np.ndarray) -> Samples:
    return Samples(torch_copy(x[chosen]), torch_copy(y[chosen]))


def torch_copy(values: np.ndarray) -> torch.Tensor:
    """In memory that torch allocated, with the strides it gives: alignment, and strides of a single channel (which
    make torch take another memory format), can change the last bits of a sum."""
    found = torch.from_numpy(values)
    return torch.empty(found.shape, dtype=found.dtype).copy_(found)


def shelve(folder: Path, x: np.ndarray) -> None:
    """`x` as a file of its own, or a note of the file it is mapped from."""
    note, link, place = folder / NOTE, folder / LINK, place_of(x)
    note.unlink(missing_ok=True)  # of an earlier build
    link.unlink(missing_ok=True)
    if place is None:
        return write(folder / "x.npy", x)
    file = place.file.resolve()
    with suppress(OSError):  # another disk, or none that has links
        os.link(file, link)  # so that a cache may be emptied while the run goes on
        file = link.resolve()
    stat = file.stat()
    facts = {"file": str(file), "offset": place.offset, "dtype": x.dtype.str, "shape": x.shape}
    note.write_text(json.dumps({**facts, "size": stat.st_size, "changed": stat.st_mtime_ns}))
    return None


def noted(note: Path) -> np.ndarray:
    """The samples where they lie, if the file is still the one that the note was made of."""
    facts = json.loads(note.read_text())
    file = Path(facts["file"])
    must, todo = f"{file} must stay as it was when the run began", "resume the run, which reads the data again"
    try:
        stat = file.stat()
        if (stat.st_size, stat.st_mtime_ns) != (facts["size"], facts["changed"]):
            raise FedloomError(must, "it has changed", todo)
        return map_rows(Place(file, facts["offset"]), np.dtype(facts["dtype"]), tuple(facts["shape"]))
    except OSError as error:
        raise FedloomError(must, f"it cannot be read ({error.strerror})", todo) from error


def write(path: Path, values: np.ndarray) -> None:
    """Moved into place whole, so that a process that maps an older one keeps what it has."""
    with whole_file(path, durable=False) as file:
        np.save(file, values, allow_pickle=False)


def mapped(path: Path) -> np.ndarray:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        must, todo = f"{path} must be an array of the run's data", "remove its folder and start again"
        raise FedloomError(must, f"it cannot be read ({type(error).__name__})", todo) from error
