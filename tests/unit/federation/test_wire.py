import ast
import json
import os
import resource
import tracemalloc
from dataclasses import asdict, replace
from math import inf, nan
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedloom
from fedloom.federation.protocol import wire
from fedloom.federation.protocol.packing import CODES, DTYPES, WireError
from fedloom.federation.protocol.wire import (
    ALIGN,
    Body,
    StampText,
    checked_state_chunks,
    order_head,
    read_order,
    read_reply,
    read_state,
    reply_chunks,
    split,
    state_chunks,
)
from fedloom.types import Order, Reply, Stamp, State, Task

SOURCE = Path(fedloom.__file__).parent
READERS = [read_reply, read_state, lambda data: read_order(*split(data))]
TASK = Task("fedavg", {"lr": 0.1, "lam": "inf"}, "image", (1, 8, 8), ("a", "é"), 7, (0.5,), (0.25,))
STAMP = Stamp("run-1", TASK, "train", 3, 1, "2.0", "3.1", ("1.0", "2.0"))
ORDER = Order(
    5, "train", {"w": torch.arange(6.0).reshape(2, 3)}, {"lr": 0.1, "deep": [1, {"a": None}]},
    {"w": ((0, 2), None)}, 1, STAMP,
)  # fmt: skip
REPLY = Reply(
    5,
    {"w": torch.tensor([1.5, -0.0]), "n": torch.tensor(3)},
    {"w": 2.0, "n": 1.0},
    {"loss": 0.5},
    {"w": 2},
    True,
)
STATE = State({"m": torch.tensor([1.0, 2.0], dtype=torch.float64)}, {"round": 1, "names": ["é"]})
PLAIN_ORDER = {"client": 1, "kind": "k", "meta": {}, "region": None, "group": None, "stamp": None}
PLAIN_REPLY = {"client": 1, "weight": 1.0, "meta": {}, "count": None, "wrote": False}


def joined(order):
    body = Body(order.tensors)
    return b"".join([order_head(order, body), *body.chunks])


VALID = [joined(ORDER), b"".join(reply_chunks(REPLY)), b"".join(state_chunks(STATE))]


def message(fields, table="", body=b""):
    """A message by hand: `fields` as object or JSON, and the header's other entries as JSON."""
    text = fields if isinstance(fields, str) else json.dumps(fields)
    return with_header(
        f'{{"__metadata__":{json.dumps({"fedloom": text})}{"," if table else ""}{table}}}', body
    )


def with_header(header, body=b""):
    raw = header if isinstance(header, bytes) else header.encode()
    return len(raw).to_bytes(8, "little") + raw + body


def place(shape, begin, end, dtype="F32"):
    return json.dumps({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]})


def state_of(table, body=b""):
    return read_state(message({"meta": {}}, table, body))


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


# Round trips


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3), (1, 1, 1, 1, 1, 1, 1, 2)])
def test_every_dtype_and_shape_returns(dtype, shape):
    tensor = (
        (torch.arange(max(1, torch.Size(shape).numel())) % 2)
        .to(dtype)[: torch.Size(shape).numel()]
        .reshape(shape)
    )
    assert same(read_state(b"".join(state_chunks(State({"t": tensor})))).tensors["t"], tensor)


def test_extreme_values_return_bit_for_bit():
    tensors = {
        "f": torch.tensor([-0.0, 1e-45, 3.4028235e38, inf, nan]),
        "i": torch.tensor([-(2**63), 2**63 - 1]),
        "b": torch.tensor([True, False]),
    }
    read = read_state(b"".join(state_chunks(State(tensors)))).tensors
    assert torch.equal(read["f"].view(torch.int32), tensors["f"].view(torch.int32))
    assert same(read["i"], tensors["i"]) and same(read["b"], tensors["b"])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1:],
        lambda x: x[:1].expand(3, 4),
        lambda x: x.reshape(1, 3, 2, 2).to(memory_format=torch.channels_last),
        lambda x: x.clone().requires_grad_(),
    ],
    ids=["transposed", "strided", "expanded", "channels last", "parameter"],
)
def test_values_not_memory_cross(view):
    tensor = view(torch.arange(12.0).reshape(3, 4))
    read = read_state(b"".join(state_chunks(State({"t": tensor})))).tensors["t"]
    assert same(read, tensor.detach()) and read.is_contiguous() and not read.requires_grad


def test_an_order_returns_with_every_field():
    read = read_order(*split(joined(ORDER)))
    assert asdict(read) | {"tensors": None} == asdict(ORDER) | {"tensors": None}
    assert (read.stamp, read.region) == (STAMP, {"w": ((0, 2), None)})
    assert same(read.tensors["w"], ORDER.tensors["w"])


def test_an_order_without_anything_returns():
    assert read_order(*split(joined(Order(0, "describe")))) == Order(0, "describe")


def test_a_reply_returns_with_every_field():
    read = read_reply(b"".join(reply_chunks(REPLY)))
    assert (read.client, read.weight, read.meta) == (5, {"w": 2.0, "n": 1.0}, {"loss": 0.5})
    assert (read.count, read.wrote) == ({"w": 2}, True)
    assert all(same(read.tensors[name], tensor) for name, tensor in REPLY.tensors.items())
    assert set(read.tensors) == {"w", "n"} and len(read.tensors) == 2


def test_a_state_returns_with_every_field():
    read = read_state(b"".join(state_chunks(STATE)))
    assert read.meta == STATE.meta and same(read.tensors["m"], STATE.tensors["m"])


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(names, plain, max_size=3),
    st.dictionaries(names, st.sampled_from(list(CODES)), max_size=5),
)
def test_any_meta_and_any_names_return(meta, dtypes):
    state = State(
        {name: torch.ones(i, dtype=dtype) for i, (name, dtype) in enumerate(dtypes.items())}, meta
    )
    read = read_state(b"".join(state_chunks(state)))
    assert read.meta == meta and read.tensors.keys() == state.tensors.keys()
    assert all(same(read.tensors[name], tensor) for name, tensor in state.tensors.items())


def test_equal_messages_have_equal_bytes_whatever_the_order_of_their_tensors():
    a = torch.ones(2)
    b = torch.zeros(3, dtype=torch.int64)
    assert b"".join(state_chunks(State({"a": a, "b": b}))) == b"".join(
        state_chunks(State({"b": b, "a": a}))
    )


def test_a_number_that_json_lacks_is_not_written():
    for value in (nan, inf):
        with pytest.raises(ValueError, match="Out of range"):
            state_chunks(State({}, {"x": value}))


# The layout


def test_safetensors_opens_our_bytes(tmp_path):
    file = tmp_path / "reply.state"
    file.write_bytes(b"".join(reply_chunks(REPLY)))
    opened = safetensors.torch.load(file.read_bytes())
    assert opened.keys() == REPLY.tensors.keys()
    assert all(same(opened[name], tensor) for name, tensor in REPLY.tensors.items())
    with safetensors.safe_open(file, "pt") as other:
        fields = json.loads(other.metadata()["fedloom"])
    assert fields == {"client": 5, "weight": {"w": 2.0, "n": 1.0}, "meta": {"loss": 0.5}, "count": {"w": 2}, "wrote": True}  # noqa: E501  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_safetensors_knows_every_dtype(dtype):
    tensors = {
        "a": torch.ones(3, dtype=dtype),
        "b": torch.ones((), dtype=torch.float32),
        "c": torch.ones(0),
    }
    opened = safetensors.torch.load(b"".join(state_chunks(State(tensors))))
    assert all(same(opened[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("length", range(0, 130, 13))
def test_the_body_starts_on_a_cache_line(length):
    assert len(Body({"w": torch.ones(3)}).head("x" * length)) % ALIGN == 0


def test_head_and_body_split_where_they_were_joined():
    body = Body(ORDER.tensors)
    head = order_head(ORDER, body)
    raw = b"".join(body.chunks)
    assert body.size == len(raw) == 24
    assert tuple(bytes(part) for part in split(head + raw)) == (head, raw)


def test_one_body_serves_many_heads():
    body = Body(ORDER.tensors)
    heads = [order_head(Order(client, "train", ORDER.tensors), body) for client in (1, 2)]
    raw = b"".join(body.chunks)
    assert [read_order(head, raw).client for head in heads] == [1, 2]


def test_orders_that_are_written_one_after_the_other_have_each_its_own_stamp():
    texts = StampText()
    later = replace(STAMP, round=4)
    of_another_task = replace(STAMP, task=replace(TASK, seed=8))
    for stamp in (STAMP, STAMP, later, of_another_task, STAMP):
        order = replace(ORDER, tensors={}, region=None, stamp=stamp)
        head = order_head(order, Body({}), texts)
        assert head == order_head(order, Body({}))
        assert read_order(head, b"").stamp == stamp


@pytest.mark.parametrize("opening", ['{"fedloom": "{}"', '{"fedloom":"{}"', '{ "fedloom" : "{}"'])
def test_a_header_is_read_however_it_is_spaced(opening):
    head = f'{{"__metadata__":{opening}}}}}'.encode()
    assert wire.open_message(len(head).to_bytes(8, "little") + head, b"")[0] == "{}"


@pytest.mark.parametrize(
    "fields", ["1", "null", '["{}"]', '"{}", "more": "x"', '"{}", "fedloom": "x"']
)
def test_nothing_but_our_fields_begins_a_header(fields):
    head = f'{{"__metadata__":{{"fedloom": {fields}}}}}'.encode()
    with pytest.raises(WireError, match="the header"):
        wire.open_message(len(head).to_bytes(8, "little") + head, b"")


def test_float32_tensors_lie_side_by_side():
    tensors = {"b": torch.tensor([3.0]), "n": torch.tensor([7]), "a": torch.tensor([[1.0, 2.0]]), "h": torch.ones(1).half()}  # noqa: E501  # fmt: skip
    flat = read_reply(b"".join(reply_chunks(Reply(1, tensors)))).tensors.flat(torch.float32)
    assert flat.tolist() == [1.0, 2.0, 3.0]


def test_a_reply_is_not_copied_out_of_a_writable_buffer():
    data = bytearray(b"".join(reply_chunks(Reply(1, {"w": torch.tensor([1.0])}))))
    reply = read_reply(data)
    data[-4:] = torch.tensor([9.0]).numpy().tobytes()
    assert reply.tensors["w"].item() == 9.0


def test_an_order_and_a_state_own_their_tensors():
    data = bytearray(VALID[2])
    read = read_state(data)
    data[-8:] = bytes(8)
    assert read.tensors["m"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("read", "fields"), [(read_state, {"meta": {}}), (read_reply, PLAIN_REPLY)]
)
def test_a_bool_is_0_or_1_whatever_byte_was_sent(read, fields):
    """Even in a reply, whose tensors are views into the message: copying would change the bytes."""
    decoded = read(message(fields, f'"b":{place([3], 0, 3, "BOOL")}', b"\x00\x02\xff")).tensors["b"]
    assert decoded.view(torch.uint8).tolist() == [0, 1, 1]


# Claims that do not hold


def refused(data, match=None):
    with pytest.raises(WireError, match=match):
        read_state(data)


# Checksums


def test_a_file_has_a_checksum_and_a_message_has_none():
    raw = b"".join(checked_state_chunks(STATE))
    decoded = read_state(raw)
    assert decoded.meta == STATE.meta and decoded.tensors["m"].tolist() == [1.0, 2.0]
    assert b"crc32" in raw and not any(b"crc32" in message for message in VALID)
    assert safetensors.torch.load(raw)["m"].tolist() == [1.0, 2.0]


def test_a_message_that_brings_a_checksum_is_refused():
    body = Body(REPLY.tensors)
    fields = json.dumps(PLAIN_REPLY)
    with pytest.raises(WireError, match="which only files have"):
        read_reply(b"".join([body.head(fields, checked=True), *body.chunks]))


@pytest.mark.parametrize(
    "about", [{"crc32": "0"}, {"fedloom": "{}", "crc32": 5}, {"fedloom": "{}", "md5": "0"}]
)
def test_a_heading_that_is_none_of_ours(about):
    refused(with_header('{"__metadata__":' + json.dumps(about) + "}"))


def test_a_checksum_that_does_not_fit_is_named():
    fields = json.dumps({"meta": {}})
    refused(
        with_header(
            '{"__metadata__":' + json.dumps({"fedloom": fields, "crc32": "00000000"}) + "}"
        ),
        "damaged",
    )


@pytest.mark.parametrize("data", [b"", b"1234567", bytes(8), (1).to_bytes(8, "little")])
def test_too_short(data):
    refused(data)


@pytest.mark.parametrize("claim", [3, 2**31, 2**62, 2**64 - 1])
def test_a_header_longer_than_the_data(claim):
    refused(claim.to_bytes(8, "little") + b"{}", "the header claims")


def test_a_header_has_a_largest_length(monkeypatch):
    """It is copied and parsed as a whole: its length is the sender's claim."""
    whole = b"".join(state_chunks(STATE))
    length = int.from_bytes(whole[:8], "little")
    monkeypatch.setattr(wire, "MOST_HEADER", length)
    assert read_state(whole).meta == STATE.meta
    monkeypatch.setattr(wire, "MOST_HEADER", length - 1)
    with pytest.raises(WireError, match=f"the header claims {length} bytes"):
        read_state(whole)


def test_the_largest_header_is_far_below_the_memory_of_a_server():
    assert wire.MOST_HEADER == 64 << 20


@pytest.mark.parametrize(
    "header",
    ["", "[]", "1", "null", "{", "nonsense", "{}", b"\xff\xfe{}", '{"__metadata__":{}}',
     '{"__metadata__":[]}', '{"__metadata__":{"fedloom":1}}',
     '{"__metadata__":{"fedloom":"{}","more":"x"}}', '{"__metadata__":{"other":"{}"}}',
     "[" * 100_000, '{"a":' * 100_000, "1" * 5000],
)  # fmt: skip
def test_a_header_that_is_none(header):
    refused(with_header(header))


def test_a_header_in_another_encoding():
    refused(
        with_header('{"__metadata__":{"fedloom":"{\\"meta\\":{}}"}}'.encode("utf-16")), "not JSON"
    )


@pytest.mark.parametrize("body", [b"", b"123", b"12345"])
def test_a_body_of_another_length_than_claimed(body):
    refused(message({"meta": {}}, f'"a":{place([1], 0, 4)}', body), "4 bytes of tensors")


def test_the_right_body_opens():
    assert (
        state_of(f'"a":{place([1], 0, 4)},"b":{place([], 4, 8)}', bytes(8)).tensors["b"].item()
        == 0.0
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [((1, 4), (4, 8)), ((0, 4), (0, 4)), ((0, 4), (2, 6)), ((0, 4), (8, 12)), ((4, 8), (0, 4)),
     ((4, 8), (8, 12)), ((0, 4), (4, 12)), ((0, 4), (4, 0)), ((-4, 0), (0, 4)),
     ((0, 4), (4, 10**40)), ((False, 4), (4, 8)), ((0.0, 4), (4, 8))],
    ids=str,
)  # fmt: skip
def test_offsets_that_overlap_leave_gaps_or_are_none(first, second):
    refused(
        message({"meta": {}}, f'"a":{place([1], *first)},"b":{place([1], *second)}', bytes(8)),
        "tensor",
    )


@pytest.mark.parametrize("size", [0, 4, 12, 16])
def test_a_tensor_that_claims_more_or_fewer_bytes_than_its_shape_has(size):
    """Two elements of float32 are 8 bytes; all the bytes that are claimed are there."""
    with pytest.raises(WireError, match="tensor 'w' does not have the size of its shape"):
        state_of(f'"w":{place([2], 0, size)}', bytes(size))
    assert state_of(f'"w":{place([2], 0, 8)}', bytes(8)).tensors["w"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "shape",
    [[-1], [-1, -1], [True], [1.0], ["1"], [None], 1, "1", None, {}, [[1]], [2**31], [10**300],
     [1] * 9, [2], [0] + [2**31 - 1] * 7, [2**20, 2**21, 0]],
    ids=str,
)  # fmt: skip
def test_a_shape_that_is_none(shape):
    table = json.dumps({"dtype": "F32", "shape": shape, "data_offsets": [0, 4]})
    refused(message({"meta": {}}, f'"a":{table}', bytes(4)), "'a'")
    refused(message({"meta": {}}, f'"a":{table.replace("[0, 4]", "[0, 0]")}'), "'a'")


@pytest.mark.parametrize("dtype", ["BF16", "f32", "", "O", 1, None, ["F32"], {}], ids=str)
def test_an_unknown_dtype(dtype):
    table = json.dumps({"dtype": dtype, "shape": [1], "data_offsets": [0, 4]})
    refused(message({"meta": {}}, f'"a":{table}', bytes(4)), "dtype")


@pytest.mark.parametrize("entry", ["1", "null", "[]", "{}", place([1], 0, 4)[:-1] + ',"x":1}'])
def test_an_entry_that_is_none(entry):
    refused(message({"meta": {}}, f'"a":{entry}', bytes(4)), "described by")


def test_a_tensor_that_stands_twice():
    refused(message({"meta": {}}, f'"a":1,"a":{place([1], 0, 4)}', bytes(4)))


def test_tensors_in_another_order_than_ours():
    """Otherwise float32 tensors would not be adjacent, and a sum would include other bytes."""
    table = f'"a":{place([2], 0, 8)},"n":{place([], 8, 16, "I64")},"z":{place([1], 16, 20)}'
    refused(message({"meta": {}}, table, bytes(20)), "'n' is out of order")
    refused(
        message({"meta": {}}, f'"b":{place([1], 0, 4)},"a":{place([1], 4, 8)}', bytes(8)),
        "'a' is out of order",
    )


def test_bytes_after_the_head_of_an_order():
    with pytest.raises(WireError, match="bytes follow"):
        read_order(order_head(Order(1, "k"), Body({})) + b" ", b"")


# The closed schema


def read_fields(fields):
    """Of an order or a reply, as an object or as JSON text."""
    return READERS[2 if "kind" in fields else 0](message(fields))


def stamped(**changes):
    return {**PLAIN_ORDER, "stamp": {**asdict(STAMP), **changes}}


def with_task(**changes):
    return stamped(task={**asdict(TASK), **changes})


def test_the_plain_ones_are_accepted():
    assert read_fields(PLAIN_REPLY) == Reply(1, read_fields(PLAIN_REPLY).tensors, 1.0)
    assert read_fields(PLAIN_ORDER) == Order(1, "k")
    assert read_fields(stamped()).stamp == STAMP
    assert read_fields(with_task(seed=8)).stamp.task.seed == 8


@pytest.mark.parametrize(
    "fields",
    [{**PLAIN_REPLY, "x": 1}, {**PLAIN_ORDER, "x": 1}, stamped(x=1), with_task(x=1)],
    ids=["reply", "order", "stamp", "task"],
)
def test_an_unknown_field(fields):
    with pytest.raises(WireError, match="x: "):
        read_fields(fields)


@pytest.mark.parametrize("fields", [PLAIN_REPLY, PLAIN_ORDER], ids=["reply", "order"])
def test_a_missing_field(fields):
    for name in set(fields) - {"kind"}:
        with pytest.raises(WireError, match=name):
            read_fields({key: value for key, value in fields.items() if key != name})


@pytest.mark.parametrize(
    "change",
    [{"client": "1"}, {"client": 1.0}, {"client": True}, {"client": None}, {"weight": "1"},
     {"weight": True}, {"weight": None}, {"weight": {"w": "1"}}, {"weight": [1]}, {"meta": []},
     {"meta": None}, {"meta": "{}"}, {"count": {"w": 1.5}}, {"count": {"w": "1"}}, {"count": 1},
     {"wrote": 1}, {"wrote": "true"}],
    ids=str,
)  # fmt: skip
def test_a_reply_of_other_types(change):
    with pytest.raises(WireError):
        read_fields({**PLAIN_REPLY, **change})


@pytest.mark.parametrize(
    "fields",
    [{**PLAIN_ORDER, "kind": 1}, {**PLAIN_ORDER, "group": "1"},
     {**PLAIN_ORDER, "region": {"w": [["1"]]}}, {**PLAIN_ORDER, "region": {"w": 1}},
     {**PLAIN_ORDER, "stamp": []}, stamped(round="1"), stamped(round=True), stamped(hop=1.0),
     stamped(read=1), stamped(keep="1.0"), with_task(seed="1"), with_task(shape=["1"]),
     with_task(labels=[1]), with_task(mean=["0"]), with_task(options=[])],
)  # fmt: skip
def test_an_order_of_other_types(fields):
    with pytest.raises(WireError):
        read_fields(fields)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize(
    "fields",
    [{**PLAIN_REPLY, "weight": "?"}, {**PLAIN_REPLY, "weight": {"w": "?"}},
     {**PLAIN_REPLY, "meta": {"a": "?"}}, {**PLAIN_REPLY, "meta": {"a": [{"b": [1, "?"]}]}},
     {**PLAIN_ORDER, "meta": {"a": "?"}}, with_task(options={"lr": ["?"]}), with_task(mean=["?"])],
    ids=["weight", "weights", "meta", "deep meta", "order", "options", "mean"],
)  # fmt: skip
def test_a_number_that_is_not_finite(fields, number):
    with pytest.raises(WireError, match=r"finite|valid number"):
        read_fields(json.dumps(fields).replace('"?"', number))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "1", "{} {}", "\ud800", '{"meta":{"a":"\\ud800"}}']
)
def test_fields_that_are_none(text):
    refused(message(text))


@pytest.mark.parametrize(
    ("fields", "once", "twice"),
    [(PLAIN_REPLY, '"wrote"', '"wrote": true, "wrote"'),
     (PLAIN_REPLY, '"meta": {}', '"meta": {"a": 1, "a": 2}'),
     (PLAIN_REPLY, '"meta": {}', '"meta": {"a": [{"b": 1, "b": 1}]}'),
     (PLAIN_REPLY, '"meta": {}', '"meta": {"a": 1, "\\u0061": 2}'),
     (PLAIN_REPLY, '"weight": 1.0', '"weight": {"w": 1.0, "w": 9.0}'),
     (PLAIN_ORDER, '"kind"', '"kind": "x", "kind"'),
     (stamped(), '"write"', '"write": null, "write"'),
     (with_task(options={}), '"options": {}', '"options": {"a": 1, "a": 2}')],
    ids=["field", "meta", "deep", "escaped", "weight", "order", "stamp", "options"],
)  # fmt: skip
def test_a_key_that_stands_twice(fields, once, twice):
    text = json.dumps(fields)
    assert text.count(once) == 1
    read_fields(text)
    with pytest.raises(WireError, match="an object has the same key twice"):
        read_fields(text.replace(once, twice))


def test_deep_nesting_in_the_fields():
    refused(message('{"meta":{"a":' + "[" * 100_000 + "]" * 100_000 + "}}"), "recursion")


# Whatever comes


def survives(data):
    """Every reader either refuses or returns a message that can be used to its last element."""
    for read in READERS:
        try:
            decoded = read(data)
        except WireError:
            continue
        for tensor in decoded.tensors.values():
            tensor.sum()
        if read is read_reply:
            flat = decoded.tensors.flat(torch.float32)
            assert flat.numel() == sum(
                t.numel() for t in decoded.tensors.values() if t.dtype == torch.float32
            )


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_arbitrary_bytes(data):
    survives(data)
    survives(with_header(data))


@settings(deadline=None, max_examples=100)
@given(plain, st.binary(max_size=16))
def test_arbitrary_json(header, body):
    survives(with_header(json.dumps(header), body))
    survives(message(json.dumps(header), body=body))


lengths = st.integers(-1, 3) | st.sampled_from([2**31 - 1, 2**31, 2**63, 10**30])
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*DTYPES, "BF16"]),
        "shape": st.lists(lengths, max_size=9),
        "data_offsets": st.lists(st.integers(-1, 24), min_size=1, max_size=3),
    }
)


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(st.sampled_from("abc"), entries, max_size=3), st.binary(max_size=24))
def test_arbitrary_tables(table, body):
    survives(message(PLAIN_REPLY, json.dumps(table)[1:-1], body))


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(VALID),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_mutated_messages(data, changes):
    mutant = bytearray(data)
    for where, byte in changes:
        mutant[where % len(mutant)] = byte
    survives(bytes(mutant))


@pytest.mark.parametrize("data", VALID, ids=["order", "reply", "state"])
def test_a_message_cut_short_or_extended_is_refused(data):
    for length in range(len(data)):
        for read in READERS:
            with pytest.raises(WireError):
                read(data[:length])
    for read in READERS:
        with pytest.raises(WireError):
            read(data + b"\0")


GREEDY = {
    "a tensor of 4 GiB": message(PLAIN_REPLY, f'"a":{place([2**30], 0, 2**32)}', bytes(64)),
    "many of them": message(
        PLAIN_REPLY, ",".join(f'"{i}":{place([2**30], 0, 2**32)}' for i in range(50))
    ),
    "an exabyte": message(PLAIN_REPLY, f'"a":{place([2**29, 2**29], 0, 2**60)}'),
    "an empty one with long sides": message(PLAIN_REPLY, f'"a":{place([0, 2**39], 0, 0)}'),
    "a header of 16 EiB": bytes([255] * 8) + b"{}",
    "a header of 63 MiB": (63 << 20).to_bytes(8, "little") + b"{}",
}


@pytest.mark.parametrize("data", GREEDY.values(), ids=GREEDY)
def test_claimed_sizes_are_not_allocated_by_python(data):
    survives(data)  # whatever is imported or cached at first use
    tracemalloc.start()
    survives(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_claimed_sizes_are_not_allocated_by_torch():
    """In a process that may not grow by more than half a gigabyte."""
    child = os.fork()
    if child == 0:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20),) * 2)
        try:
            for data in GREEDY.values():
                survives(data)
            with pytest.raises(RuntimeError):
                torch.empty(2**30)  # the limit holds; so it was not met
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# Nothing is ever unpickled


UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


def imports_unpickler(node):
    """Whether a statement imports a module that can unpickle."""
    modules = []
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        modules = [node.module or ""]
    return any(module.split(".")[0] in UNPICKLERS for module in modules)


def may_unpickle(node):
    """Whether an expression is a call that can unpickle what it reads."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    arguments = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    if name.startswith("torch.load"):
        return arguments.get("weights_only") != "True"
    if name in ("np.load", "numpy.load"):
        return arguments.get("allow_pickle") != "False"
    return name.endswith((".recv", ".read_pickle", ".load_pickle"))


def test_no_module_unpickles():
    offences = []
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if imports_unpickler(node) or may_unpickle(node):
                offences.append(f"{file.relative_to(SOURCE)}: {ast.unparse(node)}")
    assert offences == []


@pytest.mark.parametrize(
    ("source", "is_offence"),
    [
        ("import pickle", True),
        ("from joblib.externals import loky", True),
        ("torch.load(path)", True),
        ("torch.load(path, weights_only=True)", False),
        ("np.load(path, allow_pickle=True)", True),
        ("np.load(path, allow_pickle=False)", False),
        ("connection.recv()", True),
        ("import json", False),
    ],
)
def test_what_unpickles_is_seen(source, is_offence):
    nodes = list(ast.walk(ast.parse(source)))
    assert any(imports_unpickler(node) or may_unpickle(node) for node in nodes) == is_offence
