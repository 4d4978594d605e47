"""Sounds changed as another recording might differ, by hand."""

import pytest
import torch

from fedloom.data.augmenting.augment import Augmenter, DataFacts, check, parse
from fedloom.data.augmenting.sound import add_noise, mask, shift_time
from fedloom.errors import FedloomError

FILL = torch.tensor(-9.0)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def sounds(count=50, bands=3, frames=6):
    return torch.arange(count * bands * frames).float().view(count, 1, bands, frames)


def test_shifted_sounds_keep_their_bands_together():
    x = sounds()
    moved = shift_time(x, seeded(), 2, FILL)
    offsets = set()
    for before, after in zip(x, moved, strict=True):
        later = next(step for step in range(-2, 3) if torch.equal(after, by_hand(before, step)))
        offsets.add(later)
    assert offsets == {-2, -1, 0, 1, 2}


def by_hand(sound, later):
    frames = sound.shape[2]
    moved = torch.full_like(sound, float(FILL))
    for frame in range(frames):
        if 0 <= frame - later < frames:
            moved[:, :, frame] = sound[:, :, frame - later]
    return moved


@pytest.mark.parametrize(("axis", "length"), [(2, 3), (3, 6)])
def test_a_mask_hides_one_strip(axis, length):
    x = sounds() + 1
    hidden = mask(x, seeded(), 2, axis, FILL) == FILL
    other = 5 - axis
    assert torch.equal(hidden.any(other), hidden.all(other))  # whole bands, or whole frames
    strips = hidden.all(other).view(len(x), length)
    widths = set()
    for strip in strips:
        places = strip.nonzero().flatten()
        widths.add(len(places))
        if len(places):
            assert places[-1] - places[0] + 1 == len(places)
    assert widths == {0, 1, 2}
    assert strips.any(0).all()  # it may lie anywhere


def test_a_mask_as_wide_as_the_sound_hides_all_or_less():
    x = sounds(frames=4)
    assert (mask(x, seeded(), 4, 3, FILL) == FILL).flatten(1).all(1).any()


def test_noise_follows_each_sound_s_own_spread():
    torch.manual_seed(0)
    x = torch.randn(200, 1, 8, 8) * torch.tensor([1.0, 10.0]).repeat(100).view(-1, 1, 1, 1)
    noise = add_noise(x, seeded(), 0.2) - x
    ratio = noise.flatten(1).std(1) / x.flatten(1).std(1)
    assert ratio.mean().item() == pytest.approx(0.2, rel=0.02)


def test_by_name_with_the_data_set_s_mean():
    x = sounds() + 1
    change = Augmenter(parse("timeshift:2+timemask:2+bandmask:1+hiss:0.1"), DataFacts((-9.0,)))
    changed = change(x, seeded())
    assert changed.shape == x.shape
    assert torch.equal(changed, change(x, seeded()))
    assert not torch.equal(changed, change(x, seeded(1)))
    masked = Augmenter(parse("timemask:3"), DataFacts((-9.0,)))(x, seeded())
    assert set((masked[masked != x]).tolist()) == {-9.0}


def test_images_have_no_frames():
    with pytest.raises(
        FedloomError, match=r"must be one of crop, flip, .* for image, but got 'timemask:4'"
    ):
        check("timemask:4", "image", (1, 28, 28))
    check("timemask:4", "speech", (1, 40, 51))
    with pytest.raises(FedloomError, match="timeshift must not be larger than"):
        check("timeshift:60", "speech", (1, 40, 51))
