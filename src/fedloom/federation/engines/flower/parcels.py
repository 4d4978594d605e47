"""The server's side of Flower's messages: it puts parcels in, and takes sites' answers out."""

from __future__ import annotations

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedloom.federation.engines.flower.answers import bytes_in, raw
from fedloom.federation.protocol.envelope import Envelope, Fault, FaultKind
from fedloom.federation.protocol.parcels import Parcel
from fedloom.federation.protocol.strict_json import read_json

KIND = "query"  # the message type of all our messages; an order's own kind is inside it
BEYOND = 7 * 24 * 3600.0  # seconds that a message without a deadline stays valid
LONGEST = 1e9  # seconds that a site may claim to have worked
# What a site may say instead of a reply. It sends no text of an error (`deploy/failures.py`).
CODES = ("lost", "refused", "data", "memory", "method")
MOST_TEXT = 500  # characters of a site's reason
# The errors that opening a message from another program can raise.
NONE_OF_OURS = (KeyError, ValueError, TypeError, AttributeError, RecursionError)


class Sender:
    """Turns parcels into messages. Parcels with the same body share one array."""

    def __init__(self, terms: str | None) -> None:
        self.arrays: dict[int, ArrayRecord] = {}
        self.terms: dict[str, ConfigRecord] = {}
        if terms is not None:
            self.terms["terms"] = ConfigRecord({"json": terms})

    def message(self, parcel: Parcel, node: int, deadline: float | None) -> Message:
        if id(parcel.body) not in self.arrays:
            self.arrays[id(parcel.body)] = raw(parcel.body.chunks)
        order = ConfigRecord({"head": parcel.head})
        body = self.arrays[id(parcel.body)]
        content = RecordDict({"order": order, "body": body, **self.terms})
        valid_seconds = BEYOND
        if deadline is not None:
            valid_seconds = deadline
        return Message(content, node, KIND, ttl=valid_seconds)


def opened(message: Message) -> tuple[bytes, Envelope]:
    """A site's answer: the bytes of its reply, which are not checked yet, and its envelope."""
    text = str(message.content.config_records["envelope"]["json"])
    return bytes_in(message.content, "reply"), Envelope.from_json(read_json(text))


def from_outside(envelope: Envelope) -> Envelope:
    """The parts of a real site's envelope that the server trusts.

    These are its seconds, if they are plausible, and its reason why there is no reply. Nothing in
    it may stop the run (a full disk at a site is that site's problem) or reach a report.
    """
    seconds = envelope.seconds
    fault = envelope.fault
    if type(seconds) not in (int, float) or not 0 <= seconds < LONGEST:
        raise ValueError("its seconds are not a plausible number")
    if fault is None:
        return Envelope(float(seconds), None)
    kind: FaultKind = "raised"
    if fault.kind in CODES:
        kind = fault.kind
    return Envelope(float(seconds), None, None, Fault(kind, str(fault.text)[:MOST_TEXT]))
