"""Changes of colour, by hand on single pixels, and against Pillow."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedloom.data.augmenting.augment import shift_hue
from fedloom.errors import FedloomError

DTYPES = [torch.uint8, torch.float32]


def pixel(*values, dtype=torch.uint8):
    return torch.tensor(values, dtype=dtype).view(1, 3, 1, 1)


def pictures(dtype, seed=0):
    whole = torch.randint(0, 256, (4, 3, 5, 5), generator=torch.Generator().manual_seed(seed))
    return whole.to(dtype) if dtype == torch.uint8 else whole.to(dtype) * 0.0137 - 1.5


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (1 / 3, (10, 200, 60)),
        (-1 / 3, (60, 10, 200)),
        (2 / 3, (60, 10, 200)),
        (1 / 2, (10, 150, 200)),
    ],
)
def test_a_colour_moves_round_the_circle(turns, expected):
    assert shift_hue(pixel(200, 60, 10), turns).flatten().tolist() == list(expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turns", [0, 1, -2, 0.0])
def test_no_turn_or_a_whole_one_changes_no_bit(dtype, turns):
    x = pictures(dtype)
    assert torch.equal(shift_hue(x, turns), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turns", [0.1, 0.5, -0.3])
def test_grey_stays_as_it_is(dtype, turns):
    x = pictures(dtype)[:, :1].expand(-1, 3, -1, -1)
    assert torch.equal(shift_hue(x, turns), x)


@given(st.floats(-3, 3), st.sampled_from(DTYPES))
def test_brightness_and_spread_stay(turns, dtype):
    x = pictures(dtype)
    moved = shift_hue(x, turns)
    assert moved.dtype == dtype and moved.shape == x.shape
    for extreme in (torch.amax, torch.amin):
        assert torch.allclose(extreme(moved, 1).float(), extreme(x, 1).float(), atol=1e-5)


def test_every_sample_has_its_own_amount():
    x = pictures(torch.uint8)
    moved = shift_hue(x, torch.tensor([0, 1 / 3, 2 / 3, 0.2]))
    assert torch.equal(moved[0], x[0])
    assert torch.equal(moved[1], x[1].roll(1, 0)) and torch.equal(moved[2], x[2].roll(2, 0))
    assert torch.equal(moved[3:], shift_hue(x[3:], 0.2))


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_without_three_channels_there_is_no_hue(channels):
    with pytest.raises(FedloomError, match=f"3 colour channels, but these have {channels}"):
        shift_hue(torch.zeros(2, channels, 4, 4), 0.5)
