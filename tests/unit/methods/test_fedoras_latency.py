"""FedorAS under limits in milliseconds: what goes down to a client, and what comes of it."""

from pathlib import Path

import pytest

from fedloom.config.file_rows import LatencyConfig
from fedloom.config.models import TiersConfig
from fedloom.cost.limits import DeviceLimit, Limit
from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import ClientRun, Declined
from fedloom.methods.fedoras import TrainSupernet, tiered
from fedloom.methods.fedoras_client import ClientPaths
from fedloom.methods.fedoras_frame import Frame
from fedloom.methods.fedoras_options import FedorASOptions
from fedloom.methods.fedoras_search import SearchPaths
from fedloom.methods.fedoras_tiers import spaces_of
from fedloom.methods.fedoras_tune import TuneTiers
from fedloom.runs.tiers import deal_of
from fedloom.types import Order, Round, Setup, State, Task

SPACE = str(Path(__file__).parents[2] / "contract" / "short_chain.toml")
OPTIONS = FedorASOptions.model_validate({"space": SPACE, "comm": "1", "search": "random"})
TASK = Task("fedoras", OPTIONS.model_dump(), "image", (1, 6, 6), ("a", "b", "c"), 3, (0.5,), (0.5,))
FRAME = Frame.of_task(TASK, OPTIONS)
# The operation number n of every layer takes n milliseconds, and every path 2 beside.
ROWS = []
for slot in FRAME.space.slots:
    ROWS.append([float(op) for op in range(len(slot.options))])
DEVICE = LatencyConfig(fixed=2.0, rows=ROWS)
SMALL = 3.0


def setup() -> Setup:
    asked = TiersConfig(
        limits=f"{SMALL:g},max", cost="latency_ms", latencies=[DEVICE], assigned=[1, 2]
    )
    return Setup(TASK, 2, tiers=deal_of(asked, tiered(TASK), 2, 3))


def state() -> State:
    return TrainSupernet(OPTIONS).init(setup(), None)


def orders() -> list[Order]:
    planned = TrainSupernet(OPTIONS).plan(state(), Round(0, 0.0, 4.0, range(2), 1.0, 3))
    assert planned is not None
    return list(planned[1])


def milliseconds(path: tuple[int, ...]) -> float:
    return 2.0 + sum(path)


def paths(order: Order, device: DeviceLimit, dynamic: float = 1.0) -> ClientPaths:
    order = Order(order.client, order.kind, order.tensors, {**order.meta, "dynamic": dynamic})
    run = ClientRun(TASK, "supernet", 1, 0, 0, "cpu", lambda: b"", limit=device)
    return ClientPaths.of_order(FRAME, order, run)


def test_a_client_keeps_to_the_milliseconds_of_its_tier() -> None:
    small, large = orders()
    sampler = paths(small, DeviceLimit())
    assert max(milliseconds(sampler.draw()) for _ in range(40)) == SMALL
    sampler = paths(large, DeviceLimit())
    assert max(milliseconds(sampler.draw()) for _ in range(40)) > SMALL


def test_the_owners_milliseconds_hold_beside_the_tiers() -> None:
    large = orders()[1]
    sampler = paths(large, DeviceLimit(Limit(latency_ms=SMALL)))
    assert max(milliseconds(sampler.draw()) for _ in range(40)) == SMALL
    with pytest.raises(Declined, match="the cheapest network that it was sent has 2 latency_ms"):
        paths(large, DeviceLimit(Limit(latency_ms=1.0)))


def test_a_limit_that_is_drawn_anew_for_every_batch() -> None:
    """Between half of it and all, and never below the cheapest path."""
    large = orders()[1]
    dearest = milliseconds(tuple(len(row) - 1 for row in ROWS))
    sampler = paths(large, DeviceLimit(), dynamic=0.5)
    limits = [sampler._limits_now()[0] for _ in range(200)]
    assert 0.5 * dearest <= min(limits) < 0.6 * dearest
    assert 0.9 * dearest < max(limits) <= dearest
    tight = paths(large, DeviceLimit(Limit(latency_ms=2.5)), dynamic=0.1)
    assert min(tight._limits_now()[0] for _ in range(50)) == 2.0


def test_the_search_and_the_result_know_them() -> None:
    searched = SearchPaths(OPTIONS).init(setup(), state())
    small, large = spaces_of(searched)
    assert small.limits == (SMALL,) and large.cost(tuple(len(row) - 1 for row in ROWS)) > SMALL
    tuned = TuneTiers(OPTIONS).init(setup(), searched)
    first, second = TuneTiers(OPTIONS).sections(tuned).tiers
    assert first.limit == {"latency_ms": SMALL}
    for tier, path in zip((first, second), tuned.meta["paths"], strict=True):
        assert tier.latency_ms == milliseconds(tuple(path))
    assert first.latency_ms is not None and first.latency_ms <= SMALL


def test_whoever_trains_a_tiers_network_hears_what_operations_take() -> None:
    method = TuneTiers(OPTIONS)
    tuned = method.init(setup(), SearchPaths(OPTIONS).init(setup(), state()))
    planned = method.plan(tuned, Round(1, 0.0, 4.0, range(2), 1.0, 3))
    assert planned is not None
    for order in planned[1]:
        assert order.meta["latency"] == {"fixed": 2.0, "rows": ROWS}


def test_milliseconds_of_another_space_are_refused() -> None:
    other = TiersConfig(cost="latency_ms", latencies=[LatencyConfig(fixed=1.0, rows=ROWS[:1])])
    with pytest.raises(FedloomError, match="must be those of its space"):
        deal_of(other, tiered(TASK), 2, 3)
