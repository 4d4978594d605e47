"""The engine that sends orders over Flower's grid, one message per order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedloom.errors import RunStopped
from fedloom.federation.engines.flower.parcels import NONE_OF_OURS, Sender, from_outside, opened
from fedloom.federation.engines.inline import late
from fedloom.federation.protocol.envelope import Envelope, Fault
from fedloom.federation.protocol.parcels import Parcel

POLL = 0.2  # seconds between two checks for replies
POLL_APART = 0.2  # the same, if each reply has its own thread
AWAY = 2.0  # seconds after which a site that was not connected is tried again
PATIENCE = 120.0  # seconds for which it is tried if there is no deadline
# Flower's answer on behalf of a site that is not connected.
UNAVAILABLE = ErrorCode.NODE_UNAVAILABLE


@dataclass(frozen=True)
class FlowerEngine:
    """Sends orders to the nodes of a Flower grid and collects their replies."""

    grid: Grid
    nodes: Mapping[int, int]  # the node id of each client
    # How many clients share a worker. They wait for one another, so deadlines are multiplied by it.
    in_turns: int = 1
    poll: float = POLL
    terms: str | None = None  # of a deployment: how sites divide their samples

    def ask(
        self,
        parcels: Sequence[Parcel],
        deadline: float | None,
    ) -> Iterator[tuple[Parcel, Envelope]]:
        sender = Sender(self.terms)
        began = time.monotonic()
        most = None
        patience = PATIENCE
        if deadline is not None:
            most = deadline * self.in_turns
            patience = most
        is_real = self.terms is not None
        waiting = self._push(sender, parcels, most)
        with replies_of(self.grid, thread_per_reply=is_real) as look:
            while waiting and (most is None or time.monotonic() - began < most):
                away: list[Parcel] = []
                for message in look(list(waiting)):
                    parcel = waiting.pop(message.metadata.reply_to_message_id, None)
                    if parcel is None:
                        continue  # this reply was already handled
                    if is_away(message) and time.monotonic() - began < patience:
                        away.append(parcel)
                    else:
                        yield parcel, received(message, parcel, deadline, real=is_real)
                if away:
                    time.sleep(AWAY)
                elif waiting:
                    time.sleep(self.poll)
                waiting |= self._push(sender, away, most)
        for parcel in waiting.values():
            assert deadline is not None
            yield parcel, Envelope(time.monotonic() - began, fault=late(deadline))

    def _push(
        self,
        sender: Sender,
        parcels: Sequence[Parcel],
        most: float | None,
    ) -> dict[str, Parcel]:
        if not parcels:
            return {}
        messages = []
        for parcel in parcels:
            messages.append(sender.message(parcel, self.nodes[parcel.client], most))
        ids = list(self.grid.push_messages(messages))
        if len(ids) != len(parcels):
            raise RunStopped(
                "Flower must accept every order",
                f"it accepted {len(ids)} of {len(parcels)}",
                "see its log, then resume the run",
            )
        return dict(zip(ids, parcels, strict=True))


# Takes the ids of messages that were sent, and returns the replies that have arrived since.
Look = Callable[[Sequence[str]], Iterable[Message]]


@contextmanager
def replies_of(grid: Grid, *, thread_per_reply: bool) -> Iterator[Look]:
    """A function that looks for replies.

    With `thread_per_reply`, each reply is fetched by its own thread. Flower waits for minutes for a
    reply that was announced and never completed, because its site was killed while sending it, or
    did so on purpose. If replies were fetched together, it would keep all others waiting beyond any
    deadline.
    """
    if not thread_per_reply:
        yield grid.pull_messages
        return
    inbox: SimpleQueue[Message | Exception] = SimpleQueue()
    watched: set[str] = set()
    over = threading.Event()

    def watch(message_id: str) -> None:
        try:
            while not over.is_set():
                for message in grid.pull_messages([message_id]):
                    inbox.put(message)
                    return
                over.wait(POLL_APART)
        except Exception as error:  # `look` raises it in the thread of the loop
            inbox.put(error)

    def look(ids: Sequence[str]) -> Iterator[Message]:
        for message_id in set(ids) - watched:
            watched.add(message_id)
            threading.Thread(target=watch, args=(message_id,), daemon=True).start()
        while not inbox.empty():
            message = inbox.get()
            if isinstance(message, Exception):
                raise message
            yield message

    try:
        yield look
    finally:
        over.set()


def is_away(message: Message) -> bool:
    """Whether the site did not get the message because it is not connected at the moment."""
    return bool(message.has_error()) and message.error.code == UNAVAILABLE


def received(message: Message, parcel: Parcel, deadline: float | None, *, real: bool) -> Envelope:
    """Store a site's reply in its slot. Admission checks it later."""
    if message.has_error():
        return Envelope(fault=Fault("died", f"Flower reports: {message.error.reason}"))
    try:
        reply, envelope = opened(message)
        if real:
            envelope = from_outside(envelope)
    except NONE_OF_OURS as error:
        reason = f"its message is not from fedloom ({type(error).__name__})"
        return Envelope(fault=Fault("raised", reason))
    if deadline is not None and envelope.seconds > deadline:
        return Envelope(envelope.seconds, fault=late(deadline))
    if envelope.fault is None:
        parcel.reply.put([reply])
    return envelope
