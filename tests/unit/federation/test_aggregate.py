import gc
import tracemalloc
import weakref
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.federation.protocol.aggregate import SWEEP, Fold, aggregate, folded
from fedloom.federation.protocol.wire import read_reply, reply_chunks
from fedloom.types import Order, Reply


def wired(reply):
    """The same reply, read from bytes."""
    return read_reply(bytearray(b"".join(reply_chunks(reply))))


BOTH = pytest.mark.parametrize("send", [lambda reply: reply, wired], ids=["plain", "wired"])


def f(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


def bits(tensors):
    return {name: (tensor.dtype, tensor.numpy().tobytes()) for name, tensor in tensors.items()}


# Parts of a supernet, whose neighbours are added in one sweep


NAMES = [".".join(parts) for parts in product("ab", "xyz", ("bias", "count", "weight"))]


def a_part(client, brought, weights):
    """The tensors of these names, each its own weight, if it is above 0."""
    draw = torch.Generator().manual_seed(client)
    tensors = {}
    for name in brought:
        if name.endswith("count"):
            tensors[name] = torch.tensor(client + len(name))
        else:
            tensors[name] = torch.randn(2, 3, generator=draw)
    return Reply(client, tensors, {name: weights[name] for name in brought if weights[name] > 0})


SETS = st.sets(st.sampled_from(NAMES), min_size=1).map(sorted)
WEIGHTS = st.fixed_dictionaries({name: st.sampled_from([0.0, 1.0, 2.5]) for name in NAMES})


@settings(deadline=None, max_examples=60)
@given(parts=st.lists(st.tuples(SETS, WEIGHTS), min_size=1, max_size=4))
def test_parts_have_the_same_bits_key_by_key_and_in_sweeps(parts):
    old = a_part(99, NAMES, dict.fromkeys(NAMES, 1.0)).tensors
    replies = [a_part(client, *part) for client, part in enumerate(parts)]
    in_sweeps = aggregate(old, [wired(reply) for reply in replies], min_clients=2)
    assert bits(in_sweeps) == bits(aggregate(old, replies, min_clients=2))


def test_a_part_of_another_shape_does_not_reach_its_neighbour():
    old = {"a": torch.zeros(2), "b": torch.zeros(2)}
    wrong = wired(Reply(0, {"a": torch.ones(3), "b": torch.ones(1)}, {"a": 1.0, "b": 1.0}))
    with pytest.raises(RuntimeError):
        aggregate(old, [wrong])


# The mean


@BOTH
def test_the_weighted_mean_by_hand(send):
    replies = [send(Reply(0, {"w": f(1.0, 2.0)}, 1.0)), send(Reply(1, {"w": f(3.0, 6.0)}, 3.0))]
    assert aggregate({"w": f(9.0, 9.0)}, replies)["w"].tolist() == [2.5, 5.0]


@BOTH
def test_every_key_has_its_own_weight(send):
    old = {"a": f(0.0), "b": f(0.0), "c": f(7.0)}
    one = send(Reply(0, {"a": f(1.0), "b": f(1.0), "c": f(1.0)}, {"a": 1.0, "b": 3.0}))
    two = send(Reply(1, {"a": f(5.0), "b": f(5.0), "c": f(5.0)}, {"a": 3.0, "b": 1.0}))
    assert {key: tensor.item() for key, tensor in aggregate(old, [one, two]).items()} == {
        "a": 4.0,
        "b": 2.0,
        "c": 7.0,
    }


@BOTH
def test_a_key_absent_from_a_reply_is_the_mean_of_the_others(send):
    old = {"a": f(0.0), "b": f(8.0)}
    replies = [send(Reply(0, {"a": f(2.0)}, 1.0)), send(Reply(1, {"a": f(4.0), "b": f(3.0)}, 1.0))]
    assert {key: tensor.item() for key, tensor in aggregate(old, replies).items()} == {
        "a": 3.0,
        "b": 3.0,
    }


@BOTH
@pytest.mark.parametrize(
    "strange", [torch.tensor(1.0), torch.tensor(1.0).double(), torch.tensor(1)], ids=str
)
def test_a_key_that_is_not_ours_is_left_out(send, strange):
    reply = send(Reply(0, {"a": f(2.0), "x": strange}, 1.0))
    fold = Fold({"a": f(0.0)})
    fold.add(reply)
    assert fold.result() == {"a": f(2.0)} and fold.reply(0).tensors == {"a": f(2.0)}


@BOTH
def test_nobody_replies(send):
    old = {"w": f(1.0, 2.0), "n": torch.tensor(3)}
    assert aggregate(old, []) == old


@BOTH
def test_a_reply_of_weight_zero_changes_nothing(send):
    old = {"w": f(1.0), "n": torch.tensor(3)}
    one = send(Reply(0, {"w": f(0.1), "n": torch.tensor(4)}, 7.0))
    nil = send(Reply(1, {"w": f(1e30), "n": torch.tensor(99)}, 0.0))
    assert (
        bits(aggregate(old, [one, nil]))
        == bits(aggregate(old, [one]))
        == bits({"w": f(0.1), "n": torch.tensor(4)})
    )
    assert bits(aggregate(old, [one, nil], min_clients=2))["w"] == bits(old)["w"]


@BOTH
def test_only_weights_of_zero_keep_the_old(send):
    old = {"w": f(1.0), "n": torch.tensor(3)}
    replies = [send(Reply(client, {"w": f(5.0), "n": torch.tensor(9)}, 0.0)) for client in range(3)]
    assert aggregate(old, replies) == old


@BOTH
@pytest.mark.parametrize(("least", "expected"), [(1, 3.0), (2, 3.0), (3, 8.0)])
def test_fewer_than_min_clients_keep_the_old(send, least, expected):
    replies = [send(Reply(client, {"w": f(value)}, 1.0)) for client, value in enumerate((2.0, 4.0))]
    assert aggregate({"w": f(8.0)}, replies, min_clients=least)["w"].item() == expected


@BOTH
def test_an_aggregator_counts_for_the_clients_behind_it(send):
    replies = [
        send(Reply(0, {"a": f(2.0), "b": f(2.0)}, 1.0, count={"a": 3})),
        send(Reply(1, {"a": f(4.0), "b": f(4.0)}, 1.0)),
    ]
    mean = aggregate({"a": f(8.0), "b": f(8.0)}, replies, min_clients=2)
    assert (mean["a"].item(), mean["b"].item()) == (3.0, 8.0)


@BOTH
def test_integer_buffers_take_the_maximum(send):
    old = {"n": torch.tensor([9, 9]), "flag": torch.tensor([False, False]), "w": f(0.0)}
    replies = [
        send(
            Reply(
                0,
                {"n": torch.tensor([1, 5]), "flag": torch.tensor([True, False]), "w": f(1.0)},
                1.0,
            )
        ),
        send(
            Reply(
                1,
                {"n": torch.tensor([4, 2]), "flag": torch.tensor([False, False]), "w": f(3.0)},
                1.0,
            )
        ),
    ]
    mean = aggregate(old, replies)
    assert (mean["n"].tolist(), mean["flag"].tolist(), mean["w"].item()) == (
        [4, 5],
        [True, False],
        2.0,
    )
    assert (mean["n"].dtype, mean["flag"].dtype) == (torch.int64, torch.bool)


@BOTH
def test_the_maximum_is_over_all_replies(send):
    replies = [
        send(Reply(c, {"n": torch.tensor(n), "w": f(1.0)}, 1.0)) for c, n in enumerate((3, 8, 5))
    ]
    assert aggregate({"n": torch.tensor(0), "w": f(0.0)}, replies)["n"].item() == 8


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_mean_has_the_dtype_of_the_old(send, dtype):
    replies = [
        send(Reply(client, {"w": f(value, dtype=dtype)}, 1.0))
        for client, value in enumerate((1.0, 2.0))
    ]
    mean = aggregate({"w": f(0.0, dtype=dtype)}, replies)["w"]
    assert (mean.dtype, mean.item()) == (dtype, 1.5)


def test_float16_does_not_overflow_on_the_way():
    replies = [
        Reply(client, {"w": f(60000.0, dtype=torch.float16)}, 1000.0) for client in range(10)
    ]
    assert aggregate({"w": f(0.0, dtype=torch.float16)}, replies)["w"].item() == 60000.0


def test_float64_keeps_its_digits():
    replies = [
        wired(Reply(c, {"w": f(x, dtype=torch.float64)}, 1.0))
        for c, x in enumerate((1.0, 1.0 + 2**-50))
    ]
    assert aggregate({"w": f(0.0, dtype=torch.float64)}, replies)["w"].item() == 1.0 + 2**-51


def test_scalars_empty_tensors_and_views():
    old = {"s": torch.tensor(0.0), "e": torch.ones(0, 3), "t": torch.zeros(2, 3).t()}
    reply = wired(
        Reply(
            0,
            {"s": torch.tensor(2.0), "e": torch.ones(0, 3), "t": torch.arange(6.0).reshape(3, 2)},
            5.0,
        )
    )
    mean = aggregate(old, [reply])
    assert (mean["s"].item(), tuple(mean["e"].shape)) == (2.0, (0, 3))
    assert mean["t"].tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_neither_the_old_nor_the_replies_change():
    old = {"w": f(1.0), "n": torch.tensor(0)}
    weights = f(3.0)
    number = torch.tensor(5)
    mean = aggregate(
        old,
        [
            Reply(0, {"w": weights, "n": number}, 2.0),
            Reply(1, {"w": weights, "n": number + 1}, 2.0),
        ],
    )
    mean["w"].zero_(), mean["n"].zero_()
    assert (old["w"].item(), old["n"].item(), weights.item(), number.item()) == (1.0, 0, 3.0, 5)


# Laws


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
small = st.floats(-10, 10, width=32)
weights = st.floats(1e-3, 1e6)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(floats, min_size=1, max_size=5),
    st.lists(st.integers(1, 10**6), min_size=1, max_size=12),
)
def test_identical_clients_average_to_themselves_bit_for_bit(values, samples):
    replies = [
        wired(Reply(client, {"w": f(*values)}, float(n))) for client, n in enumerate(samples)
    ]
    assert bits(aggregate({"w": torch.zeros(len(values))}, replies)) == bits(
        {"w": f(*values) + 0.0}
    )  # −0 + 0 = 0


@settings(deadline=None, max_examples=100)
@given(st.lists(weights, min_size=1, max_size=12))
def test_the_mean_of_ones_is_one_for_any_weights(shares):
    replies = [
        wired(Reply(client, {"w": torch.ones(3)}, weight)) for client, weight in enumerate(shares)
    ]
    assert aggregate({"w": torch.zeros(3)}, replies)["w"].tolist() == [1.0] * 3


@settings(deadline=None, max_examples=100)
@given(
    st.integers(0, 2**32),
    st.lists(weights, min_size=1, max_size=5),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_the_fast_way_has_the_bits_of_the_slow_one(seed, shares, first, second):
    draw = torch.Generator().manual_seed(seed)
    old = {"z": torch.zeros(2, first), "a": torch.zeros(second), "n": torch.tensor(0)}
    replies = [
        Reply(c, {"z": torch.randn(2, first, generator=draw),
                  "a": torch.randn(second, generator=draw), "n": torch.tensor(c)}, weight)
        for c, weight in enumerate(shares)
    ]  # fmt: skip
    assert bits(aggregate(old, map(wired, replies))) == bits(aggregate(old, replies))


def test_the_fast_way_is_the_slow_one_beyond_one_sweep():
    draw = torch.Generator().manual_seed(0)
    sizes = {"a": SWEEP - 3, "b": SWEEP + 5, "c": 7}
    replies = []
    for client in range(3):
        tensors = {name: torch.randn(size, generator=draw) for name, size in sizes.items()}
        replies.append(Reply(client, tensors, 0.1 + client))
    old = {name: torch.zeros(size) for name, size in sizes.items()}
    assert bits(aggregate(old, map(wired, replies))) == bits(aggregate(old, replies))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(["a", "ab", "abn", "n"]), st.integers(0, 9)),
        max_size=6,
    )
)
def test_whole_and_partial_replies_mix_in_any_order(kinds):
    old = {"a": f(0.5), "b": f(0.25, 0.125), "n": torch.tensor(0)}
    replies = []
    for client, (_, keys, weight) in enumerate(kinds):
        brought = {"a": f(1.5 * client), "b": f(client, -client), "n": torch.tensor(7 * client % 5)}
        replies.append(Reply(client, {key: brought[key] for key in keys}, float(weight)))
    mixed = [
        wired(reply) if wire else reply for reply, (wire, _, _) in zip(replies, kinds, strict=True)
    ]
    for least in (1, 2, 3):
        assert bits(aggregate(old, mixed, min_clients=least)) == bits(
            aggregate(old, replies, min_clients=least)
        )


def test_a_whole_reply_after_a_partial_one():
    old = {"a": f(9.0), "b": f(9.0), "n": torch.tensor(0), "k": torch.tensor(0).int()}
    whole = [
        Reply(c, {"a": f(x), "b": f(x), "n": torch.tensor(c)}, 1.0) for c, x in ((0, 1.0), (2, 3.0))
    ]
    part = Reply(1, {"b": f(5.0), "n": torch.tensor(7), "k": torch.tensor(4).int()}, 2.0)
    mean = aggregate(old, [wired(whole[0]), part, wired(whole[1])])
    assert {key: tensor.item() for key, tensor in mean.items()} == {
        "a": 2.0,
        "b": 3.5,
        "n": 7,
        "k": 4,
    }


# Operations of a supernet: FedorAS, Eq. 5

SUPERNET = {"A": f(10.0), "A.mean": f(10.0), "B": f(20.0), "fixed": f(1.0)}


def trained(client, samples, fixed, **ops):
    """A client's reply, with the value and the samples of each operation that it trained."""
    tensors = {"fixed": f(fixed)}
    weight = {"fixed": float(samples)}
    for name, (value, through) in ops.items():
        tensors[name] = f(value)
        weight[name] = float(through)
    if "A" in ops:  # a buffer goes with the parameters of its operation
        tensors["A.mean"] = tensors["A"]
        weight["A.mean"] = weight["A"]
    return Reply(client, tensors, weight)


def by_operation():
    return [
        trained(1, 40, 2.0, A=(11.0, 30), B=(24.0, 10)),
        trained(2, 20, 5.0, B=(21.0, 20)),
        trained(3, 60, 3.0, A=(14.0, 60)),
    ]


@BOTH
def test_an_operation_is_averaged_by_the_samples_that_went_through_it(send):
    mean = aggregate(SUPERNET, [send(reply) for reply in by_operation()], min_clients=2)
    assert {key: tensor.item() for key, tensor in mean.items()} == {
        "A": 13.0,
        "A.mean": 13.0,
        "B": 22.0,
        "fixed": 3.0,
    }


@BOTH
def test_an_operation_that_one_client_trained_stays(send):
    mean = aggregate(SUPERNET, [send(reply) for reply in by_operation()[:2]], min_clients=2)
    assert {key: tensor.item() for key, tensor in mean.items()} == {
        "A": 10.0,
        "A.mean": 10.0,
        "B": 22.0,
        "fixed": 3.0,
    }
    assert mean["A"] is SUPERNET["A"]


@BOTH
@pytest.mark.parametrize(("least", "expected"), [(1, (7, 6)), (2, (3, 6)), (3, (3, 2))])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_counters_that_too_few_clients_brought_stay(send, dtype, least, expected):
    old = {"one": torch.tensor(3, dtype=dtype), "two": torch.tensor(2, dtype=dtype), "w": f(0.0)}
    replies = [
        Reply(
            0,
            {"one": torch.tensor(7, dtype=dtype), "two": torch.tensor(4, dtype=dtype), "w": f(1.0)},
            1.0,
        ),
        Reply(1, {"two": torch.tensor(6, dtype=dtype), "w": f(1.0)}, 1.0),
        Reply(2, {"one": torch.tensor(9, dtype=dtype), "w": f(1.0)}, {"w": 1.0, "one": 0.0}),
    ]
    for arrived in (replies, replies[::-1]):
        mean = aggregate(old, [send(reply) for reply in arrived], min_clients=least)
        assert (mean["one"].item(), mean["two"].item()) == expected


@BOTH
def test_counters_of_whole_replies_have_a_least_number_of_clients_too(send):
    old = {"n": torch.tensor(3), "w": f(8.0)}
    replies = [
        send(Reply(client, {"n": torch.tensor(5 + client), "w": f(1.0)}, 1.0))
        for client in range(2)
    ]
    for least, expected in ((2, (6, 1.0)), (3, (3, 8.0))):
        mean = aggregate(old, replies, min_clients=least)
        assert (mean["n"].item(), mean["w"].item()) == expected


@BOTH
def test_plain_averaging_counts_everybodys_copy(send):
    """Touched or not, by the samples of its client: the ablation."""
    replies = []
    for reply, samples in zip(by_operation(), (40.0, 20.0, 60.0), strict=True):
        replies.append(send(Reply(reply.client, {**SUPERNET, **reply.tensors}, samples)))
    mean = aggregate(SUPERNET, replies, min_clients=2)
    assert (
        mean["A"].item() == f(37 / 3).item()
        and mean["B"].item() == 21.5
        and mean["fixed"].item() == 3.0
    )


# Regions


def ordered(**regions):
    """Orders of clients 0, 1, … with the region of their tensor "w"."""
    return [
        Order(client, "train", region={"w": region})
        for client, region in enumerate(regions.values())
    ]


@BOTH
def test_two_widths_overlap_in_their_common_corner(send):
    old = {"w": torch.full((3, 3), 9.0)}
    orders = ordered(small=((0, 1), (0, 1)), wide=((0, 1, 2), (0, 1)))
    replies = [
        send(Reply(0, {"w": torch.ones(2, 2)}, 1.0)),
        send(Reply(1, {"w": torch.full((3, 2), 5.0)}, 3.0)),
    ]
    assert aggregate(old, replies, orders)["w"].tolist() == [
        [4.0, 4.0, 9.0],
        [4.0, 4.0, 9.0],
        [5.0, 5.0, 9.0],
    ]


@BOTH
def test_a_region_of_one_dimension_with_holes(send):
    orders = ordered(odd=((1, 3),), late=((3, 2),))
    replies = [send(Reply(0, {"w": f(1.0, 2.0)}, 2.0)), send(Reply(1, {"w": f(5.0, 7.0)}, 1.0))]
    assert aggregate({"w": f(9.0, 9.0, 9.0, 9.0)}, replies, orders)["w"].tolist() == [
        9.0,
        1.0,
        7.0,
        3.0,
    ]


@BOTH
def test_a_region_may_be_another_order(send):
    mean = aggregate(
        {"w": f(9.0, 9.0)}, [send(Reply(0, {"w": f(1.0, 2.0)}, 1.0))], ordered(turned=((1, 0),))
    )
    assert mean["w"].tolist() == [2.0, 1.0]


@BOTH
def test_a_whole_dimension_is_none(send):
    orders = ordered(rows=((1,), None))
    replies = [send(Reply(0, {"w": f(1.0, 2.0).reshape(1, 2)}, 4.0))]
    assert aggregate({"w": torch.zeros(2, 2)}, replies, orders)["w"].tolist() == [
        [0.0, 0.0],
        [1.0, 2.0],
    ]


@BOTH
def test_regions_and_whole_replies_mix_in_any_order(send):
    part = send(Reply(0, {"w": f(1.0)}, 1.0))
    whole = send(Reply(1, {"w": f(3.0, 5.0)}, 1.0))
    orders = [Order(0, "train", region={"w": ((0,),)}), Order(1, "train")]
    for replies in ([part, whole], [whole, part]):
        assert aggregate({"w": f(9.0, 9.0)}, replies, orders)["w"].tolist() == [2.0, 5.0]


@BOTH
def test_keys_outside_the_region_mapping_are_whole(send):
    reply = send(Reply(0, {"w": f(1.0), "b": f(2.0, 3.0)}, 1.0))
    mean = aggregate({"w": f(9.0, 9.0), "b": f(0.0, 0.0)}, [reply], ordered(one=((1,),)))
    assert (mean["w"].tolist(), mean["b"].tolist()) == ([9.0, 1.0], [2.0, 3.0])


@BOTH
def test_a_region_of_weight_zero_changes_nothing(send):
    reply = send(Reply(0, {"w": f(5.0)}, 0.0))
    assert aggregate({"w": f(9.0, 8.0)}, [reply], ordered(one=((1,),)))["w"].tolist() == [9.0, 8.0]


def test_a_region_counts_its_client_once_for_min_clients():
    replies = [Reply(0, {"w": f(1.0)}, 1.0), Reply(1, {"w": f(3.0)}, 1.0)]
    orders = ordered(left=((0,),), right=((1,),))
    assert aggregate({"w": f(9.0, 9.0)}, replies, orders, min_clients=2)["w"].tolist() == [1.0, 3.0]
    assert aggregate({"w": f(9.0, 9.0)}, replies, orders, min_clients=3)["w"].tolist() == [9.0, 9.0]


def test_regions_keep_the_dtype():
    reply = Reply(0, {"w": f(1.0, dtype=torch.float16)}, 3.0)
    mean = aggregate({"w": f(9.0, 9.0, dtype=torch.float16)}, [reply], ordered(one=((0,),)))["w"]
    assert (mean.dtype, mean.tolist()) == (torch.float16, [1.0, 9.0])


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 3), min_size=1), st.integers(1, 9), floats),
        min_size=1,
        max_size=6,
    )
)
def test_every_element_is_the_mean_of_those_who_cover_it(parts):
    old = {"w": torch.full((4,), 0.5)}
    orders = []
    replies = []
    for client, (places, samples, value) in enumerate(parts):
        region = {"w": (tuple(sorted(places)),)}
        orders.append(Order(client, "train", region=region))
        replies.append(Reply(client, {"w": torch.full((len(places),), value)}, samples))
    mean = aggregate(old, replies, orders)["w"].tolist()
    for place, element in enumerate(mean):
        weight = 0
        total = 0
        for places, samples, value in parts:
            if place in places:
                weight += samples
                total += samples * value
        expected = 0.5  # as before, where nobody covers the element
        if weight > 0:
            expected = total / weight
        assert element == f(expected).item()


# Two levels


def cluster(old, replies, client):
    fold = Fold(old)
    for reply in replies:
        fold.add(reply)
    return fold.reply(client)


def test_what_an_aggregator_sends_up():
    old = {"a": f(0.0), "b": f(0.0), "n": torch.tensor(0), "m": torch.tensor(0)}
    up = cluster(
        old,
        [
            Reply(4, {"a": f(1.0), "n": torch.tensor(3)}, 1.0),
            Reply(7, {"a": f(5.0), "n": torch.tensor(2)}, 3.0),
        ],
        4,
    )
    assert (up.client, up.tensors) == (4, {"a": f(4.0), "n": torch.tensor(3)})
    assert (up.weight, up.count) == ({"a": 4.0, "n": 1.0}, {"a": 2, "n": 2})
    assert up.tensors["a"].dtype == torch.float32


def test_a_clusters_counters_count_for_its_clients():
    old = {"n": torch.tensor(0), "w": f(0.0)}
    members = [
        Reply(client, {"n": torch.tensor(4 + client), "w": f(1.0)}, 1.0) for client in range(2)
    ]
    for replies in (members, [wired(reply) for reply in members], [members[0], wired(members[1])]):
        up = cluster(old, replies, 0)
        assert up.count == {"n": 2, "w": 2}
        assert aggregate(old, [up], min_clients=2)["n"].item() == 5
        assert aggregate(old, [up], min_clients=3)["n"].item() == 0


def test_two_levels_by_hand():
    old = {"w": f(0.0)}
    one = cluster(old, [Reply(0, {"w": f(1.0)}, 1.0), Reply(2, {"w": f(4.0)}, 2.0)], 0)
    two = cluster(old, [Reply(1, {"w": f(9.0)}, 1.0)], 1)
    assert aggregate(old, [one, two])["w"].item() == 4.5  # (1 + 8 + 9) / 4
    assert aggregate(old, [one, two], min_clients=3)["w"].item() == 4.5
    assert aggregate(old, [one, two], min_clients=4)["w"].item() == 0.0


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 1000), st.lists(small, min_size=3, max_size=3)),
        min_size=1, max_size=9,
    )
)  # fmt: skip
def test_two_levels_are_the_flat_mean(clients):
    old = {"w": torch.full((3,), 0.25), "n": torch.tensor(0)}
    flat = Fold(old)
    groups = {}
    for client, (group, samples, values) in enumerate(clients):
        tensors = {"w": f(*values), "n": torch.tensor(client)}
        reply = Reply(client, tensors, float(samples))
        flat.add(reply)
        groups.setdefault(group, []).append(reply)
    two_levels = Fold(old)
    for group in sorted(groups):
        members = groups[group]
        two_levels.add(wired(cluster(old, members, members[0].client)))
    expected = flat.result()
    result = two_levels.result()
    assert torch.allclose(result["w"], expected["w"], rtol=1e-6, atol=1e-6)
    assert result["n"] == expected["n"]
    assert two_levels.reply(0).count == flat.reply(0).count
    assert two_levels.reply(0).weight == flat.reply(0).weight


# Memory


def test_at_most_the_last_reply_is_alive_while_the_next_one_comes():
    alive = weakref.WeakSet()

    class Watched(Reply):
        __hash__ = object.__hash__

    def replies():
        for client in range(20):
            gc.collect(0)
            assert len(alive) <= 1
            reply = Watched(client, {"w": torch.ones(2)}, 1.0)
            alive.add(reply)
            yield reply
            del reply

    assert aggregate({"w": torch.zeros(2)}, replies())["w"].tolist() == [1.0, 1.0]


def test_memory_does_not_grow_with_the_number_of_clients():
    data = b"".join(reply_chunks(Reply(0, {"w": torch.ones(50_000)}, 1.0)))  # 200 kB each

    def peak(clients):
        tracemalloc.start()
        aggregate({"w": torch.zeros(50_000)}, (read_reply(bytearray(data)) for _ in range(clients)))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(2)
    assert peak(40) < peak(4) + 100_000


# What has a mean


@BOTH
def test_merged_names_the_keys_that_have_a_mean(send):
    old = {"a": f(0.0), "b": f(8.0), "n": torch.tensor(1)}
    whole = send(Reply(0, {"a": f(1.0), "b": f(1.0), "n": torch.tensor(2)}, 1.0))
    weighing_a = send(
        Reply(1, {"a": f(1.0), "b": f(1.0), "n": torch.tensor(2)}, {"a": 2.0, "b": 0.0})
    )
    without_weight = send(Reply(2, {"a": f(1.0), "b": f(1.0), "n": torch.tensor(2)}, 0.0))
    assert folded(old, [whole]).merged() == {"a": None, "b": None}
    assert folded(old, [weighing_a]).merged() == {"a": None}
    assert folded(old, [whole, weighing_a]).merged(min_clients=2) == {"a": None}
    assert folded(old, [whole]).merged(min_clients=2) == {}
    assert folded(old, [without_weight]).merged() == {}
    assert folded(old, []).merged() == {}


def test_merged_names_the_elements_of_a_region():
    fold = Fold({"w": f(0.0, 0.0, 0.0)})
    fold.add(Reply(0, {"w": f(1.0)}, 1.0), {"w": ((1,),)})
    assert fold.merged()["w"].tolist() == [False, True, False]
