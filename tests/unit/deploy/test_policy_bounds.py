"""Values of a policy.toml that no system call takes are refused when the site starts."""

import pytest

from fedloom.deploy import limits, policy
from fedloom.errors import FedloomError

AMOUNTS = ("gigabytes", "megabytes", "seconds", "memory", "parameters")
DEVICE = ("macs", "params", "latency_ms")
WHOLE = (
    "min_part", "divisions", "classes", "experiments", "rounds", "evaluations", "resize",
)  # fmt: skip


def written(folder, name, value):
    lines = {"methods": '["*"]', "fields": '["*"]', "rounds": "1000", "megabytes": "1024"}
    section = ""
    if name in DEVICE:
        section = f"[device]\n{name} = {value}\n"
    else:
        lines[name] = value
    path = folder / "policy.toml"
    text = "".join(f"{key} = {content}\n" for key, content in lines.items())
    path.write_text(text + section)
    return path


@pytest.mark.parametrize("value", ["1e300", '"1e30T"', "1e31"])
@pytest.mark.parametrize("name", [*AMOUNTS, *DEVICE])
def test_an_absurd_amount_is_refused(tmp_path, name, value):
    path = written(tmp_path, name, value)
    with pytest.raises(FedloomError, match=rf"`.*{name}` must be less than or equal to .*, but"):
        policy.read_policy(path)


@pytest.mark.parametrize("name", WHOLE)
def test_an_absurd_number_is_refused(tmp_path, name):
    path = written(tmp_path, name, str(10**15))
    with pytest.raises(FedloomError, match=f"`{name}` must be less than or equal to"):
        policy.read_policy(path)


def test_the_largest_policy_can_be_enforced(tmp_path):
    """The largest values pass through the system calls that enforce them."""
    path = written(tmp_path, "seconds", str(policy.MOST_SECONDS))
    largest = policy.read_policy(path).model_copy(update={"memory": policy.MOST_MEMORY})
    with limits.Work(largest).bounded():
        pass


def test_the_policy_of_a_new_kit_is_within_its_bounds(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(policy.POLICY)
    assert policy.read_policy(path).seconds == 3600
