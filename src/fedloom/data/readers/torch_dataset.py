"""Any torch `Dataset` of (image, class number) or (image, class number, client).

An image is a tensor, an array or a PIL image. The data set is read once, into an .npz in the cache,
and then memory-mapped.

The file is named by its content, so a run that is resumed, or started again with the same data set,
finds it. Random transforms are drawn only once, when the data set is read.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import torch
from torch.utils.data import Dataset

from fedloom.data import cache
from fedloom.data.progress import with_progress
from fedloom.data.readers.image_files import channels_of, check, planes
from fedloom.errors import FedloomError


@dataclass
class Spool:
    """Writes the samples of a data set to a file, one by one: they are never all in memory."""

    name: str  # of the data set, for errors
    stream: IO[bytes]
    labels: tuple[str, ...] = ()
    y: list[int] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)  # each sample's client, if samples have one
    first: np.ndarray | None = None  # the first sample, whose shape and type all others must have
    sha: Any = field(default_factory=hashlib.sha256)

    def add(self, item: Any) -> None:
        where = f"item {len(self.y)} of the data set {self.name}"
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            rule = f"{where} must be (image, class number) or (image, class number, client)"
            advice = "return two or three values from __getitem__"
            raise FedloomError(rule, f"it is {type(item).__name__}", advice)
        x = image_of(where, item[0])
        label = label_of(where, item[1])
        if self.first is None:
            self.first = x
        if x.shape != self.first.shape or x.dtype != self.first.dtype:
            rule = f"{where} must be {self.first.dtype} of shape {self.first.shape} as item 0 is"
            problem = f"it is {x.dtype} of shape {x.shape}"
            raise FedloomError(rule, problem, "make all samples alike")
        if len(item) == 3:
            self.clients.append(client_of(where, item[2]))
        if len(self.clients) not in (0, len(self.y) + 1):
            rule = f"{where} must name its client if others do, and otherwise must not"
            problem = f"it has {len(item)} values"
            raise FedloomError(rule, problem, "return as many for each sample")
        content = np.ascontiguousarray(x).data
        with cache.writing(cache.folder()):
            self.stream.write(content)
        self.sha.update(content)
        self.y.append(label)

    def digest(self) -> str:
        """Finishes the hash of all samples. It can be called once."""
        assert self.first is not None
        facts = (self.first.dtype.str, self.first.shape, self.labels, *self.clients)
        self.sha.update(repr(facts).encode())
        self.sha.update(np.array(self.y, np.int64).data)
        return str(self.sha.hexdigest())

    def write_npz(self, target: BinaryIO) -> None:
        assert self.first is not None
        self.stream.seek(0)
        with zipfile.ZipFile(target, "w") as archive:
            with archive.open("x.npy", "w", force_zip64=True) as member:
                shape = (len(self.y), *self.first.shape)
                only_header = cache.Rows(shape, self.first.dtype, ())
                cache.write_rows(member, only_header)
                shutil.copyfileobj(self.stream, member, 1 << 20)
            small = {"y": self.y, "labels": self.labels, "client": self.clients}
            for key, values in small.items():
                if values:
                    with archive.open(f"{key}.npy", "w") as member:
                        np.lib.format.write_array(member, np.array(values), allow_pickle=False)


def save_dataset(dataset: Dataset[Any]) -> Path:
    """Writes a data set to an .npz in the cache, and returns that file."""
    name = type(dataset).__name__
    folder = cache.folder()
    with cache.writing(folder):
        # The file vanishes with the process, whatever happens.
        stream = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    with stream:
        spool = Spool(name, stream, class_names(dataset))
        for item in items(dataset):
            spool.add(item)
        if not spool.y:
            rule = f"the data set {name} must have samples"
            raise FedloomError(rule, "it has none", "give one that has")
        file = folder / f"{name}-{spool.digest()[:12]}.npz"
        if not file.exists():
            with cache.filling(file) as archive:
                spool.write_npz(archive)
    return file


def items(dataset: Any) -> Iterator[Any]:
    if hasattr(dataset, "__len__"):
        for number in with_progress("reading the data set", range(len(dataset))):
            yield dataset[number]
    else:
        yield from dataset


def class_names(dataset: Any) -> tuple[str, ...]:
    """Returns the class names of a data set that has `classes`, as torchvision's do."""
    names = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple) or len(names) < 2:
        return ()
    if not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names)


def image_of(where: str, value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.is_floating_point():
            value = value.float()
        return np.asarray(value)
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "getchannel") and hasattr(value, "mode"):  # a PIL image
        check(where, value)
        return planes(where, value, channels_of(value))
    rule = f"{where} must have a tensor, an array or a PIL image first"
    raise FedloomError(rule, f"it has {type(value).__name__}", "transform it into one")


def label_of(where: str, value: Any) -> int:
    try:
        return index(value)  # ints, and integer tensors and arrays of one value
    except TypeError:
        rule = f"{where} must have its class number second"
        problem = f"it has {value!r:.40}"
        raise FedloomError(rule, problem, "return an int, counted from 0") from None


def client_of(where: str, value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    try:
        return str(index(value))
    except TypeError:
        rule = f"{where} must have its client's name or number third"
        problem = f"it has {value!r:.40}"
        raise FedloomError(rule, problem, "return who the sample comes from") from None
