"""Parcels are encoded orders, slots hold their replies, and an engine delivers both.

Both sides of an engine know these types: the server makes a parcel, and a worker process puts the
reply into its slot.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fedloom.federation.protocol.envelope import Envelope
from fedloom.federation.protocol.wire import Body
from fedloom.files import Chunk, map_file, write_whole

# Replies of at most this many bytes are held in memory until the round ends: 16 MB for a thousand
# clients.
MOST_HELD = 1 << 14


@dataclass(frozen=True)
class Parcel:
    """An encoded order, and the slot for its reply."""

    client: int
    head: bytes
    body: Body  # shared by all orders that carry the same tensors
    reply: Slot
    kind: str = ""  # of the order

    @property
    def size(self) -> int:
        return len(self.head) + self.body.size


class Engine(Protocol):
    """Delivers parcels to sites and brings back one answer per parcel, in any order."""

    def ask(
        self,
        parcels: Sequence[Parcel],
        deadline: float | None,
    ) -> Iterator[tuple[Parcel, Envelope]]: ...


@dataclass
class Slot:
    """Where an engine puts one reply."""

    folder: str
    name: str
    held: bytes | None = None

    @property
    def place(self) -> str:
        """The path of the reply's file, which exists if the reply is not small."""
        return os.path.join(self.folder, self.name)

    @property
    def path(self) -> Path:
        return Path(self.place)

    def put(self, chunks: Sequence[Chunk]) -> None:
        if is_small(sum(map(len, chunks))):
            self.held = b"".join(chunks)
        else:
            self.held = None
            write_whole(self.path, chunks, durable=False)

    def size(self) -> int:
        if self.held is None:
            return self.path.stat().st_size
        return len(self.held)

    def content(self) -> mmap.mmap | bytearray:
        if self.held is None:
            return content(self.path)
        return content(self.held)

    def read_bytes(self) -> bytes:
        return bytes(self.content())


def is_small(size: int) -> bool:
    """Whether this many bytes are sent with a message rather than in a file."""
    return size <= MOST_HELD


def content(place: Path | bytes) -> mmap.mmap | bytearray:
    """The bytes of a reply. The copy is private and writable, as torch has no read-only tensors."""
    if isinstance(place, bytes):
        return bytearray(place)
    return map_file(place)
