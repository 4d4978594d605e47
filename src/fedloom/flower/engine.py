"""The engine that talks to Flower's grid: one message an order, its reply whenever it comes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from fedloom.errors import RunStopped
from fedloom.federation.engines.inline import late
from fedloom.federation.post import Parcel
from fedloom.federation.site import Envelope, Fault
from fedloom.flower.parcels import Sender, opened

POLL = 0.2  # seconds between two looks for replies


@dataclass(frozen=True)
class FlowerEngine:
    grid: Grid
    nodes: Mapping[int, int]  # client → node id
    in_turns: int = 1  # clients that may have to wait for one another's end, which is not their fault
    poll: float = POLL
    terms: str | None = None  # of a deployment: how sites divide their samples

    def ask(self, parcels: Sequence[Parcel], deadline: float | None) -> Iterator[tuple[Parcel, Envelope]]:
        sender, began = Sender(self.terms), time.monotonic()
        most = None if deadline is None else deadline * self.in_turns
        messages = [sender.message(parcel, self.nodes[parcel.client], most) for parcel in parcels]
        ids = list(self.grid.push_messages(messages)) if messages else []
        if len(ids) != len(parcels):
            found = f"it took {len(ids)} of {len(parcels)}"
            raise RunStopped("Flower must take every order", found, "see its log, then resume the run")
        waiting = dict(zip(ids, parcels, strict=True))
        while waiting and (most is None or time.monotonic() - began < most):
            for message in self.grid.pull_messages(list(waiting)):
                parcel = waiting.pop(message.metadata.reply_to_message_id, None)
                if parcel is not None:  # else it was counted before
                    yield parcel, received(message, parcel, deadline)
            time.sleep(self.poll if waiting else 0.0)
        for parcel in waiting.values():
            assert deadline is not None
            yield parcel, Envelope(time.monotonic() - began, fault=late(deadline))


def received(message: Message, parcel: Parcel, deadline: float | None) -> Envelope:
    """Put the reply into its place; what is wrong with it is admission's to say."""
    if message.has_error():
        return Envelope(fault=Fault("died", f"Flower reports: {message.error.reason}"))
    try:
        reply, envelope = opened(message)
    except (KeyError, ValueError, TypeError, AssertionError) as error:
        return Envelope(fault=Fault("raised", f"its message is none of ours ({type(error).__name__})"))
    if deadline is not None and envelope.seconds > deadline:
        return Envelope(envelope.seconds, fault=late(deadline))
    if envelope.fault is None:
        parcel.reply.put([reply])
    return envelope
