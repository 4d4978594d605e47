"""The site's side of Flower's messages: it takes the bytes of orders out, and puts replies in.

The bytes are unchanged, in one array. Flower never interprets them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedloom.federation.protocol.envelope import Envelope
from fedloom.files import Chunk


def replied(message: Message, chunks: Sequence[Chunk], envelope: Envelope) -> Message:
    beside = ConfigRecord({"json": json.dumps(envelope.to_json())})
    return Message(RecordDict({"envelope": beside, "reply": raw(chunks)}), reply_to=message)


def raw(chunks: Sequence[Chunk]) -> ArrayRecord:
    data = b"".join(chunks)
    array = Array(dtype="uint8", shape=(len(data),), stype="fedloom", data=data)
    return ArrayRecord({"raw": array})


def bytes_in(content: RecordDict, name: str) -> bytes:
    return bytes(content.array_records[name]["raw"].data)
