"""Replies of the running round on disk, and the journal of which were accepted or refused.

A large reply has a file of its own. A small one is part of its line in the journal, because
creating, renaming and deleting a file costs more than everything else that happens to it. A resumed
round uses the replies in the journal and does not ask for them again. Neither is fsynced: if the
process is killed nothing is lost, but a power cut may cost the running round. So every line ends
with its own checksum and contains that of the reply's file. Whatever does not match is asked for
again.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

from fedloom.federation.protocol.deaths import Death
from fedloom.federation.protocol.parcels import Slot, content
from fedloom.federation.protocol.wire import read_reply
from fedloom.files import checksum, cut_torn_line, remove_leftovers, write_whole
from fedloom.types import Json, Reply, Weight

# Other messages than work have negative hops, so that they cannot be confused with work.
DESCRIBE = -1
EVALUATE = -2
FORGOTTEN = -3  # no message has this hop: it keeps the deaths of orders that will be sent again
TAKEN_OVER = -4  # minus a hop: which aggregators were lost in that hop


@dataclass(frozen=True)
class Receipt:
    """The outcome of one order."""

    round: int
    hop: int
    client: int
    reason: str | None  # why the reply was refused; None: accepted
    wrote: bool  # whether the client saved a new private state
    down: int  # bytes of the order
    up: int  # bytes of the reply
    macs: int | None
    seconds: float | None
    # The plain numbers in the reply's meta, from which curves are drawn.
    plain: Mapping[str, float] = field(default_factory=dict)
    held: bytes | None = None  # an accepted reply, if it is small
    facts: Json = None  # what the observer of a simulation noted
    memory: int | None = None  # bytes
    checksum: str | None = None  # of an accepted reply that is a file
    # How far the update moves each group of tensors, as server/update_sizes.py measures it.
    norms: Mapping[str, float] | None = None
    deaths: tuple[Death, ...] = ()  # of processes that worked on the order
    # Whether the client had lost its state and was asked again, which has its own receipt.
    asked_again: bool = False
    search_macs: int = 0  # the part of its MACs that were spent on searching
    macs_by_formula: bool = False  # whether the method computed its MACs, rather than a meter
    # Seconds by the simulated clock. Not journaled: they can be derived from a hop's receipts.
    simulated: float | None = None

    # A journal may be damaged, so nothing with other fields is read as a receipt.
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "allow_inf_nan": False}

    def to_line(self) -> bytes:
        held = None
        if self.held is not None:
            held = b64encode(self.held).decode()
        codes = [death.code for death in self.deaths]
        fields = {**vars(self), "held": held, "deaths": codes}
        try:
            text = to_json(fields)
        except PydanticSerializationError:  # unusual facts, which the slower encoder can write
            text = json.dumps(fields).encode()
        return b"%s %s\n" % (text, checksum(text).encode())

    @classmethod
    def from_line(cls, line: bytes) -> Receipt:
        """The receipt in a line, which comes without its newline.

        Raises ValueError if the line is damaged, or is not from a journal.
        """
        text = line
        if not line.endswith(b"}"):  # journals of earlier versions have no checksums
            text, _, written = line.rpartition(b" ")
            if checksum(text).encode() != written:
                raise ValueError("its checksum does not match")
        try:
            fields = json.loads(text)
            if isinstance(fields.get("held"), str):  # journals of earlier versions may lack it
                fields["held"] = b64decode(fields["held"], validate=True)
            fields["deaths"] = [{"code": code} for code in fields.get("deaths", [])]
        except (AttributeError, RecursionError, TypeError) as error:
            raise ValueError("it is not a JSON object") from error
        return receipt_checker().validate_python(fields)


@cache
def receipt_checker() -> TypeAdapter[Receipt]:
    return TypeAdapter(Receipt)


@dataclass(frozen=True)
class Settled:
    """The orders of one hop that are settled and need not be sent again."""

    receipts: dict[int, Receipt]  # by client
    # Attempts after which a client was asked again, because its state was lost.
    failed_attempts: list[Receipt]


@dataclass(frozen=True)
class Entry:
    """A line of the journal, as bytes and as the receipt that it contains."""

    line: bytes
    receipt: Receipt


class Spool:
    """The folder of a running round's replies, and its journal."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        self.folder = folder
        self.journal = folder / "journal.jsonl"
        self._file: IO[bytes] | None = None
        self._is_cleared = False  # whether nothing was recorded since the last `clear`

    def path(self, number: int, hop: int, client: int) -> Path:
        return self.slot(number, hop, client).path

    def slot(self, number: int, hop: int, client: int) -> Slot:
        return Slot(str(self.folder), f"{number}.{hop}.{client}.reply")

    def content(self, receipt: Receipt) -> Path | bytes:
        """Where an accepted reply is: the path of its file, or its bytes."""
        if receipt.held is not None:
            return receipt.held
        return self.path(receipt.round, receipt.hop, receipt.client)

    def record(self, receipt: Receipt) -> None:
        if self._file is None:
            self._file = open(self.journal, "ab")  # noqa: SIM115 - open until the run is over
        self._is_cleared = False
        try:
            self._file.write(receipt.to_line())
            self._file.flush()
        except OSError:
            with suppress(OSError):  # closing the file tries to write the line again
                self._close()
            raise

    def settled(self, number: int, hop: int) -> Settled:
        """The outcomes in the journal for one hop of one round."""
        receipts: dict[int, Receipt] = {}
        failed_attempts = []
        for receipt in self._of_hop(number, hop):
            if receipt.asked_again:
                failed_attempts.append(receipt)
            else:
                receipts[receipt.client] = receipt
        return Settled(receipts, failed_attempts)

    def receipts(self, number: int, hop: int) -> dict[int, Receipt]:
        """The receipts of one hop of one round, by client."""
        return self.settled(number, hop).receipts

    def _of_hop(self, number: int, hop: int) -> list[Receipt]:
        recorded = [entry.receipt for entry in self._entries()]
        return [row for row in recorded if row.round == number and row.hop == hop]

    def _entries(self) -> list[Entry]:
        """The entries of the journal up to the first unreadable line.

        What follows such a line cannot be trusted.
        """
        entries: list[Entry] = []
        for line in self._lines():
            try:
                entries.append(Entry(line, Receipt.from_line(line)))
            except ValueError:
                break
        return entries

    def _lines(self) -> list[bytes]:
        """All complete lines. A last line that a kill cut short is ignored."""
        if self._is_cleared or not self.journal.exists():
            return []
        return self.journal.read_bytes().split(b"\n")[:-1]

    def repair(self, running: int) -> str | None:
        """After a kill or a power cut, keep the outcomes of the running round that are intact.

        Returns a sentence about the damage, or None if there is none.
        """
        self._close()
        written = len(self._lines())
        entries = self._entries()
        unreadable = written - len(entries)
        intact = []
        damaged = []
        for entry in entries:
            if entry.receipt.round != running:
                continue
            if self._is_whole(entry.receipt):
                intact.append(entry)
            else:
                damaged.append(entry)
        if damaged:  # later hops began with a mean that included the damaged reply
            first_hop = max(0, min(entry.receipt.hop for entry in damaged))
            intact = [entry for entry in intact if entry.receipt.hop <= first_hop]
        if len(intact) == written:
            cut_torn_line(self.journal)
            return None
        write_whole(self.journal, [entry.line + b"\n" for entry in intact], durable=False)
        if not unreadable and not damaged:
            return None  # all that was removed belongs to a round that has ended
        return (
            f"replies to round {running} were damaged "
            f"(journal lines: {unreadable}, replies: {len(damaged)}); "
            f"{len(intact)} orders are settled, the others are sent again"
        )

    def _is_whole(self, receipt: Receipt) -> bool:
        """Whether an accepted reply is still as it was when it was admitted."""
        if receipt.reason is not None:
            return True
        try:
            reply = content(self.content(receipt))
            if receipt.checksum is not None:
                return checksum(reply) == receipt.checksum
            # A small reply, or one that an earlier version wrote, must at least be a message.
            read_reply(reply)
        except (OSError, ValueError):
            return False
        return True

    def forget(self, number: int, hop: int, refused: Collection[int]) -> None:
        """After a hop with too few replies, forget its refusals, so that they are asked again.

        Refusals of earlier hops stay, because this hop's orders were made from a mean without them.
        Failed attempts stay too: they were made, and their clients go on with a fresh state.
        """
        self._close()
        lines = []
        for entry in self._entries():
            receipt = entry.receipt
            if receipt.round != number:
                continue
            if not is_asked_again(receipt, hop, refused):
                lines.append(entry.line + b"\n")
            elif receipt.deaths:
                lines.append(replace(receipt, hop=FORGOTTEN).to_line())
        write_whole(self.journal, lines, durable=False)

    def remove(self) -> None:
        """Delete everything, after the last round."""
        self.clear()
        self._close()
        self.journal.unlink(missing_ok=True)
        remove_leftovers(self.folder)
        with suppress(OSError):  # somebody else may have put a file there
            self.folder.rmdir()

    def forgotten(self, number: int) -> list[Receipt]:
        """Receipts of orders that were or will be sent again.

        They are kept for the deaths of processes that they record.
        """
        return self._of_hop(number, FORGOTTEN)

    def clear(self) -> None:
        """Delete replies and journal after a checkpoint, when the round is over."""
        for name in os.listdir(self.folder):
            if name.endswith(".reply"):
                (self.folder / name).unlink(missing_ok=True)
        if self._file is None:
            self.journal.unlink(missing_ok=True)
        else:  # deleting it and creating it again every round takes the kernel ten times as long
            self._file.truncate(0)
        self._is_cleared = True

    def _close(self) -> None:
        file = self._file
        self._file = None
        if file is not None:
            file.close()


def is_asked_again(receipt: Receipt, hop: int, refused: Collection[int]) -> bool:
    """Whether an order is sent again after a hop with too few replies.

    If it was the round's first hop, clients whose descriptions were refused are asked again too.
    """
    if receipt.hop == hop and not receipt.asked_again:
        return receipt.client in refused
    return receipt.hop == DESCRIBE and hop == 0 and receipt.reason is not None


class Place(NamedTuple):
    """Where the accepted reply of a client is: in a file, in memory as bytes, or already read."""

    client: int
    content: Path | bytes | Reply


@dataclass(frozen=True)
class Spooled(Collection[Reply]):
    """Accepted replies, which are opened one at a time in client order.

    So memory does not grow with their number.
    """

    places: tuple[Place, ...]  # sorted by client
    # The weights of clients whose claimed weights were lowered.
    weights: Mapping[int, Weight] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Reply]:
        for place in self.places:
            yield self._opened(place)  # not bound to a name, so that one file is open at a time

    def _opened(self, place: Place) -> Reply:
        reply = place.content
        if not isinstance(reply, Reply):
            reply = read_reply(content(reply))
        if place.client in self.weights:
            return replace(reply, weight=self.weights[place.client])
        return reply

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, reply: object) -> bool:
        if not isinstance(reply, Reply):
            return False
        return any(place.client == reply.client for place in self.places)

    def of(self, clients: Collection[int]) -> Spooled:
        """The replies of these clients."""
        places = tuple(place for place in self.places if place.client in clients)
        return replace(self, places=places)
