import numpy as np
import pytest
import scipy.fft
import scipy.signal
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sounds import tone

from fedloom.data.readers.features import BANDS, FLOOR, FRAMES, dct, features, mel, mel_bank
from fedloom.errors import FedloomError
from fedloom.rng import rng
from fedloom.threads import one_thread

RATES = [8_000, 16_000]


def reference(sound, rate, kind):
    """The same with scipy: its short-time transform, filters by interpolation, and its DCT."""
    hop = rate // 50
    padded = np.zeros(rate + 2 * hop)
    padded[hop : hop + min(len(sound), rate)] = sound[:rate]
    window = scipy.signal.get_window("hann", 2 * hop)
    _, _, spectrum = scipy.signal.stft(
        padded, rate, window, 2 * hop, hop, boundary=None, padded=False, detrend=False
    )
    power = np.abs(spectrum * window.sum()) ** 2  # scipy scales by the window's sum
    corners = 700 * (10 ** (np.linspace(mel(20), mel(rate / 2), BANDS + 2) / 2595) - 1)
    hertz = np.arange(hop + 1) * rate / (2 * hop)
    bank = [np.interp(hertz, corners[band : band + 3], [0, 1, 0]) for band in range(BANDS)]
    bands = np.log(np.array(bank) @ power + FLOOR)
    return bands if kind == "logmel" else scipy.fft.dct(bands, axis=0, norm="ortho")


@pytest.mark.parametrize("kind", ["mfcc", "logmel"])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("seconds", [0.3, 1.0, 1.7])
def test_equal_to_scipy(rate, kind, seconds):
    sound = 0.1 * rng(0, "sound").standard_normal(int(rate * seconds))
    computed = features(sound, rate, kind)
    assert computed.shape == (1, 40, 51) and computed.dtype == np.float32
    np.testing.assert_allclose(computed[0], reference(sound, rate, kind), rtol=2e-6, atol=2e-6)


def test_shape_as_promised():
    assert (BANDS, FRAMES) == (40, 51)


@pytest.mark.parametrize("rate", RATES)
def test_the_filter_bank(rate):
    bank = mel_bank(rate).numpy()  # [bins, bands]
    assert bank.min() == 0 and 0 < bank.max() <= 1
    assert (bank.max(axis=0) > 0.3).all()  # no band is deaf
    assert (np.diff(bank.argmax(axis=0)) >= 1).all()  # each hears higher than the one before
    assert ((bank > 0).sum(axis=1) <= 2).all()  # a frequency is in two neighbours at most,
    hertz = np.arange(len(bank)) * rate / 2 / (len(bank) - 1)
    corners = 700 * (10 ** (np.linspace(mel(20), mel(rate / 2), BANDS + 2) / 2595) - 1)
    between = (hertz >= corners[1]) & (hertz <= corners[-2])
    np.testing.assert_allclose(bank.sum(axis=1)[between], 1)  # whose shares of it make one


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("hertz", [100, 440, 1_000, 3_300])
def test_a_tone_is_loudest_in_the_band_of_its_frequency(rate, hertz):
    centres = 700 * (10 ** (np.linspace(mel(20), mel(rate / 2), BANDS + 2)[1:-1] / 2595) - 1)
    nearest = np.abs(np.array([mel(centre) for centre in centres]) - mel(hertz)).argmin()
    bands = features(tone(hertz, rate), rate, "logmel")[0]
    assert (bands[:, 1:-1].argmax(axis=0) == nearest).all()  # frames at the ends are half empty


def test_a_click_is_seen_in_the_frames_around_it():
    sound = np.zeros(16_000)
    sound[320 * 20] = 1.0  # at 0.4 s, the middle of frame 20; windows reach 20 ms to either side
    loud = features(sound, 16_000, "logmel")[0].mean(axis=0) > np.log(FLOOR) + 1
    assert np.flatnonzero(loud).tolist() == [20]
    sound[320 * 20 + 160] = 1.0  # halfway to the next
    loud = features(sound, 16_000, "logmel")[0].mean(axis=0) > np.log(FLOOR) + 1
    assert np.flatnonzero(loud).tolist() == [20, 21]


def test_no_sound_is_the_floor():
    assert np.allclose(features(np.zeros(10), 16_000, "logmel"), np.log(FLOOR))
    silent = features(np.zeros(10), 16_000)[0]
    assert np.allclose(silent[0], np.log(FLOOR) * np.sqrt(40)) and np.allclose(
        silent[1:], 0, atol=1e-5
    )


def test_what_comes_after_the_first_second_is_cut_off():
    long = np.concatenate([tone(500), tone(2_000)])
    assert np.array_equal(features(long, 16_000), features(tone(500), 16_000))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20_000), st.floats(0.001, 1))
def test_filling_up_is_adding_zeros(length, loud):
    sound = loud * rng(1, length).standard_normal(length)
    filled = np.concatenate([sound, np.zeros(20_000)])
    assert np.array_equal(features(sound, 16_000), features(filled[: max(length, 16_000)], 16_000))


def test_twice_as_loud_is_a_constant_more():
    bands = [
        features(tone(500, loud=loud), 16_000, "logmel")[0].max(axis=0)[5:-5] for loud in (0.2, 0.4)
    ]
    np.testing.assert_allclose(bands[1] - bands[0], np.log(4), rtol=1e-4)


def test_the_dct_keeps_lengths():
    np.testing.assert_allclose((dct().T @ dct()).numpy(), np.eye(40), atol=1e-12)


def test_one_thread_and_then_as_before():
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)  # as every test expects it


def test_an_unknown_kind():
    with pytest.raises(FedloomError, match="did you mean mfcc"):
        features(tone(500), 16_000, "mfc")
