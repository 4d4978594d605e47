"""Replies of the running round on disk, and the journal that says which were accepted or refused.

A resumed round uses what the journal names and asks nobody again. Neither is fsynced: a killed process loses
nothing of them, a power cut may cost the running round.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedloom.federation.files import remove_leftovers, write_whole
from fedloom.federation.wire import read_reply
from fedloom.types import Reply

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


def line_of(receipt: Receipt) -> bytes:
    return json.dumps(vars(receipt)).encode() + b"\n"


class Spool:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        self.folder = folder
        self.journal = folder / "journal.jsonl"

    def path(self, number: int, hop: int, client: int) -> Path:
        return self.folder / f"{number}.{hop}.{client}.reply"

    def record(self, receipt: Receipt) -> None:
        with open(self.journal, "ab") as file:
            file.write(line_of(receipt))

    def receipts(self, number: int, hop: int) -> dict[int, Receipt]:
        """By client, for one hop of one round. A last line torn by a kill never happened."""
        found = {}
        lines = self.journal.read_bytes().split(b"\n")[:-1] if self.journal.exists() else []
        for line in lines:
            receipt = Receipt(**json.loads(line))
            if (receipt.round, receipt.hop) == (number, hop):
                found[receipt.client] = receipt
        return found

    def mend(self) -> None:
        """Cut off a last line torn by a kill, so that the next one starts on a line of its own."""
        if self.journal.exists():
            whole = self.journal.read_bytes()
            with open(self.journal, "r+b") as file:
                file.truncate(whole.rfind(b"\n") + 1)

    def forget_refused(self, number: int, hop: int = 0) -> None:
        """After a hop with too few replies: those it refused will be asked again.

        Refusals of earlier hops stay: this hop's orders were made from the mean without them.
        """
        lines = self.journal.read_bytes().splitlines() if self.journal.exists() else []
        known = [Receipt(**json.loads(line)) for line in lines]
        again = {hop, DESCRIBE} if hop == 0 else {hop}
        kept = [row for row in known if row.round == number and (row.reason is None or row.hop not in again)]
        write_whole(self.journal, [line_of(receipt) for receipt in kept], durable=False)

    def clear(self) -> None:
        """After a checkpoint: the round is over."""
        for path in self.folder.glob("*.reply"):
            path.unlink(missing_ok=True)
        self.journal.unlink(missing_ok=True)


@dataclass(frozen=True)
class Spooled(Collection[Reply]):
    """Accepted replies, opened one at a time in client order: memory does not grow with their number."""

    paths: tuple[tuple[int, Path], ...]  # (client, file), sorted

    def __iter__(self) -> Iterator[Reply]:
        for _, path in self.paths:
            yield read_reply(map_file(path))

    def __len__(self) -> int:
        return len(self.paths)

    def __contains__(self, reply: object) -> bool:
        return isinstance(reply, Reply) and any(client == reply.client for client, _ in self.paths)

    def of(self, clients: Collection[int]) -> Spooled:
        return Spooled(tuple(pair for pair in self.paths if pair[0] in clients))


def map_file(path: Path) -> mmap.mmap | bytearray:
    """A file's bytes, mapped unless it is small. Writable in private: torch has no read-only tensors."""
    with open(path, "rb", buffering=0) as file:
        start = bytearray(file.read(SMALL))
        return start if len(start) < SMALL else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
