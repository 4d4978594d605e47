"""A reply as it arrives: admitted or refused, measured, and written down as a receipt."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from fedloom.errors import RunStopped
from fedloom.federation.protocol import admission
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.parcels import Parcel, Slot
from fedloom.federation.protocol.wire import Buffer, WireError, read_reply
from fedloom.federation.server.norms import Ruler
from fedloom.federation.server.spool import Receipt
from fedloom.files import checksum as checksum_of
from fedloom.types import Fields, Meta, Order, Reply, Tensors

log = logging.getLogger("fedloom")

MOST_REASON = 500  # characters: it may quote what a client sent
MOST_PLAIN = 1e100  # of a number in a reply: even the sum of many stays finite

# Says why a reply may not be used; None: it may.
Check = Callable[[Reply, Order, admission.Expected], str | None]
# What a reply brings, by the names and in the shapes of what was sent.
UpdateOf = Callable[[Order, Reply], Tensors]


class Received(NamedTuple):
    """A receipt, and the reply that it is of, if there is one and it may be used."""

    receipt: Receipt
    reply: Reply | None


def receive(
    order: Order,
    parcel: Parcel,
    envelope: Envelope,
    judged_by: Judge,
    check: Check,
    update_of: UpdateOf,
    name: str,
) -> Received:
    """What became of an order. `name` is what messages call its client."""
    assert order.stamp is not None
    stamp = order.stamp
    if envelope.fault is None:
        verdict = admit(order, parcel.reply, judged_by.expected, check)
    else:
        verdict = no_reply(envelope.fault, name)
    reply = verdict.reply
    is_work = stamp.hop >= 0
    reason = None
    held = None
    checksum = None
    facts = None
    norms = None
    if reply is None or verdict.reason is not None:
        reason = readable(verdict.reason or "there is no reply")
    else:
        held = parcel.reply.held
        if held is None:  # else it stands in the journal, whose lines have checksums of their own
            checksum = checksum_of(verdict.content)
        if is_work:  # else it has neither facts nor an update
            facts = envelope.facts
            norms = judged_by.norms(update_of(order, reply), order.kind)
    wrote = False
    plain: dict[str, float] = {}
    if reply is not None:
        wrote = reply.wrote
        plain = plain_numbers(reply.meta)
    receipt = Receipt(
        round=stamp.round,
        hop=stamp.hop,
        client=order.client,
        reason=reason,
        wrote=wrote,
        down=parcel.size,
        up=verdict.size,
        macs=envelope.macs,
        seconds=envelope.seconds,
        plain=plain,
        held=held,
        facts=facts,
        memory=envelope.memory,
        checksum=checksum,
        norms=norms,
        deaths=envelope.deaths,
        search_macs=envelope.search_macs,
    )
    if reason is not None:
        return Received(receipt, None)
    return Received(receipt, reply)


class Judge:
    """What the replies to orders of one kind and with the same tensors are judged by."""

    def __init__(self, order: Order, fields: Fields) -> None:
        self.expected = admission.Expected(order, fields)
        # It is made when it is first needed, because it holds a copy of the tensors.
        self._ruler: Ruler | None = None

    def norms(self, update: Tensors, kind: str) -> dict[str, float]:
        """How far what a reply brings moves each group of tensors."""
        if self._ruler is None:
            self._ruler = Ruler(self.expected.tensors)
        norms = self._ruler.measure(update)
        return {f"{kind} {group}": size for group, size in norms.items()}


class Judges:
    """Of the bodies that are out: orders of one kind that share one share its judge."""

    # Where every client has a body of its own, keeping them all would take too much memory.
    MOST = 4

    def __init__(self, fields: Callable[[str], Fields]) -> None:
        self.fields = fields  # of a kind of order
        self.judges: dict[tuple[int, str], Judge] = {}  # by body and kind of order

    def of(self, parcel: Parcel, order: Order) -> Judge:
        key = (id(parcel.body), order.kind)
        if key not in self.judges:
            if len(self.judges) == self.MOST:
                self.judges.pop(next(iter(self.judges)))
            self.judges[key] = Judge(order, self.fields(order.kind))
        return self.judges[key]


class Verdict(NamedTuple):
    """What admission says of a reply."""

    reason: str | None  # why it is refused
    size: int = 0
    reply: Reply | None = None
    content: Buffer = b""  # what the reply was read from


def no_reply(fault: Fault, name: str) -> Verdict:
    """Why there is none; a disk that cannot keep a client's state stops the run."""
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
    size = slot.size()
    if size > expected.most_bytes:
        return Verdict(f"it has {size} bytes, at most {expected.most_bytes} are expected", size)
    content = slot.content()
    try:
        reply = read_reply(content)
    except WireError as error:
        return Verdict(f"it is no valid message: {error}", size)
    return Verdict(check(reply, order, expected), size, reply, content)


def readable(text: str) -> str:
    """What somebody else wrote, fit for a log and a terminal.

    It is one line without control characters, and not too long.
    """
    signs = []
    for sign in text[:MOST_REASON]:
        if sign.isprintable():
            signs.append(sign)
        else:
            signs.append(" ")
    if len(text) > MOST_REASON:
        signs.append("…")
    return "".join(signs)


def plain_numbers(meta: Meta) -> dict[str, float]:
    """What of a reply's values can be averaged for a curve; absurd ones are left out."""
    numbers = {}
    for name, value in meta.items():
        is_number = type(value) in (int, float)  # True and False are none
        if is_number and abs(value) < MOST_PLAIN:
            numbers[name] = value
    return numbers
