"""Tensors side by side in one buffer, and the table in a header that says where each of them lies.

The order is: widest element first, then by dtype and name, without gaps. So all tensors are
aligned, and those of one dtype are adjacent. Reading trusts nothing: every entry of a table is
checked before anything is allocated.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from fedloom.copying import copy_all
from fedloom.federation.protocol.strict_json import decode
from fedloom.types import Tensors

DTYPES = {
    "F64": torch.float64,
    "I64": torch.int64,
    "F32": torch.float32,
    "I32": torch.int32,
    "F16": torch.float16,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
WIDEST_FIRST = sorted(CODES, key=lambda dtype: (-dtype.itemsize, str(dtype)))
RANKS = {dtype: number for number, dtype in enumerate(WIDEST_FIRST)}
PLACE = {"dtype", "shape", "data_offsets"}
MOST_DIMENSIONS = 8
# Sizes of 0 count as 1 here, because torch multiplies the other sizes for its strides.
MOST_ELEMENTS = 1 << 40

Buffer: TypeAlias = Any  # bytes, bytearray, memoryview or mmap


class WireError(ValueError):
    """These bytes are not a message. The text says what is wrong with them."""


class Entry(NamedTuple):
    """One tensor's place in a body."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class Layout:
    """The places of all tensors of a body. Messages with the same table share one."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self.by_name = {entry.name: entry for entry in entries}
        # Begin and end of the tensors of each dtype, which are adjacent.
        self.spans: dict[torch.dtype, tuple[int, int]] = {}
        for entry in entries:
            begin, _ = self.spans.get(entry.dtype, (entry.begin, 0))
            self.spans[entry.dtype] = (begin, entry.end)
        self.size = size_of(entries)


def arranged(tensors: Tensors) -> tuple[Entry, ...]:
    """Where each tensor lies in a body, in the order of the body."""
    entries = []
    begin = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: rank(item[0], item[1].dtype)):
        end = begin + tensor.nbytes
        entries.append(Entry(name, tensor.dtype, tuple(tensor.shape), begin, end))
        begin = end
    return tuple(entries)


def rank(name: str, dtype: torch.dtype) -> tuple[int, str]:
    """The sort key of a body's tensors: all are aligned, and those of one dtype are adjacent."""
    return RANKS[dtype], name


def size_of(entries: Sequence[Entry]) -> int:
    """How many bytes these tensors occupy. They are adjacent."""
    if not entries:
        return 0
    return entries[-1].end


def bytes_in_message(tensors: Tensors) -> int:
    """The bytes that tensors add to a message: their own, and their lines in its header.

    The header's padding is not counted.
    """
    entries = arranged(tensors)
    return size_of(entries) + sum(len(table_line(entry)) + 1 for entry in entries)


def table_line(entry: Entry) -> str:
    """A tensor's entry in the header's table, as JSON."""
    name, dtype, shape, begin, end = entry
    place = f'{{"dtype":"{CODES[dtype]}","shape":{list(shape)},"data_offsets":[{begin},{end}]}}'
    return f"{encode_basestring_ascii(name)}:{place}"


class Packed(Mapping[str, torch.Tensor]):
    """Tensors as views into a received body.

    Nothing is copied; the buffer must outlive the views.
    """

    def __init__(self, body: Buffer, layout: Layout) -> None:
        self._body: memoryview | bytearray = memoryview(body)
        if self._body.readonly:  # torch has no read-only tensors
            self._body = bytearray(self._body)
        self.layout = layout
        self._flats: dict[torch.dtype, torch.Tensor] = {}
        self._float_array: np.ndarray | None = None

    def __getitem__(self, name: str) -> torch.Tensor:
        entry = self.layout.by_name[name]
        # A byte that is neither 0 nor 1 is not a valid bool, so it is read as a number.
        if entry.dtype == torch.bool:
            return (self._flat(torch.uint8, entry.begin, entry.end) != 0).reshape(entry.shape)
        return self._flat(entry.dtype, entry.begin, entry.end).reshape(entry.shape)

    def _flat(self, dtype: torch.dtype, begin: int, end: int) -> torch.Tensor:
        if begin == end:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(
            self._body,
            dtype=dtype,
            count=(end - begin) // dtype.itemsize,
            offset=begin,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.by_name)

    def __len__(self) -> int:
        return len(self.layout.entries)

    def flat(self, dtype: torch.dtype) -> torch.Tensor:
        """All tensors of one dtype as one flat view."""
        flat = self._flats.get(dtype)
        if flat is None:
            flat = self._flat(dtype, *self.layout.spans.get(dtype, (0, 0)))
            self._flats[dtype] = flat
        return flat

    def float_array(self) -> np.ndarray:
        """All float32 tensors as one flat numpy view, which is created faster than a torch view."""
        if self._float_array is None:
            begin, end = self.layout.spans.get(torch.float32, (0, 0))
            numbers = np.zeros(0, np.float32)
            if end > begin:
                count = (end - begin) // numbers.itemsize
                numbers = np.frombuffer(self._body, np.float32, count, begin)
            self._float_array = numbers
        return self._float_array

    def between(self, dtype: torch.dtype, begin: int, end: int) -> torch.Tensor:
        """The adjacent tensors between two offsets, in bytes, as one flat view."""
        return self._flat(dtype, begin, end)

    def copied(self) -> dict[str, torch.Tensor]:
        """Copies of the tensors in memory that torch has allocated and aligned."""
        return {name: self[name].clone() for name in self}

    def give_back(self) -> None:
        """Release the pages of a mapped file. A later access reads them from the disk again."""
        if not isinstance(self._body, memoryview):
            return
        mapped = self._body.obj
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


class OnDemand(Mapping[str, torch.Tensor]):
    """An order's tensors, each copied into memory of torch when it is first accessed.

    Most orders carry a network's weights, which are copied into that network and not needed
    anywhere else.
    """

    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        self._copies: dict[str, torch.Tensor] = {}

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._copies:
            self._copies[name] = self._packed[name].clone()
        return self._copies[name]

    def __contains__(self, name: object) -> bool:  # the default would copy the tensor
        return name in self._packed.layout.by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def copy_into(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Copy the tensors directly to where they are needed, with one call for all of them."""
        copy_all(targets, self._packed)
        self._packed.give_back()


@lru_cache(maxsize=8)  # the messages of a round have few different tables
def layout_of(table: str) -> Layout:
    """The layout that a table describes, after checking it."""
    try:
        header, end = decode(table)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header is not JSON ({type(error).__name__})") from None
    if end < len(table) or "__metadata__" in header:
        raise WireError("the header is not one object, each key once")
    entries: list[Entry] = []
    offset = 0
    for name, place in header.items():
        entry = _entry(name, place, offset)
        if entries and rank(entry.name, entry.dtype) < rank(entries[-1].name, entries[-1].dtype):
            raise WireError(f"tensor {name!r} is out of order")
        entries.append(entry)
        offset = entry.end
    return Layout(tuple(entries))


def _entry(name: str, place: Any, offset: int) -> Entry:
    if not isinstance(place, dict) or place.keys() != PLACE:
        raise WireError(f"tensor {name!r} is not described by dtype, shape and data_offsets")
    code = place["dtype"]
    if not isinstance(code, str) or code not in DTYPES:
        raise WireError(f"tensor {name!r} has an unknown dtype")
    dtype = DTYPES[code]
    shape = place["shape"]
    offsets = place["data_offsets"]
    if not _are_counts(shape, MOST_DIMENSIONS) or math.prod(filter(None, shape)) > MOST_ELEMENTS:
        raise WireError(f"tensor {name!r} has no valid shape")
    is_span = _are_counts(offsets, 2) and len(offsets) == 2
    if not is_span or offsets[0] != offset or offset % dtype.itemsize:
        raise WireError(f"tensor {name!r} does not lie where the one before it ends")
    if offsets[1] - offset != math.prod(shape) * dtype.itemsize:
        raise WireError(f"tensor {name!r} does not have the size of its shape")
    return Entry(name, dtype, tuple(shape), offset, offsets[1])


def _are_counts(value: Any, most: int) -> bool:
    """Whether this is a list of at most `most` whole numbers, none below 0."""
    if not isinstance(value, list) or len(value) > most:
        return False
    return {*map(type, value)} <= {int} and min(value, default=0) >= 0
