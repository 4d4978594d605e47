"""What the lines of a site's audit log say: who asked for what, and what left.

A server's words are cut and made printable, because a person reads them in a terminal.
"""

from __future__ import annotations

import hashlib
import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from fedloom import reading
from fedloom.federation.engines.flower.answers import bytes_in
from fedloom.federation.protocol.strict_json import read_json
from fedloom.federation.protocol.wire import read_order, read_reply, task_fields
from fedloom.types import Json, Stamp

if TYPE_CHECKING:
    from flwr.app import Message

MOST_WORD = 100  # characters of a name that a server chose
MOST_QUESTIONS = 20  # entries of a survey's question that are kept
MOST_VALUE = 2000  # characters of a value that left, as JSON; a longer one is only measured
MOST_FACTS = 1 << 16  # characters of facts that are kept as they left


def asked_by(message: Message) -> dict[str, Json]:
    """Who asked, as Flower tells it."""
    metadata = message.metadata
    return {
        "run": str(getattr(metadata, "run_id", "")),
        "message": word(getattr(metadata, "message_id", "")),
    }


def asked_survey(message: Message) -> dict[str, Json]:
    """A survey's question about the site's data."""
    question = {}
    asked = message.content.config_records["survey"]
    for name, value in islice(asked.items(), MOST_QUESTIONS):
        question[word(name)] = word(value)
    return {**asked_by(message), "question": question}


def asked_order(message: Message) -> dict[str, Json]:
    """An order, whatever was sent as one."""
    line = asked_by(message)
    try:
        head: Any = message.content.config_records["order"]["head"]
        body = bytes_in(message.content, "body")
        digest = hashlib.sha256(head)
        digest.update(body)
        line |= {"bytes": len(head) + len(body), "digest": digest.hexdigest()}
        order = read_order(head, body)
        terms = json.loads(str(message.content.config_records["terms"]["json"]))
    except Exception as error:
        return {**line, "unreadable": type(error).__name__}
    line |= {"kind": word(order.kind), "client": order.client, "terms": bounded(terms)}
    if order.stamp is not None:
        line |= of_stamp(order.stamp)
    return {**line, "tensors": len(order.tensors)}


def of_stamp(stamp: Stamp) -> dict[str, Json]:
    """The experiment and the round that an order belongs to."""
    task = json.dumps(task_fields(stamp.task), sort_keys=True)
    return {
        "experiment": word(stamp.experiment),
        "method": word(stamp.task.method),
        "task": hashlib.sha256(task.encode()).hexdigest(),
        "stage": word(stamp.stage),
        "round": stamp.round,
        "hop": stamp.hop,
    }


def replied_with(reply: bytes) -> dict[str, Json]:
    """What leaves in a reply: its values, the shapes of its tensors, its size and its digest."""
    content = read_reply(reply)
    values = {word(name): bounded(value) for name, value in content.meta.items()}
    shapes = {word(name): list(tensor.shape) for name, tensor in content.tensors.items()}
    return {
        "fields": values,
        "tensors": shapes,
        "weight": bounded(content.weight),
        "bytes": len(reply),
        "digest": hashlib.sha256(reply).hexdigest(),
    }


def answered_survey(facts: str) -> dict[str, Json]:
    """What leaves in the answer to a survey."""
    line: dict[str, Json] = {
        "bytes": len(facts.encode()),
        "digest": hashlib.sha256(facts.encode()).hexdigest(),
    }
    if len(facts) <= MOST_FACTS:
        line["facts"] = read_json(facts)
    return line


def word(value: object) -> str:
    """A server's word: on one line, without control characters, not too long."""
    characters = []
    for character in str(value)[:MOST_WORD]:
        characters.append(character if character.isprintable() else " ")
    return "".join(characters)


def bounded(value: Json) -> Json:
    """A value, or only its size if it is long.

    A value that a later reader of the log could not handle, such as one that is nested deeply, is
    left out.
    """
    try:
        text = json.dumps(value, allow_nan=False)
        reading.bounded(value)
    except (ValueError, RecursionError, reading.Unreadable):
        return {"unreadable": True}
    if len(text) > MOST_VALUE:
        return {"characters": len(text)}
    return value
