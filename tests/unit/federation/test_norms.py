import math

import pytest
import torch

from fedloom.federation.protocol.parcels import Parcel
from fedloom.federation.protocol.wire import Body, read_reply, reply_chunks
from fedloom.federation.server.norms import (
    REMEMBERED,
    UpdateBound,
    excessive,
    extended,
    medians,
    scales,
)
from fedloom.federation.server.receiving import Judges
from fedloom.federation.server.update_sizes import (
    LARGEST,
    SWEEP,
    UpdateMeasure,
    group_of,
    magnitude,
    root_mean,
)
from fedloom.records.rows import MetricsRow, UpdateNorms
from fedloom.types import Fields, Order, Reply

SENT = {
    "net.conv.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
    "net.bn.running_mean": torch.tensor([0.5]),
    "net.bn.running_var": torch.tensor([1.0]),
    "net.bn.num_batches_tracked": torch.tensor(7),
    "alpha/000.normal.0-2": torch.tensor([0.0, 0.0]),
}
BACK = {
    "net.conv.weight": torch.tensor(
        [[1.0, 2.0], [3.0, 8.0]]
    ),  # one of four moved by 4: √(16/4) = 2
    "net.bn.running_mean": torch.tensor([0.5]),
    "net.bn.running_var": torch.tensor([4.0]),  # one of two moved by 3: √(9/2)
    "net.bn.num_batches_tracked": torch.tensor(99),
    "alpha/000.normal.0-2": torch.tensor([0.3, -0.4]),  # √(0.25/2)
}


def as_received(tensors):
    return read_reply(bytearray(b"".join(reply_chunks(Reply(0, tensors))))).tensors


# Measuring


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("net.conv.weight", "parameters"),
        ("bn.weight", "parameters"),
        ("bn.running_mean", "statistics"),
        ("running_var", "statistics"),
        ("alpha/000.normal.0-2", "alpha"),
        ("running_mean.weight", "parameters"),
    ],
)
def test_groups(name, group):
    assert group_of(name) == group


@pytest.mark.parametrize("received", [as_received, dict], ids=["in one sweep", "by key"])
def test_an_update_is_measured_by_group(received):
    norms = UpdateMeasure(SENT).measure(received(BACK))
    assert norms["parameters"] == 2.0
    assert norms["statistics"] == pytest.approx(math.sqrt(4.5), rel=1e-15)
    assert norms["alpha"] == pytest.approx(math.sqrt(0.125), rel=1e-7)


def test_both_ways_measure_the_same_beyond_a_sweep():
    draws = torch.Generator().manual_seed(0)
    sizes = {
        "a.weight": SWEEP + 7,
        "b.running_mean": 3,
        "c.weight": 0,
        "d.weight": 2 * SWEEP,
        "e.running_var": 5,
    }
    weights = {name: torch.randn(size, generator=draws) for name, size in sizes.items()}
    back = {
        name: tensor + torch.randn(tensor.shape, generator=draws)
        for name, tensor in weights.items()
    }
    ruler = UpdateMeasure(weights)
    swept = ruler.measure(as_received(back))
    by_key = ruler.measure(back)
    assert swept == pytest.approx(by_key, rel=1e-12) and set(swept) == {"parameters", "statistics"}
    difference = torch.cat(
        [(back[name] - weights[name]).double() for name in sizes if name.endswith("weight")]
    )
    assert swept["parameters"] == pytest.approx(difference.square().mean().sqrt().item(), rel=1e-6)


def test_further_tensors_and_integers_do_not_count():
    norms = UpdateMeasure(SENT).measure(as_received({**BACK, "extra": torch.full((9,), 1e30)}))
    assert norms == pytest.approx(UpdateMeasure(SENT).measure(BACK))
    assert UpdateMeasure({"n": torch.tensor(1)}).measure(as_received({"n": torch.tensor(5)})) == {}


def test_other_precisions_are_measured_too():
    weights = {"w": torch.zeros(2, dtype=torch.float64), "h": torch.zeros(2, dtype=torch.float16)}
    back = {
        "w": torch.full((2,), 3.0, dtype=torch.float64),
        "h": torch.full((2,), 3.0, dtype=torch.float16),
    }
    assert UpdateMeasure(weights).measure(as_received(back)) == {"parameters": 3.0}


def test_a_size_is_always_finite():
    weights = {"w": torch.zeros(2, dtype=torch.float64)}
    norms = UpdateMeasure(weights).measure(
        as_received({"w": torch.full((2,), 1e300, dtype=torch.float64)})
    )
    assert norms["parameters"] > 1e300 and math.isfinite(norms["parameters"])
    largest = {"w": torch.full((2,), torch.finfo(torch.float32).max)}
    sizes = UpdateMeasure({"w": -largest["w"]}).measure(as_received(largest))
    assert sizes["parameters"] == pytest.approx(2 * torch.finfo(torch.float32).max)


def test_the_magnitude_of_what_was_sent():
    assert magnitude(SENT, "parameters") == math.sqrt((1 + 4 + 9 + 16) / 4)
    assert magnitude(SENT, "alpha") == 0.0


def test_parameters_of_a_network_are_measured_as_they_are():
    weights = {
        "w": torch.nn.Parameter(torch.zeros(2)),
        "h": torch.nn.Parameter(torch.zeros(2, dtype=torch.float64)),
    }
    assert UpdateMeasure(weights).measure(
        {"w": torch.ones(2), "h": torch.ones(2, dtype=torch.float64)}
    ) == {"parameters": 1.0}
    only_w = {"w": weights["w"]}
    assert UpdateMeasure(only_w).measure(as_received({"w": torch.ones(2)})) == {"parameters": 1.0}


def test_further_tensors_of_a_name_that_was_sent_are_no_updates():
    """An order may let clients return a tensor of another size, which only has to be finite."""
    order = Order(0, "train", {"body.w": torch.zeros(2), "head.w": torch.zeros(4)})
    fields = Fields(tensors=("body.*",), extra=("head.*",))
    parcel = Parcel(0, b"", Body(order.tensors), None)
    back = as_received({"body.w": torch.ones(2), "head.w": torch.ones(5)})
    reply = Reply(0, back)
    assert Judges(lambda kind: fields).of(parcel, order).norms(reply.tensors, "train") == {
        "train parameters": 1.0
    }


def test_absurd_sizes_still_make_a_row(tmp_path):
    """Even where their ratio to the usual is beyond any number."""
    bound = UpdateBound({}, 100.0)
    norms = {
        0: {"train parameters": 1e-3},
        1: {"train parameters": LARGEST},
        2: {"train parameters": 1e-3},
    }
    assert list(bound.refuse([], norms)) == [1]
    row = MetricsRow("train", 1, 0.0, updates=bound.updates)
    assert MetricsRow.from_line(row.to_line()) == row
    assert bound.history_after() == {"train parameters": [1e-3]}
    assert root_mean(math.nan, 1) == root_mean(math.inf, 1) == LARGEST


def test_without_a_factor_nobody_is_refused_but_sizes_are_told():
    bound = UpdateBound({}, None)
    assert bound.refuse([], sizes(1.0, 2.0, 1e30)) == {}
    assert bound.updates == {"train parameters": UpdateNorms(2.0, 5e29)}


# The rule


def sizes(*values, group="train parameters"):
    return {client: {group: value} for client, value in enumerate(values)}


def unknown(group):
    raise AssertionError("nobody should have asked")


def refused(norms, history=None, factor=10.0, magnitude=unknown):
    return sorted(excessive(scales(norms, history or {}, magnitude), factor))


def test_who_exceeds_the_median_by_the_factor_is_refused():
    assert refused(sizes(1.0, 2.0, 20.0)) == []  # exactly 10 × 2
    assert refused(sizes(1.0, 2.0, 20.1)) == [2]
    assert refused(sizes(1e30, 1.0, 1.0, 1e30, 1.0)) == [0, 3]


def test_the_reason_says_what_is_usual():
    (reason,) = excessive(scales(sizes(1.0, 2.0, 1e30), {}, unknown), 10.0).values()
    assert (
        reason
        == "its update of train parameters is 1e+30 per element, usual is 2 (--norm-bound 10)"
    )


def test_the_largest_is_told_in_multiples_of_what_is_usual():
    (scale,) = scales(sizes(1.0, 2.0, 30.0), {}, unknown).values()
    assert (scale.usual, scale.largest) == (2.0, 15.0)


def test_two_replies_without_a_history_cannot_be_judged():
    assert refused(sizes(1.0, 1e30)) == [] and refused(sizes(1e30)) == [] and refused({}) == []


def test_with_a_history_even_one_reply_is_judged():
    history = {"train parameters": [1.0, 3.0, 100.0]}
    assert refused(sizes(30.0), history) == [] and refused(sizes(31.0), history) == [0]
    assert refused(sizes(1.0, 1e30), history) == [1]


def test_the_larger_of_the_two_medians_counts():
    assert refused(sizes(1.0, 1.0, 50.0), {"train parameters": [6.0]}) == []
    assert refused(sizes(6.0, 6.0, 50.0), {"train parameters": [1.0]}) == []
    assert refused(sizes(1.0, 1.0, 50.0), {"train parameters": [1.0]}) == [2]


def test_of_an_even_number_the_lower_middle_counts():
    assert refused(sizes(1.0, 1.0, 1e30, 1e30)) == [2, 3]


def test_each_group_and_kind_of_order_is_judged_by_itself():
    norms = {
        0: {"train parameters": 1.0, "train statistics": 1.0},
        1: {"train parameters": 1.0, "train statistics": 1e9},
        2: {"train parameters": 1.0, "train statistics": 1.0},
        3: {"search parameters": 1e9},
    }
    assert refused(norms) == [1]


def test_where_nobody_moves_what_was_sent_stands_in():
    assert refused(sizes(0.0, 0.0, 9.0), magnitude=lambda group: 1.0) == []
    assert refused(sizes(0.0, 0.0, 1e30), magnitude=lambda group: 1.0) == [2]
    assert refused(sizes(0.0, 0.0, 1e30), magnitude=lambda group: 0.0) == [2]


def test_what_is_usual_in_a_round():
    assert medians([{"a": 1.0}, {"a": 5.0, "b": 2.0}, {"a": 3.0}]) == {"a": 3.0, "b": 2.0}
    assert medians([]) == {}


def test_history_grows_by_a_round_and_has_an_end():
    history = {}
    for number in range(REMEMBERED + 5):
        history = extended(history, {"a": float(number)})
    assert history["a"] == [float(number) for number in range(5, REMEMBERED + 5)]
    assert extended({"a": [1.0]}, {"b": 2.0}) == {"a": [1.0], "b": [2.0]}
