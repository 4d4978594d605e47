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

import json
import math
import mmap
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from fedloom.copying import copy_all
from fedloom.types import Json, Order, Region, Reply, Stamp, State, Task, Tensors

DTYPES = {
    "F64": torch.float64,
    "I64": torch.int64,
    "F32": torch.float32,
    "I32": torch.int32,
    "F16": torch.float16,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
WIDEST_FIRST = sorted(CODES, key=lambda dtype: (-dtype.itemsize, str(dtype)))
RANKS = {dtype: number for number, dtype in enumerate(WIDEST_FIRST)}
PLACE = {"dtype", "shape", "data_offsets"}
OPENING = '{"__metadata__":'
OUR_OPENING = OPENING + '{"fedloom": '  # what a header begins with if we wrote it
CHECKSUM = "crc32"  # its name in a file's header
HEADING = {"fedloom", CHECKSUM}  # the keys that a header's metadata may have
ALIGN = 64  # the body starts on a cache line
MOST_HEADER = 64 << 20
MOST_DIMENSIONS = 8
# Sizes of 0 count as 1 here, because torch multiplies the other sizes for its strides.
MOST_ELEMENTS = 1 << 40

Buffer: TypeAlias = Any  # bytes, bytearray, memoryview or mmap


class WireError(ValueError):
    """These bytes are not a message. The text says what is wrong with them."""


class Entry(NamedTuple):
    """One tensor's place in a body."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class Layout:
    """The places of all tensors of a body. Messages with the same table share one."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self.by_name = {entry.name: entry for entry in entries}
        # Begin and end of the tensors of each dtype, which are adjacent.
        self.spans: dict[torch.dtype, tuple[int, int]] = {}
        for entry in entries:
            begin, _ = self.spans.get(entry.dtype, (entry.begin, 0))
            self.spans[entry.dtype] = (begin, entry.end)
        self.size = size_of(entries)


def size_of(entries: Sequence[Entry]) -> int:
    """How many bytes these tensors occupy. They are adjacent."""
    if not entries:
        return 0
    return entries[-1].end


class Body:
    """Tensors laid out for the wire; nothing is copied until the chunks are written."""

    def __init__(self, tensors: Tensors) -> None:
        entries = arranged(tensors)
        self.size = size_of(entries)
        self.table = ",".join([line(entry) for entry in entries])
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


def arranged(tensors: Tensors) -> tuple[Entry, ...]:
    """Where each tensor lies in a body, in the order of the body."""
    entries = []
    begin = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: rank(item[0], item[1].dtype)):
        end = begin + tensor.nbytes
        entries.append(Entry(name, tensor.dtype, tuple(tensor.shape), begin, end))
        begin = end
    return tuple(entries)


def line(entry: Entry) -> str:
    """A tensor's entry in the header's table, as JSON."""
    name, dtype, shape, begin, end = entry
    place = f'{{"dtype":"{CODES[dtype]}","shape":{list(shape)},"data_offsets":[{begin},{end}]}}'
    return f"{encode_basestring_ascii(name)}:{place}"


def bytes_in_message(tensors: Tensors) -> int:
    """The bytes that tensors add to a message: their own, and their lines in its header.

    The header's padding is not counted.
    """
    entries = arranged(tensors)
    return size_of(entries) + sum(len(line(entry)) + 1 for entry in entries)


def rank(name: str, dtype: torch.dtype) -> tuple[int, str]:
    """The sort key of a body's tensors: all are aligned, and those of one dtype are adjacent."""
    return RANKS[dtype], name


class Packed(Mapping[str, torch.Tensor]):
    """Tensors as views into a received body.

    Nothing is copied; the buffer must outlive the views.
    """

    def __init__(self, body: Buffer, layout: Layout) -> None:
        self._body: memoryview | bytearray = memoryview(body)
        if self._body.readonly:  # torch has no read-only tensors
            self._body = bytearray(self._body)
        self.layout = layout
        self._flats: dict[torch.dtype, torch.Tensor] = {}
        self._float_array: np.ndarray | None = None

    def __getitem__(self, name: str) -> torch.Tensor:
        entry = self.layout.by_name[name]
        # A byte that is neither 0 nor 1 is not a valid bool, so it is read as a number.
        if entry.dtype == torch.bool:
            return (self._flat(torch.uint8, entry.begin, entry.end) != 0).reshape(entry.shape)
        return self._flat(entry.dtype, entry.begin, entry.end).reshape(entry.shape)

    def _flat(self, dtype: torch.dtype, begin: int, end: int) -> torch.Tensor:
        if begin == end:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(
            self._body,
            dtype=dtype,
            count=(end - begin) // dtype.itemsize,
            offset=begin,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.by_name)

    def __len__(self) -> int:
        return len(self.layout.entries)

    def flat(self, dtype: torch.dtype) -> torch.Tensor:
        """All tensors of one dtype as one flat view."""
        flat = self._flats.get(dtype)
        if flat is None:
            flat = self._flat(dtype, *self.layout.spans.get(dtype, (0, 0)))
            self._flats[dtype] = flat
        return flat

    def float_array(self) -> np.ndarray:
        """All float32 tensors as one flat numpy view, which is created faster than a torch view."""
        if self._float_array is None:
            begin, end = self.layout.spans.get(torch.float32, (0, 0))
            numbers = np.zeros(0, np.float32)
            if end > begin:
                count = (end - begin) // numbers.itemsize
                numbers = np.frombuffer(self._body, np.float32, count, begin)
            self._float_array = numbers
        return self._float_array

    def between(self, dtype: torch.dtype, begin: int, end: int) -> torch.Tensor:
        """The adjacent tensors between two offsets, in bytes, as one flat view."""
        return self._flat(dtype, begin, end)

    def copied(self) -> dict[str, torch.Tensor]:
        """Copies of the tensors in memory that torch has allocated and aligned."""
        return {name: self[name].clone() for name in self}

    def give_back(self) -> None:
        """Release the pages of a mapped file. A later access reads them from the disk again."""
        if not isinstance(self._body, memoryview):
            return
        mapped = self._body.obj
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


class OnDemand(Mapping[str, torch.Tensor]):
    """An order's tensors, each copied into memory of torch when it is first accessed.

    Most orders carry a network's weights, which are copied into that network and not needed
    anywhere else.
    """

    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        self._copies: dict[str, torch.Tensor] = {}

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._copies:
            self._copies[name] = self._packed[name].clone()
        return self._copies[name]

    def __contains__(self, name: object) -> bool:  # the default would copy the tensor
        return name in self._packed.layout.by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def copy_into(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Copy the tensors directly to where they are needed, with one call for all of them."""
        copy_all(targets, self._packed)
        self._packed.give_back()


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
    layout = _layout(heading.table)
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


@lru_cache(maxsize=8)  # the messages of a round have few different tables
def _layout(table: str) -> Layout:
    """The layout that a table describes, after checking it."""
    try:
        header, end = decode(table)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header is not JSON ({type(error).__name__})") from None
    if end < len(table) or "__metadata__" in header:
        raise WireError("the header is not one object, each key once")
    entries: list[Entry] = []
    offset = 0
    for name, place in header.items():
        entry = _entry(name, place, offset)
        if entries and rank(entry.name, entry.dtype) < rank(entries[-1].name, entries[-1].dtype):
            raise WireError(f"tensor {name!r} is out of order")
        entries.append(entry)
        offset = entry.end
    return Layout(tuple(entries))


def header_of(head: Buffer) -> bytes:
    view, body = split(head)
    if len(body):
        raise WireError("bytes follow the header")
    return bytes(view[8:])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("an object has the same key twice")
    return fields


def _finite(text: str) -> float:
    """A finite number. JSON has no Infinity or NaN, but Python's parser accepts them and 1e999."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("they hold a number that is not finite")
    return number


_decoder = json.JSONDecoder(object_pairs_hook=_unique)
_finite_decoder = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_float=_finite,
    parse_constant=_finite,
)
decode = _decoder.raw_decode  # returns a JSON value inside a text, and where it ends


def read_json(text: str, *, finite: bool = False) -> Any:
    """Read JSON from outside.

    Raises ValueError if an object has the same key twice, because two readers could take different
    values. With `finite`, it also raises one for a number that is not finite.
    """
    decoder = _finite_decoder if finite else _decoder
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _entry(name: str, place: Any, offset: int) -> Entry:
    if not isinstance(place, dict) or place.keys() != PLACE:
        raise WireError(f"tensor {name!r} is not described by dtype, shape and data_offsets")
    code = place["dtype"]
    if not isinstance(code, str) or code not in DTYPES:
        raise WireError(f"tensor {name!r} has an unknown dtype")
    dtype = DTYPES[code]
    shape = place["shape"]
    offsets = place["data_offsets"]
    if not _are_counts(shape, MOST_DIMENSIONS) or math.prod(filter(None, shape)) > MOST_ELEMENTS:
        raise WireError(f"tensor {name!r} has no valid shape")
    is_span = _are_counts(offsets, 2) and len(offsets) == 2
    if not is_span or offsets[0] != offset or offset % dtype.itemsize:
        raise WireError(f"tensor {name!r} does not lie where the one before it ends")
    if offsets[1] - offset != math.prod(shape) * dtype.itemsize:
        raise WireError(f"tensor {name!r} does not have the size of its shape")
    return Entry(name, dtype, tuple(shape), offset, offsets[1])


def _are_counts(value: Any, most: int) -> bool:
    """Whether this is a list of at most `most` whole numbers, none below 0."""
    if not isinstance(value, list) or len(value) > most:
        return False
    return {*map(type, value)} <= {int} and min(value, default=0) >= 0


class Header(BaseModel):
    """A closed schema: fields that it does not name are refused."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        frozen=True,
        defer_build=True,
    )


F = TypeVar("F", bound=Header)


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


# The encoder is created once, whereas json.dumps would create one for every call.
_encode = json.JSONEncoder(allow_nan=False).encode


def dump(**fields: Any) -> str:
    return _encode(fields)


def order_head(order: Order, body: Body, stamps: "StampText | None" = None) -> bytes:
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
