"""`histograms` in a site's policy: how label counts may leave."""

import pytest

from fedloom.deploy.policy import POLICY, read_policy
from fedloom.errors import FedloomError


def policy_with(tmp_path, line):
    path = tmp_path / "policy.toml"
    lines = [written for written in POLICY.splitlines() if not written.startswith("histograms")]
    path.write_text("\n".join([line, *lines]))
    return read_policy(path)


@pytest.mark.parametrize(
    ("line", "takes", "refuses"),
    [
        ("", ["laplace:1.0"], ["exact", "laplace:0.5"]),  # of an older kit
        ('histograms = "laplace:0.5"', ["laplace:0.5"], ["exact", "laplace:1.0", "laplace:0.25"]),
        ('histograms = "exact"', ["exact", "laplace:1.0"], []),
        ('histograms = "none"', [], ["exact", "laplace:1.0"]),
    ],
)
def test_how_label_counts_may_leave(tmp_path, line, takes, refuses):
    policy = policy_with(tmp_path, line)
    assert all(map(policy.allows_histograms, takes))
    assert not any(map(policy.allows_histograms, refuses))


def test_the_policy_of_a_new_kit(tmp_path):
    (tmp_path / "policy.toml").write_text(POLICY)
    assert read_policy(tmp_path / "policy.toml").histograms == "laplace:1.0"
    with pytest.raises(FedloomError, match="`histograms` must be exact, none, or laplace:E"):
        policy_with(tmp_path, 'histograms = "some"')
