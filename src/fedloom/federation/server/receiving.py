"""What happens to a reply when it arrives: it is admitted or refused, measured, and receipted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fedloom.errors import RunStopped
from fedloom.federation.protocol import admission
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.packing import Buffer, WireError
from fedloom.federation.protocol.parcels import Parcel, Slot
from fedloom.federation.protocol.wire import read_reply
from fedloom.federation.server.spool import Receipt
from fedloom.federation.server.update_sizes import UpdateMeasure
from fedloom.files import checksum as checksum_of
from fedloom.types import Fields, Meta, Order, Reply, Tensors

log = logging.getLogger("fedloom")

MOST_REASON = 500  # characters of a reason, which may quote what a client sent
MOST_PLAIN = 1e100  # the bound of a plain number in a reply, so that even large sums stay finite

# Returns why a reply may not be used, or None if it may.
Check = Callable[[Reply, Order, admission.Expected], str | None]
# Returns the tensors of a reply, with the names and shapes of those that were sent.
UpdateOf = Callable[[Order, Reply], Tensors]


class Received(NamedTuple):
    """The receipt for an order, and the client's reply if it was accepted."""

    receipt: Receipt
    reply: Reply | None  # None if it was refused


def receive(
    order: Order,
    parcel: Parcel,
    envelope: Envelope,
    judged_by: Judge,
    check: Check,
    update_of: UpdateOf,
    name: str,
) -> Received:
    """The outcome of an order. `name` is what log messages call its client."""
    assert order.stamp is not None
    if envelope.fault is None:
        verdict = admit(order, parcel.reply, judged_by.expected, check)
    else:
        verdict = no_reply(envelope.fault, name)
    reply = verdict.reply
    receipt = Receipt(
        round=order.stamp.round,
        hop=order.stamp.hop,
        client=order.client,
        reason=None,
        wrote=False,
        down=parcel.size,
        up=verdict.size,
        macs=envelope.macs,
        seconds=envelope.seconds,
        memory=envelope.memory,
        deaths=envelope.deaths,
        search_macs=envelope.search_macs,
    )
    if reply is None:
        reason = readable(verdict.reason or "there is no reply")
        return Received(replace(receipt, reason=reason), None)
    receipt = replace(receipt, wrote=reply.wrote, plain=plain_numbers(reply.meta))
    if verdict.reason is not None:
        return Received(replace(receipt, reason=readable(verdict.reason)), None)
    held = parcel.reply.held
    checksum = None
    if held is None:  # else it is in the journal, whose lines have checksums of their own
        checksum = checksum_of(verdict.content)
    receipt = replace(receipt, held=held, checksum=checksum)
    if receipt.hop >= 0:  # replies that are not work have neither facts nor an update
        norms = judged_by.norms(update_of(order, reply), order.kind)
        receipt = replace(receipt, facts=envelope.facts, norms=norms)
    return Received(receipt, reply)


class Judge:
    """Checks and measures the replies to orders of one kind that share their tensors."""

    def __init__(self, order: Order, fields: Fields) -> None:
        self.expected = admission.Expected(order, fields)
        # It is created when it is first needed, because it holds a copy of the tensors.
        self._measure: UpdateMeasure | None = None

    def norms(self, update: Tensors, kind: str) -> dict[str, float]:
        """How far a reply moves each group of tensors."""
        if self._measure is None:
            self._measure = UpdateMeasure(self.expected.tensors)
        norms = self._measure.measure(update)
        return {f"{kind} {group}": size for group, size in norms.items()}


class Judges:
    """The judges of the bodies that were sent. Orders of one kind and body share a judge."""

    # If every client has a body of its own, keeping all judges would take too much memory.
    MOST = 4

    def __init__(self, fields: Callable[[str], Fields]) -> None:
        self.fields = fields  # returns what the reply to a kind of order may hold
        self.judges: dict[tuple[int, str], Judge] = {}  # by body and kind of order

    def of(self, parcel: Parcel, order: Order) -> Judge:
        key = (id(parcel.body), order.kind)
        if key not in self.judges:
            if len(self.judges) == self.MOST:
                self.judges.pop(next(iter(self.judges)))
            self.judges[key] = Judge(order, self.fields(order.kind))
        return self.judges[key]


class Verdict(NamedTuple):
    """Admission's decision about a reply."""

    reason: str | None  # why it is refused; None if it is accepted
    size: int = 0  # bytes
    reply: Reply | None = None
    content: Buffer = b""  # what the reply was read from


def no_reply(fault: Fault, name: str) -> Verdict:
    """The verdict if there is no reply. A disk that cannot save a client's state stops the run."""
    if fault.detail:
        log.error("%s:\n%s", name, fault.detail)
    if fault.kind == "store":
        raise RunStopped(
            "a client's state must be saved",
            fault.text,
            "free some space and resume the run",
        )
    return Verdict(f"{fault.kind}: {fault.text}")


def admit(order: Order, slot: Slot, expected: admission.Expected, check: Check) -> Verdict:
    """Read a reply and check it, its size first."""
    size = slot.size()
    if size > expected.most_bytes:
        return Verdict(f"it has {size} bytes, at most {expected.most_bytes} are expected", size)
    content = slot.content()
    try:
        reply = read_reply(content)
    except WireError as error:
        return Verdict(f"it is not a valid message: {error}", size)
    return Verdict(check(reply, order, expected), size, reply, content)


def readable(text: str) -> str:
    """A text from outside, made safe for a log and a terminal.

    The result is one line without control characters, and not too long.
    """
    characters = []
    for character in text[:MOST_REASON]:
        if character.isprintable():
            characters.append(character)
        else:
            characters.append(" ")
    if len(text) > MOST_REASON:
        characters.append("…")
    return "".join(characters)


def plain_numbers(meta: Meta) -> dict[str, float]:
    """The values of a reply that can be averaged for a curve, without absurdly large ones."""
    numbers = {}
    for name, value in meta.items():
        is_number = type(value) in (int, float)  # True and False are not numbers here
        if is_number and abs(value) < MOST_PLAIN:
            numbers[name] = value
    return numbers
