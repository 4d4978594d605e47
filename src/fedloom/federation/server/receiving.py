"""A reply as it arrives: admitted or refused, measured, and written down as a receipt."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fedloom.errors import RunStopped
from fedloom.federation.protocol import admission
from fedloom.federation.protocol.envelope import Envelope
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
    fault, stamp = envelope.fault, order.stamp
    if fault is None:
        verdict = admit(order, parcel.reply, fields, check)
    else:
        verdict = Verdict(f"{fault.kind}: {fault.text}")
        if fault.detail:
            log.error("%s:\n%s", name, fault.detail)
        if fault.kind == "store":
            raise RunStopped("a client's state must be saved", fault.text, "free some space and resume the run")
    receipt = Receipt(
        stamp.round, stamp.hop, order.client, None, False, parcel.size, verdict.size, envelope.macs,
        envelope.seconds, memory=envelope.memory, deaths=envelope.deaths,
    )  # fmt: skip
    reply = verdict.reply
    if reply is not None:
        receipt = replace(receipt, wrote=reply.wrote, plain=plain_numbers(reply.meta))
    if reply is None or verdict.reason is not None:
        return replace(receipt, reason=readable(verdict.reason or "there is no reply"))
    receipt = replace(receipt, held=parcel.reply.held, checksum=parcel.reply.checksum())
    if stamp.hop < 0:
        return receipt
    norms = rulers.of(parcel, order, fields).measure(reply.tensors)
    by_kind = {f"{order.kind} {group}": size for group, size in norms.items()}
    return replace(receipt, facts=envelope.facts, norms=by_kind)


class Rulers:
    """Of the bodies that are out: orders that share one share its ruler, which holds a copy of it."""

    MOST = 4  # where every client has a body of its own, keeping them all would take too much memory

    def __init__(self) -> None:
        self.known: dict[tuple[int, str], Ruler] = {}  # by body and kind of order

    def of(self, parcel: Parcel, order: Order, fields: Fields) -> Ruler:
        key = (id(parcel.body), order.kind)
        if key not in self.known:
            if len(self.known) == self.MOST:
                self.known.pop(next(iter(self.known)))
            self.known[key] = Ruler(admission.wanted(order, fields))
        return self.known[key]


class Verdict(NamedTuple):
    """What admission says of a reply."""

    reason: str | None  # why it is refused
    size: int = 0
    reply: Reply | None = None


def admit(order: Order, slot: Slot, fields: Fields, check: Check) -> Verdict:
    size, most = slot.size(), admission.most_bytes(order, fields)
    if size > most:
        return Verdict(f"it has {size} bytes, at most {most} are expected", size)
    try:
        reply = read_reply(slot.content())
    except WireError as error:
        return Verdict(f"it is no valid message: {error}", size)
    return Verdict(check(reply, order), size, reply)


def readable(text: str) -> str:
    """What somebody else wrote, fit for a log and a terminal: one line, no control characters, not too long."""
    shown = "".join(sign if sign.isprintable() else " " for sign in text[: MOST_REASON + 1])
    return shown if len(shown) <= MOST_REASON else f"{shown[:MOST_REASON]}…"


def plain_numbers(meta: Meta) -> dict[str, float]:
    """What of a reply's values can be averaged for a curve; absurd ones are left out."""
    numbers = {name: value for name, value in meta.items() if type(value) in (int, float)}
    return {name: value for name, value in numbers.items() if abs(value) < MOST_PLAIN}
