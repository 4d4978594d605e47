import numpy as np
import pytest
import torch

from fedloom.rng import key, rng, torch_rng
from fedloom.types import Round


def test_names_decide_and_stay_decided_for_ever():
    """A change of these numbers would change every run ever made."""
    assert key(0) == 3581690635855307741
    assert key(0, 3, 12, "batches") == 9022296591852875720
    assert rng(0, "split").integers(1000, size=3).tolist() == [592, 861, 225]
    assert torch.randint(1000, (3,), generator=torch_rng(0, "init")).tolist() == [758, 136, 857]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0,), (1,)),
        ((1,), ("1",)),
        ((0, 1, 2), (0, 2, 1)),
        ((0, 12), (0, 1, 2)),
        ((0, "a", "b"), (0, "ab")),
        ((0,), (0, 0)),
        ((0,), (0, "")),
        ((1,), (True,)),
        ((-1,), (1,)),
    ],
)
def test_different_names_draw_differently(one, other):
    assert key(*one) != key(*other)
    assert rng(*one).random() != rng(*other).random()


def test_keys_have_63_bits():
    keys = [key(0, number) for number in range(2000)]
    assert len(set(keys)) == 2000 and min(keys) >= 0 and 2**62 < max(keys) < 2**63


def test_the_same_name_draws_the_same_again():
    assert np.array_equal(rng(7, 1, "x").random(5), rng(7, 1, "x").random(5))
    assert torch.equal(
        torch.rand(5, generator=torch_rng(7, "x")), torch.rand(5, generator=torch_rng(7, "x"))
    )


def test_a_draw_leaves_the_global_generators_alone():
    torch.manual_seed(0), np.random.seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    rng(1).random(), torch.rand(3, generator=torch_rng(1))
    assert (
        torch.equal(torch.get_rng_state(), before[0])
        and np.random.get_state()[1].tolist() == before[1]
    )


def test_a_rounds_draws_are_named_by_seed_round_and_purpose():
    r = Round(3, 0, 1, range(4), 1.0, seed=9)
    assert r.key("x") == key(9, 3, "x")
    assert r.rng("x").random() == rng(9, 3, "x").random()
