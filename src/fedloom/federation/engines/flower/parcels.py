"""The server's half of Flower's messages: parcels go into them, and sites' answers come out."""

from __future__ import annotations

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedloom.federation.engines.flower.answers import bytes_in, raw
from fedloom.federation.protocol.envelope import Envelope, Fault, FaultKind
from fedloom.federation.protocol.parcels import Parcel
from fedloom.federation.protocol.wire import read_json

KIND = "query"  # of all our messages; what an order asks for stands in it
BEYOND = 7 * 24 * 3600.0  # seconds that a message without a deadline stays valid
LONGEST = 1e9  # seconds that a site may claim to have worked
MOST_TEXT = 500  # characters of a site's reason
# Opening messages that are not ours raises these.
NONE_OF_OURS = (KeyError, ValueError, TypeError, AttributeError, RecursionError)


class Sender:
    """Makes messages of parcels; those with one body share one array."""

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
    """A site's answer: the reply's bytes, which nobody has checked yet, and the envelope."""
    text = str(message.content.config_records["envelope"]["json"])
    return bytes_in(message.content, "reply"), Envelope.from_json(read_json(text))


def from_outside(envelope: Envelope) -> Envelope:
    """What is believed of an envelope that a real site sent.

    Its seconds count if they are some, and so does its reason why there is no reply. Nothing in it
    may stop the run (a full disk there is that site's trouble) or reach a report.
    """
    seconds = envelope.seconds
    fault = envelope.fault
    if type(seconds) not in (int, float) or not 0 <= seconds < LONGEST:
        raise ValueError("its seconds are no number")
    if fault is None:
        return Envelope(float(seconds), None)
    kind: FaultKind = "raised"
    if fault.kind in ("lost", "refused"):
        kind = fault.kind
    return Envelope(float(seconds), None, None, Fault(kind, str(fault.text)[:MOST_TEXT]))
