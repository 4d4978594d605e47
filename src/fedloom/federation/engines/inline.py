"""The engine without processes: sites answer one after the other, here. For tests, debugging and dry runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from fedloom.federation.post import Parcel
from fedloom.federation.site import Envelope, Fault, Site


@dataclass(frozen=True)
class InlineEngine:
    site: Site

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Iterator[tuple[Parcel, Envelope]]:
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


@contextmanager
def one_thread() -> Iterator[None]:
    """The last bits of a convolution depend on the number of threads; one everywhere makes them equal."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
