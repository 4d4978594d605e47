"""Crop, flip and cutout by hand; the text of an augmentation, and what of it fits which data."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedloom.data.augmenting.augment import (
    OPERATIONS,
    Augmenter,
    DataFacts,
    augmenter,
    check,
    crop,
    cutout,
    flip,
    parse,
    uniform,
)
from fedloom.errors import FedloomError

DTYPES = [torch.uint8, torch.float32]
FULL = "crop:2+flip+cutout:3+rotate:20+hue:0.2+randaugment:2:9"


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n=6, c=3, h=5, w=6, dtype=torch.uint8):
    """No pixel is black, so that what came in from outside can be told."""
    whole = torch.randint(1, 256, (n, c, h, w), generator=seeded(9))
    return whole.to(dtype) if dtype == torch.uint8 else whole.to(dtype) / 255


def windows(picture, pixels):
    """Every crop there is, by the plain definition."""
    c, h, w = picture.shape
    padded = torch.zeros(c, h + 2 * pixels, w + 2 * pixels, dtype=picture.dtype)
    padded[:, pixels : pixels + h, pixels : pixels + w] = picture
    crops = {}
    for y in range(2 * pixels + 1):
        for x in range(2 * pixels + 1):
            crops[y, x] = padded[:, y : y + h, x : x + w]
    return crops


# By hand


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pixels", [1, 2, 6])
def test_a_crop_is_a_window_of_the_padded_image(dtype, pixels):
    x = pictures(dtype=dtype)
    for before, after in zip(x, crop(x, seeded(), pixels), strict=True):
        assert any(torch.equal(after, window) for window in windows(before, pixels).values())


def test_every_crop_comes_up_about_as_often():
    """Of 9 windows, 900 images; 4.5 standard deviations."""
    x = pictures(n=1).expand(900, -1, -1, -1)
    cropped = crop(x, seeded(), 1)
    counts = []
    for window in windows(x[0], 1).values():
        counts.append(sum(torch.equal(after, window) for after in cropped))
    assert sum(counts) == 900
    assert all(abs(count - 100) < 4.5 * (100 * 8 / 9) ** 0.5 for count in counts)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_flip_exchanges_left_and_right_or_does_nothing(dtype):
    x = pictures(n=1000, h=2, w=3, dtype=dtype)
    once = flip(x, seeded())
    flipped = (once == x.flip(3)).flatten(1).all(1)
    assert torch.equal(once[~flipped], x[~flipped])
    assert abs(int(flipped.sum()) - 500) < 4.5 * 250**0.5
    assert torch.equal(flip(once, seeded()), x)  # the same draws undo it


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("side", [1, 2, 3, 8])
def test_cutout_fills_exactly_a_box(dtype, side):
    x = pictures(n=50, h=7, w=9, dtype=dtype)
    fill = torch.tensor([0.0, 2.0, 0.25]).to(dtype)
    holes = cutout(x, seeded(), side, fill.tolist())
    centres = set()
    places = list(product(range(7), range(9)))
    for before, after in zip(x, holes, strict=True):
        possible = {
            place for place in places if torch.equal(after, cut(before, *place, side, fill))
        }
        assert possible
        centres |= possible
    assert len(centres) > 20  # its middle may be any pixel


def cut(picture, row, column, side, fill):
    """Rows and columns from `side // 2` before the middle on, as far as there are any."""
    top = row - side // 2
    left = column - side // 2
    hole = picture.clone()
    hole[:, max(0, top) : top + side, max(0, left) : left + side] = fill[:, None, None]
    return hole


def test_cutout_makes_the_mean_of_bytes_a_byte():
    x = torch.zeros(3, 1, 2, 2, dtype=torch.uint8)
    assert cutout(x, seeded(), 8, (125.6,)).unique().tolist() == [126]


def test_amounts_go_both_ways_and_no_further():
    amounts = uniform(torch.zeros(4000, 1, 1, 1), seeded(), 15)
    assert amounts.abs().max() <= 15 and amounts.min() < -14.9 and amounts.max() > 14.9
    assert abs(float(amounts.mean())) < 4.5 * 15 / 3**0.5 / 4000**0.5


# Together


@pytest.mark.parametrize(
    "text", [FULL, *(each.example for each in OPERATIONS.values() if "image" in each.kinds)]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_and_all_keep_type_shape_and_range_and_follow_the_seed(text, dtype):
    x = pictures(n=20, h=20, w=18, dtype=dtype)
    before = x.clone()
    white = 255 if dtype == torch.uint8 else 1
    augment = augmenter(text, "image", [0.5, 0.4, 0.3], x)
    one = augment(x, seeded(1))
    assert one.dtype == dtype and one.shape == x.shape and one.is_contiguous()
    assert one.min() >= 0 and one.max() <= white * (1 + 1e-5)
    assert torch.equal(x, before), "its input belongs to the client"
    torch.manual_seed(5)
    assert torch.equal(augment(x, seeded(1)), one)
    assert not torch.equal(augment(x, seeded(2)), one)


def test_steps_are_applied_in_the_order_they_are_written():
    x = pictures()
    draw = seeded(3)
    expected = cutout(flip(x, draw), draw, 3, (1.0, 2.0, 3.0))
    assert torch.equal(
        Augmenter(parse("flip+cutout:3"), DataFacts((1.0, 2.0, 3.0)))(x, seeded(3)), expected
    )


def test_none_touches_nothing_and_draws_nothing():
    x = pictures()
    draw = seeded()
    assert augmenter("none", "text", [], x)(x, draw) is x
    assert torch.equal(draw.get_state(), seeded().get_state())


@given(
    st.lists(
        st.sampled_from([operation.example for operation in OPERATIONS.values()]),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_written_is_read(parts):
    names = [name for name, _ in parse("+".join(parts))]
    assert names == [part.split(":")[0] for part in parts]


def test_amounts_are_read():
    assert parse(" crop:4 + flip+randaugment:2:9.5") == (
        ("crop", (4,)),
        ("flip", ()),
        ("randaugment", (2, 9.5)),
    )
    assert parse("none") == ()


# Refusals


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("crp:4", "must be a known name, but got 'crp'; did you mean crop"),
        (
            "flip+cutuot:16",
            r"of `augment` 'flip\+cutuot:16' must be a known name, but got 'cutuot'; "
            "did you mean cut",
        ),
        (
            "flip+none",
            "got 'none'; choose from bandmask, crop, cutout, flip, hiss, hue, randaugment, "
            "rotate, timem",
        ),
        ("nome", "got 'nome'; did you mean none"),
        ("", "must be a known name, but got ''"),
        ("flip+", "must be a known name, but got ''"),
        (
            "crop",
            r"`augment` crop must have pixels \(a whole number above 0\), but got 'crop'; "
            "try crop:4",
        ),
        ("crop:0", "got 'crop:0'"),
        ("crop:1.5", "got 'crop:1.5'"),
        ("crop:nan", "got 'crop:nan'"),
        ("crop:inf", "got 'crop:inf'"),
        ("crop:x", "got 'crop:x'"),
        ("crop:4:4", "got 'crop:4:4'"),
        ("flip:2", "flip must have no amount, but got 'flip:2'; try flip"),
        ("hue:0.7", r"turns \(above 0 to 0.5\)"),
        ("rotate:-5", r"degrees \(above 0 to 180\), but got 'rotate:-5'"),
        (
            "flip+randaugment:2",
            r"operations \(a whole number above 0 to 14\) and magn.* got 'randaugment:2' in 'flip",
        ),
        ("randaugment:2:31", "above 0 to 30"),
    ],
)
def test_what_cannot_be_read_is_refused(text, message):
    with pytest.raises(FedloomError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("text", "kind", "shape", "message"),
    [
        ("flip", "text", (80,), "`augment` must be none for text, but got 'flip'"),
        (
            "cutout:4+flip",
            "speech",
            (1, 40, 51),
            "must be one of cutout, timeshift, .* for speech, but got 'cutout:4",
        ),
        ("hue:0.1", "image", (1, 8, 8), "hue must have images of 3 channels, but they have 1"),
        ("randaugment:2:9", "image", (4, 8, 8), "images of 1 or 3 channels, but they have 4"),
        (
            "crop:9",
            "image",
            (3, 8, 8),
            "crop must not be larger than the images of 8×8, but got 9; try crop:2",
        ),
        ("cutout:60", "speech", (1, 40, 51), "cutout must not be larger than .* 40×51"),
    ],
)
def test_what_does_not_fit_the_data_is_refused(text, kind, shape, message):
    with pytest.raises(FedloomError, match=message):
        check(text, kind, shape)


def test_what_fits():
    check("none", "text", (80,))
    check("cutout:8", "speech", (1, 40, 51))
    check(FULL, "image", (3, 32, 32))
