"""Replies of the running round on disk, and the journal that says which were accepted or refused.

A large reply is a file of its own; a small one stands in its line of the journal, because making, renaming and
deleting a file costs more than all else that happens to it. A resumed round uses what the journal names and asks
nobody again. Neither is fsynced: a killed process loses nothing of them, a power cut may cost the running round.
"""

from __future__ import annotations

import json
import mmap
import os
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from fedloom.federation.files import Chunk, remove_leftovers, write_whole
from fedloom.federation.wire import read_reply
from fedloom.types import Json, Reply, Weight

MOST_HELD = 1 << 14  # bytes of a reply that is held in memory until the round ends: 16 MB for a thousand clients
SMALL = 1 << 16  # bytes below which reading a file is quicker than mapping it
DESCRIBE, EVALUATE = -1, -2  # hops of their own, so that these replies never stand in a work reply's place


@dataclass(frozen=True)
class Receipt:
    """What became of one order."""

    round: int
    hop: int
    client: int
    reason: str | None  # why the reply was refused; None: accepted
    wrote: bool
    down: int  # bytes
    up: int
    macs: int | None
    seconds: float | None
    plain: Mapping[str, float] = field(default_factory=dict)  # numbers of the reply's meta, for the curve
    held: bytes | None = None  # an accepted reply, if it is small
    facts: Json = None  # what the observer of a simulation noted
    memory: int | None = None  # bytes

    def to_line(self) -> bytes:
        held = None if self.held is None else b64encode(self.held).decode()
        return json.dumps({**vars(self), "held": held}).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Receipt:
        raw: dict[str, Json] = json.loads(line)
        held = raw.get("held")  # a journal of an earlier version has none
        return cls(**{**raw, "held": None if held is None else b64decode(held)})


@dataclass
class Slot:
    """Where an engine puts one reply."""

    path: Path
    held: bytes | None = None

    @property
    def name(self) -> str:
        return self.path.name

    def put(self, chunks: Sequence[Chunk]) -> None:
        if is_small(chunks):
            self.held = b"".join(chunks)
        else:
            self.held = None
            write_whole(self.path, chunks, durable=False)

    def size(self) -> int:
        return self.path.stat().st_size if self.held is None else len(self.held)

    def content(self) -> mmap.mmap | bytearray:
        return content(self.path if self.held is None else self.held)

    def read_bytes(self) -> bytes:
        return bytes(self.content())


def is_small(chunks: Sequence[Chunk]) -> bool:
    return sum(map(len, chunks)) <= MOST_HELD


class Spool:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        self.folder = folder
        self.journal = folder / "journal.jsonl"
        self._file: IO[bytes] | None = None

    def path(self, number: int, hop: int, client: int) -> Path:
        return self.folder / f"{number}.{hop}.{client}.reply"

    def slot(self, number: int, hop: int, client: int) -> Slot:
        return Slot(self.path(number, hop, client))

    def content(self, receipt: Receipt) -> Path | bytes:
        """Where an accepted reply is."""
        place = self.path(receipt.round, receipt.hop, receipt.client)
        return place if receipt.held is None else receipt.held

    def record(self, receipt: Receipt) -> None:
        if self._file is None:
            self._file = open(self.journal, "ab")  # noqa: SIM115 - open until the round is over
        try:
            self._file.write(receipt.to_line())
            self._file.flush()
        except OSError:
            with suppress(OSError):  # closing tries to write it once more
                self._close()
            raise

    def receipts(self, number: int, hop: int) -> dict[int, Receipt]:
        """By client, for one hop of one round."""
        found = [row for row in self._recorded() if (row.round, row.hop) == (number, hop)]
        return {row.client: row for row in found}

    def _recorded(self) -> list[Receipt]:
        """All that the journal knows. A last line torn by a kill never happened."""
        lines = self.journal.read_bytes().split(b"\n")[:-1] if self.journal.exists() else []
        return [Receipt.from_line(line) for line in lines]

    def mend(self) -> None:
        """Cut off a last line torn by a kill, so that the next one starts on a line of its own."""
        self._close()
        if self.journal.exists():
            whole = self.journal.read_bytes()
            with open(self.journal, "r+b") as file:
                file.truncate(whole.rfind(b"\n") + 1)

    def forget_refused(self, number: int, hop: int = 0) -> None:
        """After a hop with too few replies: those it refused will be asked again.

        Refusals of earlier hops stay: this hop's orders were made from the mean without them.
        """
        self._close()
        again = {hop, DESCRIBE} if hop == 0 else {hop}
        kept = [r for r in self._recorded() if r.round == number and (r.reason is None or r.hop not in again)]
        write_whole(self.journal, [receipt.to_line() for receipt in kept], durable=False)

    def clear(self) -> None:
        """After a checkpoint: the round is over."""
        self._close()
        for name in os.listdir(self.folder):
            if name.endswith(".reply"):
                (self.folder / name).unlink(missing_ok=True)
        self.journal.unlink(missing_ok=True)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


@dataclass(frozen=True)
class Spooled(Collection[Reply]):
    """Accepted replies, opened one at a time in client order: memory does not grow with their number."""

    places: tuple[tuple[int, Path | bytes], ...]  # (client, a file or the reply itself), sorted
    weights: Mapping[int, Weight] = field(default_factory=dict)  # of clients that do not weigh what they claim

    def __iter__(self) -> Iterator[Reply]:
        for client, place in self.places:
            yield self._opened(client, place)  # without a name here: one file is open at a time

    def _opened(self, client: int, place: Path | bytes) -> Reply:
        reply = read_reply(content(place))
        if client in self.weights:
            return replace(reply, weight=self.weights[client])
        return reply

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, reply: object) -> bool:
        return isinstance(reply, Reply) and any(client == reply.client for client, _ in self.places)

    def of(self, clients: Collection[int]) -> Spooled:
        return replace(self, places=tuple(pair for pair in self.places if pair[0] in clients))


def content(place: Path | bytes) -> mmap.mmap | bytearray:
    """A reply's bytes, writable in private: torch has no read-only tensors."""
    return bytearray(place) if isinstance(place, bytes) else map_file(place)


def map_file(path: Path) -> mmap.mmap | bytearray:
    """A file's bytes, mapped unless it is small."""
    with open(path, "rb", buffering=0) as file:
        start = bytearray(file.read(SMALL))
        return start if len(start) < SMALL else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
