"""Any torch `Dataset` of (image, class number) or (image, class number, client), where an image is a tensor, an array
or a PIL image: read once into an .npz of the cache, then mapped.

The file is named by its content, so a run that is resumed, or begun again with the same data set, finds it. Random
transforms are therefore drawn once, when the data set is read.
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
from fedloom.data.readers.pictures import GREY, check, planes
from fedloom.errors import FedloomError


@dataclass
class Spool:
    """Samples on their way from a data set to a file: one after the other, never all in memory."""

    name: str  # of the data set, for errors
    stream: IO[bytes]
    labels: tuple[str, ...] = ()
    y: list[int] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)  # who each sample comes from; empty if nobody says so
    first: np.ndarray | None = None
    sha: Any = field(default_factory=hashlib.sha256)

    def add(self, item: Any) -> None:
        where = f"item {len(self.y)} of the data set {self.name}"
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            must = f"{where} must be (image, class number) or (image, class number, client)"
            raise FedloomError(must, f"it is {type(item).__name__}", "return two values from __getitem__, or three")
        x, label = image_of(where, item[0]), label_of(where, item[1])
        self.first = x if self.first is None else self.first
        if (x.shape, x.dtype) != (self.first.shape, self.first.dtype):
            must = f"{where} must be {self.first.dtype} of shape {self.first.shape} as item 0 is"
            raise FedloomError(must, f"it is {x.dtype} of shape {x.shape}", "make all samples alike")
        self.clients += [client_of(where, client) for client in item[2:]]
        if len(self.clients) not in (0, len(self.y) + 1):
            must = f"{where} must name its client as all others do, or none"
            raise FedloomError(must, f"it has {len(item)} values", "return as many for each sample")
        content = np.ascontiguousarray(x).data
        with cache.writing(cache.folder()):
            self.stream.write(content)
        self.sha.update(content)
        self.y.append(label)

    def digest(self) -> str:
        assert self.first is not None
        self.sha.update(repr((self.first.dtype.str, self.first.shape, self.labels, *self.clients)).encode())
        self.sha.update(np.array(self.y, np.int64).data)
        return str(self.sha.hexdigest())

    def write_npz(self, target: BinaryIO) -> None:
        assert self.first is not None
        self.stream.seek(0)
        with zipfile.ZipFile(target, "w") as archive:
            with archive.open("x.npy", "w", force_zip64=True) as member:
                shape = (len(self.y), *self.first.shape)
                cache.write_rows(member, shape, self.first.dtype, ())
                shutil.copyfileobj(self.stream, member, 1 << 20)
            small = {"y": self.y, "labels": self.labels, "client": self.clients}
            for key, array in ((key, np.array(values)) for key, values in small.items() if values):
                with archive.open(f"{key}.npy", "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)


def kept(dataset: Dataset[Any]) -> Path:
    """The .npz of a data set's samples."""
    name = type(dataset).__name__
    folder = cache.folder()
    with cache.writing(folder):
        stream = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - gone with the process, whatever happens
    with stream:
        spool = Spool(name, stream, class_names(dataset))
        for item in items(dataset):
            spool.add(item)
        if not spool.y:
            raise FedloomError(f"the data set {name} must have samples", "it has none", "give one that has")
        file = folder / f"{name}-{spool.digest()[:12]}.npz"
        if not file.exists():
            with cache.filling(file) as archive:
                spool.write_npz(archive)
    return file


def items(dataset: Any) -> Iterator[Any]:
    if hasattr(dataset, "__len__"):
        yield from (dataset[number] for number in with_progress("reading the data set", range(len(dataset))))
    else:
        yield from dataset


def class_names(dataset: Any) -> tuple[str, ...]:
    """As torchvision's data sets name them."""
    names = getattr(dataset, "classes", None)
    good = isinstance(names, list | tuple) and len(names) >= 2 and all(isinstance(name, str) for name in names)
    return tuple(names) if good and names is not None else ()


def image_of(where: str, value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return np.asarray(value.float() if value.is_floating_point() else value)
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "getchannel") and hasattr(value, "mode"):  # a PIL image
        check(where, value)
        return planes(where, value, 1 if value.mode in GREY else 3)
    must = f"{where} must have a tensor, an array or a PIL image first"
    raise FedloomError(must, f"it has {type(value).__name__}", "transform it into one")


def label_of(where: str, value: Any) -> int:
    try:
        return index(value)  # ints, and integer tensors and arrays of one value
    except TypeError:
        must = f"{where} must have its class number second"
        raise FedloomError(must, f"it has {value!r:.40}", "return an int, counted from 0") from None


def client_of(where: str, value: Any) -> str:
    try:
        return value if isinstance(value, str) and value else str(index(value))
    except TypeError:
        must = f"{where} must have its client's name or number third"
        raise FedloomError(must, f"it has {value!r:.40}", "return who the sample comes from") from None
