"""Encoded orders on their way, and what carries them.

An engine brings parcels to sites and their replies back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedloom.federation.protocol.envelope import Envelope
from fedloom.federation.protocol.wire import Body, order_head
from fedloom.federation.server.spool import Slot, Spool
from fedloom.types import Order


@dataclass(frozen=True)
class Parcel:
    """An encoded order, and where its reply is to be put."""

    client: int
    head: bytes
    body: Body  # shared by all orders that carry the same tensors
    reply: Slot

    @property
    def size(self) -> int:
        return len(self.head) + self.body.size


class Engine(Protocol):
    """Carries parcels to sites and their replies back. One answer a parcel, in any order."""

    def ask(
        self,
        parcels: Sequence[Parcel],
        deadline: float | None,
    ) -> Iterator[tuple[Parcel, Envelope]]: ...


def encoded(orders: Iterable[Order], spool: Spool) -> Iterator[Parcel]:
    """Orders as parcels; tensors that several of them share are laid out once."""
    bodies: dict[tuple[tuple[str, int], ...], Body] = {}
    for order in orders:
        assert order.stamp is not None
        identity = tuple((name, id(tensor)) for name, tensor in order.tensors.items())
        if identity not in bodies:
            bodies[identity] = Body(order.tensors)
        body = bodies[identity]
        slot = spool.slot(order.stamp.round, order.stamp.hop, order.client)
        yield Parcel(order.client, order_head(order, body), body, slot)
