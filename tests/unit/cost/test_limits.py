"""What a device may spend: two limits together."""

import json

import pytest

from fedloom.cost.limits import DeviceLimit, Figures, Limit


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Limit(), Limit(), Limit()),
        (Limit(macs=5), Limit(), Limit(macs=5)),
        (Limit(macs=5), Limit(macs=3), Limit(macs=3)),
        (Limit(5, 6, 7), Limit(6, 5, 8), Limit(5, 5, 7)),
        (Limit(params=1), Limit(latency_ms=2), Limit(params=1, latency_ms=2)),
    ],
)
def test_the_tighter_of_two_limits(one, other, both):
    assert one.tighter(other) == other.tighter(one) == both
    for figures in (Figures(1, 3, 2), Figures(5, 5, 7), Figures(6, 6, 8)):
        assert both.fits(figures) == (one.fits(figures) and other.fits(figures))


def test_operations_that_either_lacks_are_lacking():
    one = DeviceLimit(Limit(macs=5), frozenset({"a"}))
    other = DeviceLimit(Limit(macs=9), frozenset({"b"}))
    assert (
        one.tighter(other)
        == other.tighter(one)
        == DeviceLimit(Limit(macs=5), frozenset({"a", "b"}))
    )


@pytest.mark.parametrize(
    ("limit", "plain"),
    [
        (DeviceLimit(), {}),
        (DeviceLimit(Limit(1, 2, 3.5)), {"params": 1, "macs": 2, "latency_ms": 3.5}),
        (DeviceLimit(Limit(macs=2), frozenset("ba")), {"macs": 2, "unsupported": ["a", "b"]}),
    ],
)
def test_a_limit_crosses_as_plain_values(limit, plain):
    assert limit.to_plain() == plain
    assert DeviceLimit.from_plain(json.loads(json.dumps(plain))) == limit
