"""`[device]` in a site's policy."""

import pytest

from fedloom.cost.limits import DeviceLimit, Limit
from fedloom.deploy.policy import POLICY, read_policy
from fedloom.errors import FedloomError


@pytest.fixture
def limit_in(tmp_path):
    def read(text):
        path = tmp_path / "policy.toml"
        path.write_text(POLICY + text)
        return read_policy(path).device.limit()

    return read


def test_a_site_that_says_nothing_limits_nothing(limit_in):
    assert limit_in("") == DeviceLimit()
    assert limit_in("[device]\n") == DeviceLimit()


def test_the_example_of_a_new_kit(tmp_path):
    lines = [line.removeprefix("# ") for line in POLICY.splitlines()]
    start = lines.index("[device]")
    (tmp_path / "policy.toml").write_text("\n".join([*POLICY.splitlines(), *lines[start:]]))
    limit = read_policy(tmp_path / "policy.toml").device.limit()
    assert limit == DeviceLimit(
        Limit(params=1e6, macs=1e8, latency_ms=20), frozenset({"OPERATION"})
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("macs = 5_000_000", Limit(macs=5e6)),
        ('macs = "5M"', Limit(macs=5e6)),
        ('params = "1.5k"', Limit(params=1500)),
        ("latency_ms = 2.5", Limit(latency_ms=2.5)),
    ],
)
def test_a_limit_is_a_number(limit_in, line, expected):
    assert limit_in(f"[device]\n{line}\n") == DeviceLimit(expected)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("macs = 0", "device.macs"),
        ("macs = -1", "device.macs"),
        ("macs = inf", "device.macs"),
        ('macs = "much"', "a number, or one like 100k, 5M or 1.5G"),
        ("unsupported = 3", "device.unsupported"),
        ("mac = 5", "macs"),
    ],
)
def test_what_is_none_is_named(limit_in, line, named):
    with pytest.raises(FedloomError, match=named):
        limit_in(f"[device]\n{line}\n")
