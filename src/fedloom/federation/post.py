"""The post: orders out through an engine, replies in past admission, receipts in the journal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from fedloom.errors import RunStopped
from fedloom.federation import admission
from fedloom.federation.site import Envelope
from fedloom.federation.spool import Receipt, Spool, map_file
from fedloom.federation.wire import Body, WireError, order_head, read_reply
from fedloom.types import Fields, Meta, Order, Reply

log = logging.getLogger("fedloom")

MOST_PLAIN = 1e100  # of a number in a reply: even the sum of many stays finite


@dataclass(frozen=True)
class Parcel:
    """An encoded order, and where its reply is to be put."""

    client: int
    head: bytes
    body: Body  # shared by all orders that carry the same tensors
    reply: Path

    @property
    def size(self) -> int:
        return len(self.head) + self.body.size


class Engine(Protocol):
    """Carries parcels to sites and their replies back. One answer a parcel, in any order."""

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Iterator[tuple[Parcel, Envelope]]: ...


Check = Callable[[Reply, Order], str | None]


@dataclass(frozen=True)
class Post:
    engine: Engine
    spool: Spool
    deadline: float | None = None

    def exchange(
        self, orders: Sequence[Order], fields: Callable[[str], Fields], check: Check
    ) -> Iterator[tuple[Order, Receipt, Envelope]]:
        """Send orders (all of one round and hop), and yield what became of each, as it arrives."""
        by_client = {order.client: order for order in orders}
        for parcel, envelope in self.engine.ask(list(self.parcels(orders)), self.deadline):
            order = by_client[parcel.client]
            receipt = self._receive(order, parcel, envelope, fields(order.kind), check)
            if receipt.reason is not None:
                log.warning("round %d: client %d refused: %s", receipt.round, receipt.client, receipt.reason)
            yield order, receipt, envelope

    def parcels(self, orders: Iterable[Order]) -> Iterator[Parcel]:
        """Encode orders; tensors that several of them share are laid out once."""
        bodies: dict[tuple[tuple[str, int], ...], Body] = {}
        for order in orders:
            assert order.stamp is not None
            identity = tuple((name, id(tensor)) for name, tensor in order.tensors.items())
            if identity not in bodies:
                bodies[identity] = Body(order.tensors)
            body = bodies[identity]
            path = self.spool.path(order.stamp.round, order.stamp.hop, order.client)
            yield Parcel(order.client, order_head(order, body), body, path)

    def _receive(self, order: Order, parcel: Parcel, envelope: Envelope, fields: Fields, check: Check) -> Receipt:
        assert order.stamp is not None
        fault, stamp = envelope.fault, order.stamp
        sent = Receipt(
            stamp.round, stamp.hop, order.client, None, False, parcel.size, 0, envelope.macs, envelope.seconds
        )  # fmt: skip
        if fault is None:
            return self._admit(order, parcel.reply, fields, check, sent)
        if fault.detail:
            log.error("client %d:\n%s", order.client, fault.detail)
        if fault.kind == "store":
            raise RunStopped("a client's state must be saved", fault.text, "free some space and resume the run")
        return replace(sent, reason=f"{fault.kind}: {fault.text}")

    @staticmethod
    def _admit(order: Order, path: Path, fields: Fields, check: Check, sent: Receipt) -> Receipt:
        size, most = path.stat().st_size, admission.most_bytes(order, fields)
        sent = replace(sent, up=size)
        if size > most:
            return replace(sent, reason=f"it has {size} bytes, at most {most} are expected")
        try:
            reply = read_reply(map_file(path))
        except WireError as error:
            return replace(sent, reason=f"it is no valid message: {error}")
        return replace(sent, reason=check(reply, order), wrote=reply.wrote, plain=plain_numbers(reply.meta))


def plain_numbers(meta: Meta) -> dict[str, float]:
    """What of a reply's values can be averaged for a curve; absurd ones are left out."""
    numbers = {name: value for name, value in meta.items() if type(value) in (int, float)}
    return {name: value for name, value in numbers.items() if abs(value) < MOST_PLAIN}
