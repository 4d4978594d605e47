"""RandAugment's operations against Pillow's of the same name, and its draws."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from fedloom.data.augmenting import colour
from fedloom.data.augmenting.geometry import rotate, shear, translate
from fedloom.data.augmenting.randaugment import OPERATIONS, randaugment, white_of
from fedloom.errors import FedloomError

SIGNS = torch.tensor([1.0, -1.0])


def bumpy(n=2, c=3, h=32, w=28, seed=0):
    """Smooth pictures with a limited range, so that no operation is without effect."""
    coarse = torch.rand(n, c, 5, 4, generator=torch.Generator().manual_seed(seed))
    fine = torch.nn.functional.interpolate(coarse, (h, w), mode="bilinear")
    return (40 + 180 * fine).round().to(torch.uint8)


def pillow(picture):
    array = picture.permute(1, 2, 0).numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def tensor(image):
    array = np.asarray(image)
    return torch.tensor(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())


def compare(ours, theirs, x, tolerance):
    """The two on every picture; how many values differ by more than `tolerance`."""
    mine = ours(x.float()).round().to(torch.uint8)
    expected = torch.stack([tensor(theirs(pillow(picture))) for picture in x])
    assert not torch.equal(expected, x)
    return int(((mine.int() - expected.int()).abs() > tolerance).sum())


def posterized(bits):
    return lambda x: colour.posterize(x, bits), lambda image: ImageOps.posterize(image, bits)


def solarized(at):
    return lambda x: colour.solarize(x, at), lambda image: ImageOps.solarize(image, at)


def enhanced(ours, theirs, factor):
    return lambda x: ours(x, factor), lambda image: theirs(image).enhance(factor)


ENHANCED = [
    (colour.colour, ImageEnhance.Color),
    (colour.contrast, ImageEnhance.Contrast),
    (colour.brightness, ImageEnhance.Brightness),
    (colour.sharpness, ImageEnhance.Sharpness),
]
EXACT = {
    "equalize": (colour.equalize, ImageOps.equalize),
    **{f"posterize {bits}": posterized(bits) for bits in (1, 4, 7)},
    **{f"solarize {at}": solarized(at) for at in (0, 128, 178.5)},
}
CUT_OFF = {"autocontrast": (colour.autocontrast, ImageOps.autocontrast)}
for ours, theirs in ENHANCED:
    for factor in (0.0, 0.73, 1.27, 1.9):
        CUT_OFF[f"{ours.__name__} {factor}"] = enhanced(ours, theirs, factor)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", EXACT)
def test_as_pillow_does_it(name, channels):
    assert compare(*EXACT[name], bumpy(c=channels), 0) == 0


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", CUT_OFF)
def test_as_pillow_does_it_but_rounded(name, channels):
    """Pillow cuts fractions off, and colours of grey are nothing to it."""
    if channels == 1 and name.startswith("colour"):
        x = bumpy(c=1).float()
        assert torch.equal(colour.colour(x, 0.5), x)
    else:
        assert compare(*CUT_OFF[name], bumpy(c=channels), 1) == 0


@pytest.mark.parametrize("degrees", [30.0, -9.0, 77.0])
def test_a_rotation_as_pillow_does_it(degrees):
    """Away from the edge, where Pillow makes its own choice of what to mix in."""
    x = bumpy(h=31, w=31)
    rows = torch.arange(31) - 15
    inside = rows[:, None] ** 2 + rows**2 < 13**2
    expected = torch.stack(
        [tensor(pillow(one).rotate(degrees, Image.Resampling.BILINEAR)) for one in x]
    )
    difference = (rotate(x, degrees).int() - expected.int()).abs()[..., inside]
    assert difference.max() <= 1


def test_flat_and_tiny_channels_stay():
    """Nothing can be stretched or spread; 64 pixels are fewer than the 255 steps."""
    flat = torch.full((1, 1, 20, 20), 77.0)
    tiny = bumpy(h=8, w=8).float()
    assert torch.equal(colour.autocontrast(flat), flat) and torch.equal(colour.equalize(flat), flat)
    assert torch.equal(colour.equalize(tiny), tiny)
    assert torch.equal(colour.sharpness(tiny[..., :2, :], 0.0), tiny[..., :2, :])


def test_shear_and_translation_by_hand():
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]).view(1, 1, 3, 3)
    assert translate(x, across=1)[0, 0].tolist() == [[0, 1, 2], [0, 4, 5], [0, 7, 8]]
    assert translate(x, down=-1)[0, 0].tolist() == [[4, 5, 6], [7, 8, 9], [0, 0, 0]]
    assert translate(x, across=0.5)[0, 0].tolist() == [
        [0.5, 1.5, 2.5],
        [2, 4.5, 5.5],
        [3.5, 7.5, 8.5],
    ]
    assert shear(x, across=1.0)[0, 0].tolist() == [[0, 1, 2], [4, 5, 6], [8, 9, 0]]
    assert shear(x, down=1.0)[0, 0].tolist() == [[0, 2, 6], [1, 5, 9], [4, 8, 0]]


def expected():
    """What each operation does to the two pictures at magnitude 9 of 30, one sign each."""
    x = bumpy().float()
    turn = 0.3 * SIGNS
    return {
        "identity": x,
        "rotate": rotate(x, 9 * SIGNS),
        "solarize": colour.solarize(x, 178.5),
        "colour": colour.colour(x, 1 + 0.9 * turn),
        "posterize": colour.posterize(x, 7),
        "brightness": colour.brightness(x, torch.tensor([1.27, 0.73])),
        "shear-x": shear(x, across=0.09 * SIGNS),
        "translate-x": translate(x, across=150 / 331 * 28 * 0.3 * SIGNS),
        "translate-y": translate(x, down=150 / 331 * 32 * 0.3 * SIGNS),
    }


@pytest.mark.parametrize("name", expected())
def test_magnitude_nine(name):
    assert torch.allclose(
        OPERATIONS[name](bumpy().float(), 0.3 * SIGNS), expected()[name], atol=1e-3
    )


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_operation_keeps_to_the_bytes(name, channels):
    x = bumpy(c=channels).float()
    for strength in (0.3, 1.0):
        changed = OPERATIONS[name](x.clone(), strength * SIGNS)
        assert changed.shape == x.shape and changed.min() >= 0 and changed.max() <= 255.001
    assert torch.equal(changed, x) == (name == "identity" or (name == "colour" and channels == 1))


@pytest.mark.parametrize("white", [1, 16, 255])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_images_stay_on_their_scale(white, dtype):
    x = (bumpy(n=64).float() / 220 * white).to(dtype)
    changed = randaugment(x, torch.Generator().manual_seed(1), 2, 9, white)
    assert changed.dtype == dtype and changed.shape == x.shape
    assert (
        changed.min() >= 0 and changed.max() <= white * (1 + 1e-5) and changed.max() > 0.8 * white
    )


def test_the_draws_come_from_the_generator_alone():
    x = bumpy(n=40)
    draw = torch.Generator()
    torch.manual_seed(0)
    one = randaugment(x, draw.manual_seed(3), 2, 9)
    torch.manual_seed(1)
    assert torch.equal(one, randaugment(x, draw.manual_seed(3), 2, 9))
    assert not torch.equal(one, randaugment(x, draw.manual_seed(4), 2, 9))


def test_every_operation_comes_up_about_as_often():
    """Of 1,400 images once each; 4.5 standard deviations."""
    seen = dict.fromkeys(OPERATIONS, 0)

    def counting(name):
        def count(x, amount):
            seen[name] += len(x)
            assert amount.abs().tolist() == pytest.approx([0.3] * len(x))
            return x

        return count

    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATIONS:
            patch.setitem(OPERATIONS, name, counting(name))
        x = torch.zeros(1400, 1, 1, 1, dtype=torch.uint8)
        assert torch.equal(randaugment(x, torch.Generator().manual_seed(0), 1, 9), x)
    assert sum(seen.values()) == 1400 and all(
        abs(count - 100) < 4.5 * (100 * 13 / 14) ** 0.5 for count in seen.values()
    )


def test_a_picture_is_changed_whatever_its_neighbours_are():
    """Per-sample operations look at their own sample alone."""
    x = bumpy(n=3).float()
    amount = torch.tensor([0.3, -0.3, 0.3])
    for operation in OPERATIONS.values():
        alone = torch.cat([operation(x[k : k + 1], amount[k : k + 1]) for k in range(3)])
        assert torch.allclose(operation(x, amount), alone, atol=1e-3)


@pytest.mark.parametrize(
    ("values", "white"),
    [
        ([0, 16], 16),
        ([0, 14], 16),
        ([0, 17], 255),
        ([0, 255], 255),
        ([0.0, 0.9], 1),
        ([0.0, 254.5], 255),
        ([], 1),
    ],
)
def test_the_scale_of_images(values, white):
    assert white_of(torch.tensor(values)) == white


@pytest.mark.parametrize("values", [[-0.1, 0.5], [0.0, 256.0]])
def test_normalised_images_have_no_white(values):
    with pytest.raises(
        FedloomError, match="randaugment must have pixels from 0 to 1, 16 or 255, but they run from"
    ):
        white_of(torch.tensor(values))
