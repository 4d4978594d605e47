"""Messages and states as bytes: a JSON header of a closed schema, then raw tensors. No pickle.

The layout is that of safetensors, so any safetensors reader opens a checkpoint:

    8 bytes    length of the header, little endian
    header     {"__metadata__": {"fedloom": "<our fields as JSON>"},
                "<name>": {"dtype", "shape", "data_offsets"}, …}
    body       the tensors, without gaps, widest element first, then by dtype and name

Encoding is split into head and body because many orders share one body. Decoding trusts nothing:
every claim is checked against the bytes that are really there before anything is allocated.

A state that is kept in a file has a checksum beside our fields, `"crc32"`: disks lose bits, and a
flipped bit would otherwise change the weights unnoticed. Messages have none, because the network
protects them, and neither do files that versions without checksums wrote.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from fedloom.federation.protocol.packing import (
    Buffer,
    OnDemand,
    Packed,
    WireError,
    arranged,
    layout_of,
    size_of,
    table_line,
)
from fedloom.federation.protocol.strict_json import decode, read_json
from fedloom.types import Json, Order, Region, Reply, Stamp, State, Task, Tensors

OPENING = '{"__metadata__":'
OUR_OPENING = OPENING + '{"fedloom": '  # what a header begins with if we wrote it
CHECKSUM = "crc32"  # its name in a file's header
HEADING = {"fedloom", CHECKSUM}  # the keys that a header's metadata may have
ALIGN = 64  # the body starts on a cache line
MOST_HEADER = 64 << 20
# The encoder is created once, whereas json.dumps would create one for every call.
_encode = json.JSONEncoder(allow_nan=False).encode


def order_head(order: Order, body: Body, stamps: StampText | None = None) -> bytes:
    """The head of an order. Orders that are encoded one after the other share `stamps`."""
    kind = encode_basestring_ascii(order.kind)
    region = "null"
    if order.region is not None:
        region = _encode(order.region)
    group = "null"
    if order.group is not None:
        group = f"{order.group:d}"
    stamp = "null"
    if order.stamp is not None:
        stamp = (stamps or StampText()).of(order.stamp)
    return body.head(
        f'{{"client": {order.client:d}, "kind": {kind}, "meta": {_encode(order.meta)}, '
        f'"region": {region}, "group": {group}, "stamp": {stamp}}}'
    )


def read_order(head: Buffer, body: Buffer) -> Order:
    fields, tensors = _read(OrderFields, head, body)
    return Order(
        fields.client,
        fields.kind,
        OnDemand(tensors),
        fields.meta,
        fields.region,
        fields.group,
        fields.stamp,
    )


def reply_chunks(reply: Reply) -> list[bytes | memoryview]:
    body = Body(reply.tensors)
    fields = dump(
        client=reply.client,
        weight=reply.weight,
        meta=reply.meta,
        count=reply.count,
        wrote=reply.wrote,
    )
    return [body.head(fields), *body.chunks]


def read_reply(data: Buffer) -> Reply:
    """A reply whose tensors are views into `data`."""
    fields, tensors = _read(ReplyFields, *split(data))
    return Reply(fields.client, tensors, fields.weight, fields.meta, fields.count, fields.wrote)


def state_chunks(state: State) -> list[bytes | memoryview]:
    body = Body(state.tensors)
    return [body.head(dump(meta=state.meta)), *body.chunks]


def checked_state_chunks(state: State) -> list[bytes | memoryview]:
    """A state for a file, with a checksum."""
    body = Body(state.tensors)
    return [body.head(dump(meta=state.meta), checked=True), *body.chunks]


def read_state(data: Buffer) -> State:
    """A state from a file."""
    text, tensors = open_file(*split(data))
    return State(tensors.copied(), _fields(StateFields, text).meta)


# The fields in a header


class Header(BaseModel):
    """A closed schema: fields that it does not name are refused."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        frozen=True,
        defer_build=True,
    )


class OrderFields(Header):
    client: int
    kind: str
    meta: dict[str, Any]
    region: dict[str, Region] | None
    group: int | None
    stamp: Stamp | None


class ReplyFields(Header):
    client: int
    weight: float | dict[str, float]
    meta: dict[str, Any]
    count: dict[str, int] | None
    wrote: bool


class StateFields(Header):
    meta: dict[str, Any]


F = TypeVar("F", bound=Header)


def _read(kind: type[F], head: Buffer, body: Buffer) -> tuple[F, Packed]:
    text, tensors = open_message(head, body)
    return _fields(kind, text), tensors


def _fields(kind: type[F], text: str) -> F:
    try:
        # This is strict for the stamp too, whose classes have their own config.
        fields = kind.model_validate_json(text, strict=True)
        # Pydantic would silently take the last of two equal keys, and read 1e999 as infinity.
        read_json(text, finite=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the fields"
        raise WireError(f"{where}: {first['msg'].lower()}") from None
    except ValueError as error:
        raise WireError(f"the fields are not valid JSON: {error}") from None
    return fields


# Encoding


def dump(**fields: Any) -> str:
    return _encode(fields)


class StampText:
    """Encodes stamps as JSON. It reuses the text of the latest task and the latest stamp.

    The orders of a round share a task, and many of them share a whole stamp.
    """

    def __init__(self) -> None:
        self._task: Task | None = None
        self._task_text = ""
        self._stamp: Stamp | None = None
        self._stamp_text = ""

    def of(self, stamp: Stamp) -> str:
        if stamp is not self._stamp:
            self._stamp = stamp
            self._stamp_text = self._encoded(stamp)
        return self._stamp_text

    def _encoded(self, stamp: Stamp) -> str:
        if stamp.task is not self._task:
            self._task = stamp.task
            self._task_text = _encode(task_fields(stamp.task))
        before = dump(experiment=stamp.experiment)
        after = dump(
            stage=stamp.stage,
            round=stamp.round,
            hop=stamp.hop,
            read=stamp.read,
            write=stamp.write,
            keep=stamp.keep,
        )
        return f'{before[:-1]}, "task": {self._task_text}, {after[1:]}'


def task_fields(task: Task) -> dict[str, Json]:
    """The fields of a task, without the regression target if it has none."""
    fields = dict(vars(task))
    if task.target is None:
        del fields["target"]
    return fields


class Body:
    """Tensors laid out for the wire; nothing is copied until the chunks are written."""

    def __init__(self, tensors: Tensors) -> None:
        entries = arranged(tensors)
        self.size = size_of(entries)
        self.table = ",".join([table_line(entry) for entry in entries])
        self.chunks: list[memoryview] = [
            tensors[entry.name].numpy(force=True).reshape(-1).view(np.uint8).data
            for entry in entries
            if entry.end > entry.begin
        ]

    def head(self, fields: str, *, checked: bool = False) -> bytes:
        """The header of a message with this body, padded so that the body starts aligned.

        With `checked`, it contains a checksum of everything, for a file.
        """
        text = OUR_OPENING + encode_basestring_ascii(fields)
        if checked:
            content = checksum(fields, f"{{{self.table}}}", self.chunks)
            text += f', "{CHECKSUM}": "{content}"'
        text += "}"
        if self.table:
            text += f",{self.table}"
        header = f"{text}}}".encode()
        header += b" " * (-(len(header) + 8) % ALIGN)
        return len(header).to_bytes(8, "little") + header


def checksum(fields: str, table: str, body: Iterable[Buffer]) -> str:
    """The checksum of a file's content: our fields, the table of tensors, and their bytes."""
    value = zlib.crc32(table.encode(), zlib.crc32(fields.encode()))
    for chunk in body:
        value = zlib.crc32(chunk, value)
    return f"{value:08x}"


# Decoding


def split(data: Buffer) -> tuple[memoryview, memoryview]:
    """Split one buffer into head and body."""
    view = memoryview(data)
    if len(view) < 8:
        raise WireError(f"a message needs at least 8 bytes, these are {len(view)}")
    length = int.from_bytes(view[:8], "little")
    if length > min(MOST_HEADER, len(view) - 8):
        raise WireError(f"the header claims {length} bytes of {len(view) - 8}")
    return view[: 8 + length], view[8 + length :]


class Heading(NamedTuple):
    """The parts of a header, two of them still JSON text."""

    fields: str
    table: str  # of the tensors
    checksum: str | None  # of a file's content


def open_message(head: Buffer, body: Buffer) -> tuple[str, Packed]:
    """The fields of a message (as JSON text) and its tensors.

    Every claim in the header has been checked against the bytes.
    """
    heading = _heading(head)
    if heading.checksum is not None:
        raise WireError("the header has a checksum, which only files have")
    return heading.fields, _tensors(heading, body)


def open_file(head: Buffer, body: Buffer) -> tuple[str, Packed]:
    """The same for a file. If it contains a checksum, its content must match it."""
    heading = _heading(head)
    tensors = _tensors(heading, body)
    if heading.checksum is None:
        return heading.fields, tensors
    actual = checksum(heading.fields, heading.table, [body])
    if actual != heading.checksum:
        raise WireError(f"it is damaged: its checksum is {actual}, not {heading.checksum}")
    return heading.fields, tensors


def _tensors(heading: Heading, body: Buffer) -> Packed:
    layout = layout_of(heading.table)
    if layout.size != len(body):
        raise WireError(f"the header claims {layout.size} bytes of tensors, {len(body)} are there")
    return Packed(body, layout)


def _heading(head: Buffer) -> Heading:
    """Split a header into our fields, which come first, and the table of tensors."""
    raw = header_of(head)
    try:
        text = raw.decode()
        meta, end = _metadata(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header is not JSON ({type(error).__name__})") from None
    if not isinstance(meta, dict) or not isinstance(meta.get("fedloom"), str):
        raise WireError("the header does not begin with the fields of fedloom")
    content_checksum = meta.get(CHECKSUM)
    if not meta.keys() <= HEADING or not isinstance(content_checksum, str | None):
        raise WireError("the header begins with more than the fields of fedloom")
    table = text[end:].rstrip(" ")
    if not table.startswith(',"') and table != "}":
        raise WireError("the header is not JSON")
    return Heading(meta["fedloom"], "{" + table.removeprefix(","), content_checksum)


def _metadata(text: str) -> tuple[Any, int]:
    """The metadata with which a header begins, and where it ends.

    The metadata is None if the header begins otherwise.
    """
    if text.startswith(OUR_OPENING):  # nearly always; one string is read faster than an object
        fields, end = decode(text, len(OUR_OPENING))
        if isinstance(fields, str) and text.startswith("}", end):
            return {"fedloom": fields}, end + 1
    if text.startswith(OPENING):
        return decode(text, len(OPENING))
    return None, 0


def header_of(head: Buffer) -> bytes:
    view, body = split(head)
    if len(body):
        raise WireError("bytes follow the header")
    return bytes(view[8:])
