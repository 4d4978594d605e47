"""A reply as it arrives: admitted or refused, measured, and written down as a receipt."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fedloom.errors import RunStopped
from fedloom.federation.protocol import admission
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.wire import WireError, read_reply
from fedloom.federation.server.norms import Ruler
from fedloom.federation.server.parcels import Parcel
from fedloom.federation.server.spool import Receipt, Slot
from fedloom.types import Fields, Meta, Order, Reply

log = logging.getLogger("fedloom")

MOST_REASON = 500  # characters: it may quote what a client sent
MOST_PLAIN = 1e100  # of a number in a reply: even the sum of many stays finite

Check = Callable[[Reply, Order], str | None]  # why a reply may not be used; None: it may


def receive(
    order: Order, parcel: Parcel, envelope: Envelope, fields: Fields, check: Check, rulers: Rulers, name: str
) -> Receipt:
    """What became of an order. `name` is what messages call its client."""
    assert order.stamp is not None
    stamp = order.stamp
    fault = envelope.fault
    verdict = admit(order, parcel.reply, fields, check) if fault is None else no_reply(fault, name)
    receipt = Receipt(
        round=stamp.round,
        hop=stamp.hop,
        client=order.client,
        reason=None,
        wrote=False,
        down=parcel.size,
        up=verdict.size,
        macs=envelope.macs,
        seconds=envelope.seconds,
        memory=envelope.memory,
        deaths=envelope.deaths,
    )
    reply = verdict.reply
    if reply is not None:
        receipt = replace(receipt, wrote=reply.wrote, plain=plain_numbers(reply.meta))
    if reply is None or verdict.reason is not None:
        return replace(receipt, reason=readable(verdict.reason or "there is no reply"))
    receipt = replace(receipt, held=parcel.reply.held, checksum=parcel.reply.checksum())
    if stamp.hop < 0:  # no work: it has neither facts nor an update
        return receipt
    norms = rulers.of(parcel, order, fields).measure(reply.tensors)
    norms_by_kind = {f"{order.kind} {group}": size for group, size in norms.items()}
    return replace(receipt, facts=envelope.facts, norms=norms_by_kind)


class Rulers:
    """Of the bodies that are out: orders that share one share its ruler, which holds a copy of it."""

    MOST = 4  # where every client has a body of its own, keeping them all would take too much memory

    def __init__(self) -> None:
        self.rulers: dict[tuple[int, str], Ruler] = {}  # by body and kind of order

    def of(self, parcel: Parcel, order: Order, fields: Fields) -> Ruler:
        key = (id(parcel.body), order.kind)
        if key not in self.rulers:
            if len(self.rulers) == self.MOST:
                self.rulers.pop(next(iter(self.rulers)))
            self.rulers[key] = Ruler(admission.wanted(order, fields))
        return self.rulers[key]


class Verdict(NamedTuple):
    """What admission says of a reply."""

    reason: str | None  # why it is refused
    size: int = 0
    reply: Reply | None = None


def no_reply(fault: Fault, name: str) -> Verdict:
    """Why there is none; a disk that cannot keep a client's state stops the run."""
    if fault.detail:
        log.error("%s:\n%s", name, fault.detail)
    if fault.kind == "store":
        raise RunStopped("a client's state must be saved", fault.text, "free some space and resume the run")
    return Verdict(f"{fault.kind}: {fault.text}")


def admit(order: Order, slot: Slot, fields: Fields, check: Check) -> Verdict:
    size = slot.size()
    most = admission.most_bytes(order, fields)
    if size > most:
        return Verdict(f"it has {size} bytes, at most {most} are expected", size)
    try:
        reply = read_reply(slot.content())
    except WireError as error:
        return Verdict(f"it is no valid message: {error}", size)
    return Verdict(check(reply, order), size, reply)


def readable(text: str) -> str:
    """What somebody else wrote, fit for a log and a terminal: one line, no control characters, not too long."""
    signs = [sign if sign.isprintable() else " " for sign in text[:MOST_REASON]]
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
