"""How the server encodes orders as parcels, which an engine then delivers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fedloom.federation.protocol.parcels import Parcel
from fedloom.federation.protocol.wire import Body, StampText, order_head
from fedloom.federation.server.spool import Spool
from fedloom.types import Order


def encoded(orders: Iterable[Order], spool: Spool) -> Iterator[Parcel]:
    """The orders as parcels. Tensors that several orders share are encoded once."""
    bodies: dict[tuple[tuple[str, int], ...], Body] = {}
    stamps = StampText()
    for order in orders:
        assert order.stamp is not None
        identity = tuple((name, id(tensor)) for name, tensor in order.tensors.items())
        if identity not in bodies:
            bodies[identity] = Body(order.tensors)
        body = bodies[identity]
        slot = spool.slot(order.stamp.round, order.stamp.hop, order.client)
        yield Parcel(order.client, order_head(order, body, stamps), body, slot, order.kind)


def encoded_size(order: Order) -> int:
    """The bytes of an encoded order."""
    body = Body(order.tensors)
    return len(order_head(order, body)) + body.size
