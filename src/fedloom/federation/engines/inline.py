"""The engine without worker processes: clients answer one after the other in this process.

It is meant for tests, debugging and dry runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedloom.federation.client.site import Site
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.parcels import Parcel
from fedloom.threads import one_thread


@dataclass(frozen=True)
class InlineEngine:
    """Answers orders in this process."""

    site: Site

    def ask(
        self,
        parcels: Sequence[Parcel],
        deadline: float | None,
    ) -> Iterator[tuple[Parcel, Envelope]]:
        for parcel in parcels:
            with one_thread():
                chunks, envelope = self.site.handle(parcel.head, b"".join(parcel.body.chunks))
            if deadline is not None and envelope.seconds > deadline:
                yield parcel, replace(envelope, fault=late(deadline))
                continue
            if envelope.fault is None:
                parcel.reply.put(chunks)
            yield parcel, envelope


def late(deadline: float) -> Fault:
    return Fault("late", f"no reply within {deadline:g} s (--deadline)")
