"""FedorAS on devices whose owners limit them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedloom.config.models import TiersConfig
from fedloom.cost.limits import DeviceLimit, Limit
from fedloom.data.samples import Samples
from fedloom.federation.protocol.method import ClientRun, Declined
from fedloom.methods.fedoras import TrainSupernet, tiered
from fedloom.methods.fedoras_client import ClientPaths
from fedloom.methods.fedoras_device import Allowance
from fedloom.methods.fedoras_frame import Frame
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_search import SearchPaths, summed
from fedloom.methods.fedoras_tune import TuneTiers
from fedloom.runs.tiers import deal_of
from fedloom.searchers.tier_search import Memory
from fedloom.types import Order, Round, Setup, Task

SPACE = str(Path(__file__).parents[2] / "contract" / "short_chain.toml")
OPTIONS = FedorASOptions.model_validate({"space": SPACE, "epochs": 1, "batch": 4, "comm": "1"})
TASK = Task("fedoras", OPTIONS.model_dump(), "image", (1, 6, 6), ("a", "b", "c"), 3, (0.5,), (0.5,))
FRAME = Frame.of_task(TASK, OPTIONS)
CHEAPEST = FRAME.table.cheapest("macs")
DEAREST = FRAME.table.dearest("macs")
CONV1, MB, IDENTITY = (
    FRAME.space.slots[0].options.index(name) for name in ("conv1", "mb3e1", "identity")
)


def on(limit: DeviceLimit) -> ClientRun:
    return ClientRun(TASK, "supernet", 1, 0, 0, "cpu", lambda: b"", limit=limit)


def an_order() -> Order:
    """Of the whole supernet, for a tier that allows everything."""
    deal = deal_of(TiersConfig(limits="max"), tiered(TASK), 2, 3)
    state = TrainSupernet(OPTIONS).init(Setup(TASK, 2, tiers=deal), None)
    planned = TrainSupernet(OPTIONS).plan(state, Round(0, 0.0, 4.0, range(2), 1.0, 3))
    assert planned is not None
    return planned[1][0]


def data() -> Samples:
    draws = torch.Generator().manual_seed(0)
    return Samples(torch.rand(20, 1, 6, 6, generator=draws), torch.arange(20) % 3)


def test_paths_keep_to_the_owners_limit():
    """Those of a tier that allows everything are dearer, so the limit is the owner's."""
    most = CHEAPEST + (DEAREST - CHEAPEST) // 4
    wide = ClientPaths.of_order(FRAME, an_order(), on(DeviceLimit()))
    narrow = ClientPaths.of_order(FRAME, an_order(), on(DeviceLimit(Limit(macs=most))))
    costs = FRAME.costs({"macs": 0}, ())
    assert max(costs.of(wide.draw())[0] for _ in range(50)) > most
    assert max(costs.of(narrow.draw())[0] for _ in range(50)) <= most


def test_the_tighter_of_two_limits_counts():
    order = an_order()
    tight = replace(order, meta={**order.meta, "limit": {"macs": 100.0}, "unsupported": ["ds3e1"]})
    loose = on(DeviceLimit(Limit(macs=200, params=50), frozenset({"mb3e1", "of another space"})))
    allowance = Allowance.of_order(FRAME, tight.meta, loose)
    assert allowance.limit == {"macs": 100.0, "params": 50}
    assert allowance.unsupported == ("ds3e1", "mb3e1")
    tighter = Allowance.of_order(FRAME, tight.meta, on(DeviceLimit(Limit(macs=60))))
    assert tighter.limit == {"macs": 60}


def test_a_latency_counts_only_where_the_order_limits_one():
    order = an_order()
    own = on(DeviceLimit(Limit(latency_ms=5)))
    assert "latency_ms" not in Allowance.of_order(FRAME, order.meta, own).limit
    limited = {**order.meta, "limit": {"latency_ms": 8.0}}
    assert Allowance.of_order(FRAME, limited, own).limit == {"latency_ms": 5}


def test_operations_that_the_device_does_not_have_are_never_drawn():
    paths = ClientPaths.of_order(
        FRAME, an_order(), on(DeviceLimit(unsupported=frozenset({"mb3e1"})))
    )
    drawn = set()
    for _ in range(50):
        drawn.update(paths.draw())
    assert drawn == {0, 1, 2, 3} - {MB}


@pytest.mark.parametrize("dynamic", [1.0, 0.5])
def test_a_device_that_nothing_fits_declines_and_says_why(dynamic):
    order = an_order()
    order = replace(order, meta={**order.meta, "dynamic": dynamic})
    run = on(DeviceLimit(Limit(macs=CHEAPEST - 1)))
    with pytest.raises(
        Declined, match=f"has {CHEAPEST:,} macs, and this device may spend {CHEAPEST - 1:,}"
    ):
        TrainSupernet(OPTIONS).client(order, data(), None, run)
    nothing = on(DeviceLimit(unsupported=frozenset({"conv1", "ds3e1", "mb3e1", "identity"})))
    with pytest.raises(Declined, match="supports no operation of a layer"):
        TrainSupernet(OPTIONS).client(order, data(), None, nothing)


def a_network(*path: int) -> Order:
    sub_space = tuple((op,) for op in path)
    weights = FRAME.model(sub_space).state_dict()
    meta = {"ops": [[op] for op in path], "lr": 0.1, "train_share": 0.9, "paths": [list(path)]}
    return Order(0, "tune", weights, meta)


def test_a_tiers_network_is_trained_where_it_fits():
    cost = FRAME.costs({"macs": 0}, ()).of((CONV1, MB, IDENTITY))[0]
    order = a_network(CONV1, MB, IDENTITY)
    method = TuneTiers(OPTIONS)
    method.client(order, data(), None, on(DeviceLimit(Limit(macs=cost))))
    with pytest.raises(Declined, match=f"the network has {cost:,} macs"):
        method.client(order, data(), None, on(DeviceLimit(Limit(macs=cost - 1))))
    with pytest.raises(Declined, match="does not support mb3e1"):
        method.client(order, data(), None, on(DeviceLimit(unsupported=frozenset({"mb3e1"}))))


def milliseconds_of(slot):
    """The operation number n takes n milliseconds."""
    return [float(op) for op in range(len(slot.options))]


def test_milliseconds_of_a_tiers_network_count_where_the_order_tells_them():
    """The operation number n of every layer takes n milliseconds, and every path 2 beside."""
    rows = [milliseconds_of(slot) for slot in FRAME.space.slots]
    order = a_network(CONV1, MB, IDENTITY)
    with_latency = replace(order, meta={**order.meta, "latency": {"fixed": 2.0, "rows": rows}})
    takes = 2.0 + CONV1 + MB + IDENTITY
    method = TuneTiers(OPTIONS)
    method.client(with_latency, data(), None, on(DeviceLimit(Limit(latency_ms=takes))))
    with pytest.raises(
        Declined, match=f"the network has {takes:g} latency_ms, and this device may spend"
    ):
        method.client(with_latency, data(), None, on(DeviceLimit(Limit(latency_ms=takes - 0.5))))
    # The latency of an order without rows is unknown.
    method.client(order, data(), None, on(DeviceLimit(Limit(latency_ms=0.1))))


def test_scoring_asks_for_the_operations_alone():
    """It is a few forward passes: a limit of training does not hold for it."""
    method = SearchPaths(OPTIONS)
    order = a_network(CONV1, MB, IDENTITY)
    reply, _ = method.client(order, data(), None, on(DeviceLimit(Limit(macs=1))))
    assert "left_out" not in reply.meta
    with pytest.raises(
        Declined, match=r"every path has an operation that this device does not support \(mb3e1\)"
    ):
        method.client(order, data(), None, on(DeviceLimit(unsupported=frozenset({"mb3e1"}))))


def two_paths() -> Order:
    """The second has an operation that not every device has."""
    paths = [[CONV1, CONV1, IDENTITY], [CONV1, MB, IDENTITY]]
    sub_space = ((CONV1,), tuple(sorted((CONV1, MB))), (IDENTITY,))
    weights = FRAME.model(sub_space).state_dict()
    meta = {"ops": [list(ops) for ops in sub_space], "train_share": 0.5, "paths": paths}
    return Order(0, "score", weights, meta)


def test_a_device_scores_the_paths_that_it_can_compute():
    """What it can, it scores like a device that can compute all of them."""
    method = SearchPaths(OPTIONS)
    all_scores, _ = method.client(two_paths(), data(), None, on(DeviceLimit()))
    some_scores, _ = method.client(
        two_paths(), data(), None, on(DeviceLimit(unsupported=frozenset({"mb3e1"})))
    )
    assert some_scores.meta["left_out"] == [1]
    assert some_scores.meta["loss"] == [pytest.approx(all_scores.meta["loss"][0]), 0.0]
    assert method.check_reply(two_paths(), some_scores, 20) is None
    first, second = summed(2, [all_scores, some_scores])
    assert first.samples == 2 * second.samples == 2 * all_scores.meta["samples"]
    assert second.loss == all_scores.meta["loss"][1]


@pytest.mark.parametrize("left_out", [[2], [-1]])
def test_a_path_that_was_never_sent_cannot_be_left_out(left_out):
    method = SearchPaths(OPTIONS)
    reply, _ = method.client(two_paths(), data(), None, on(DeviceLimit()))
    lying = replace(reply, meta={**reply.meta, "left_out": left_out})
    assert method.check_reply(two_paths(), lying, 20) == f"it leaves out path {left_out[0]} of 2"


def test_paths_that_nobody_could_score_are_asked_for_again():
    """The generation ends when other devices have scored the rest; both halves count."""
    options = OPTIONS.model_copy(update={"score": "federated", "models": 8, "pool": 8, "sample": 4})
    method = SearchPaths(options)
    deal = deal_of(TiersConfig(limits="max"), tiered(TASK), 2, 3)
    setup = Setup(TASK, 2, tiers=deal)
    state = method.init(setup, TrainSupernet(options).init(setup, None))
    r = Round(1, 0.0, 4.0, range(2), 1.0, 3)
    limited = on(DeviceLimit(unsupported=frozenset({"mb3e1"})))
    state, orders = method.plan(state, r)
    reply, _ = method.client(orders[0], data(), None, limited)
    assert 0 < len(reply.meta["left_out"]) < len(orders[0].meta["paths"])
    after = method.merge(state, orders[:1], [reply], r)
    memory = Memory.from_plain(after.meta["search"])
    assert memory.generation == 0
    state, orders = method.plan(after, r)
    again = orders[0].meta["paths"]
    assert len(again) == len(reply.meta["left_out"])
    assert all(MB in path for path in again)
    reply, _ = method.client(orders[0], data(), None, on(DeviceLimit()))
    after = method.merge(state, orders[:1], [reply], r)
    memory = Memory.from_plain(after.meta["search"])
    assert memory.generation == 1
    assert len(memory.scores) == 8
