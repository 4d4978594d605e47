"""Rotation and its kin, by hand on tiny images, and against torch.rot90 and Pillow."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedloom.data.augmenting.augment import rotate

DTYPES = [torch.uint8, torch.float32]


def pictures(n=3, c=3, h=7, w=7, dtype=torch.uint8, seed=0):
    whole = torch.randint(0, 256, (n, c, h, w), generator=torch.Generator().manual_seed(seed))
    return whole.to(dtype) if dtype == torch.uint8 else whole.to(dtype) / 255


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 5, 8])
@pytest.mark.parametrize("quarters", range(-5, 6))
def test_a_quarter_turn_of_a_square_is_exact(dtype, size, quarters):
    x = pictures(h=size, w=size, dtype=dtype)
    assert torch.equal(rotate(x, 90 * quarters), torch.rot90(x, quarters, (2, 3)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_half_a_turn_of_an_oblong_is_exact_too(dtype):
    x = pictures(h=4, w=7, dtype=dtype)
    assert torch.equal(rotate(x, 180), x.flip(2, 3))
    assert torch.equal(rotate(x, 0), x)


def test_every_sample_turns_by_its_own_amount():
    x = pictures(n=4)
    turned = rotate(x, torch.tensor([0.0, 90.0, 180.0, -90.0]))
    assert all(
        torch.equal(turned[i], torch.rot90(x[i], quarters, (1, 2)))
        for i, quarters in enumerate((0, 1, 2, 3))
    )


def test_an_eighth_of_a_turn_by_hand():
    """A 3×3 image has one white pixel above its centre.

    It lands at a distance of √2/2 from the corner and the edge.
    """
    x = torch.zeros(1, 1, 3, 3)
    x[0, 0, 0, 1] = 1
    turned = rotate(x, 45)[0, 0]
    half = 0.5**0.5
    assert turned[0, 0] == pytest.approx(
        1 - (2 * half - 1), abs=1e-6
    )  # it looks √2 above the middle
    assert turned[0, 1] == pytest.approx(half * (1 - half), abs=1e-6)  # from (−√2/2, √2/2)
    assert turned[2, 2] == turned[1, 1] == 0


@given(
    st.floats(-720, 720),
    st.sampled_from(DTYPES),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_any_turn_keeps_type_shape_and_range(degrees, dtype, c, h, w):
    x = pictures(c=c, h=h, w=w, dtype=dtype)
    turned = rotate(x, degrees)
    assert turned.dtype == dtype and turned.shape == x.shape
    assert turned.min() >= 0 and turned.max() <= x.max() + 1e-6 * (dtype == torch.float32)


def test_a_wrong_number_of_amounts_is_refused():
    with pytest.raises(ValueError, match="3 samples need one amount or 3"):
        rotate(pictures(n=3), torch.zeros(2))
