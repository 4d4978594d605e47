import os
import pickle
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.signal import resample_poly
from sounds import FLOAT, PCM, chunk, fmt, riff, save, tone, wav

from fedloom.data.readers.wav import LOUDEST, read_wav
from fedloom.errors import FedloomError

VALUES = np.array([0.0, 0.5, -0.5, -1.0, 0.25, 0.0078125])  # exact in every form


def refusal(file: Path, content: bytes | None = None, **options) -> str:
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(FedloomError) as caught:
        read_wav(file, 16_000, **options)
    text = str(caught.value)
    assert text.startswith(str(file)) and "\n" not in text
    return text


# What comes out


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize(("tag", "bits"), [(PCM, 8), (PCM, 16), (PCM, 24), (PCM, 32), (FLOAT, 32)])
def test_every_form_gives_the_same_numbers(tmp_path, tag, bits, extensible):
    file = save(tmp_path / "a.wav", wav(VALUES, tag, bits, extensible=extensible))
    sound = read_wav(file, 16_000)
    assert sound.dtype == np.float32 and sound.tolist() == VALUES.tolist()


@pytest.mark.parametrize(("bits", "step"), [(8, 2**-7), (16, 2**-15), (24, 2**-23)])
def test_the_smallest_step_of_each_width(tmp_path, bits, step):
    file = save(tmp_path / "a.wav", wav(np.array([step, -step, -1.0, 1 - step]), PCM, bits))
    assert read_wav(file, 16_000).tolist() == [step, -step, -1.0, 1 - step]


def test_what_the_standard_library_writes(tmp_path):
    values = (tone(300) * 32767).astype("<i2")
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(values.tobytes())
    assert (read_wav(tmp_path / "a.wav", 16_000) * 32768).tolist() == values.tolist()


def test_other_chunks_and_a_wrong_riff_size_do_not_matter(tmp_path):
    data = chunk(b"data", struct.pack("<2h", 1, 2))
    content = riff(
        chunk(b"LIST", b"odd"),
        chunk(b"fmt ", fmt()),
        chunk(b"fact", b"1234"),
        data,
        chunk(b"id3 ", b"x"),
        claimed=7,
    )
    assert (read_wav(save(tmp_path / "a.wav", content), 16_000) * 32768).tolist() == [1, 2]


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 44_101])
def test_another_rate_is_resampled_by_the_ratio_of_both(tmp_path, rate):
    file = save(tmp_path / "a.wav", wav(tone(1_000, rate), FLOAT, 32, rate))
    sound = read_wav(file, 16_000)
    assert len(sound) == 16_000
    assert np.abs(np.fft.rfft(sound)).argmax() == 1_000
    shared = np.gcd(rate, 16_000)
    expected = resample_poly(
        tone(1_000, rate).astype(np.float32).astype(float), 16_000 // shared, rate // shared
    )
    assert np.allclose(sound, expected, atol=1e-6)


def test_silence_is_taken_where_it_may_be(tmp_path):
    file = save(tmp_path / "a.wav", wav(np.zeros(100)))
    assert read_wav(file, 16_000, silent=True).tolist() == [0] * 100
    assert "100 samples are 0: it is silent;" in refusal(file)


# What is refused


@pytest.mark.parametrize("channels", [2, 6])
def test_several_channels(tmp_path, channels):
    content = wav(np.tile(VALUES, channels), channels=channels)
    assert f"must have one channel, but it has {channels} channels; convert it" in refusal(
        tmp_path / "a.wav", content
    )


@pytest.mark.parametrize("rate", [0, 1, 3_999, 192_001, 2**32 - 1])
def test_a_rate_that_no_recording_has(tmp_path, rate):
    content = riff(
        chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, rate, 0, 2, 16)), chunk(b"data", b"1234")
    )
    assert (
        f"must have 4000 to 192000 samples per second, but it has {rate} samples per second;"
        in refusal(tmp_path / "a.wav", content)
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"RIFF", "does not begin as one"),
        (b"ID3\x03" + b"\0" * 100, "does not begin as one"),
        (riff(), "no sound"),
        (riff(chunk(b"fmt ", fmt())), "no sound"),
        (riff(chunk(b"data", b"1234")), "before its format"),
        (riff(chunk(b"fmt ", fmt()[:10]), chunk(b"data", b"1234")), "format is cut short"),
        (riff(chunk(b"fmt ", fmt()), chunk(b"data", b"")), "0 bytes of sound"),
        (riff(chunk(b"fmt ", fmt()), chunk(b"data", b"123")), "not whole samples of 2 bytes"),
        (
            riff(chunk(b"fmt ", fmt()), chunk(b"data", b"1234", 2**32 - 1)),
            "claims 4294967295 bytes of sound and has 4",
        ),
        (riff(chunk(b"LIST", b"ab", 2**32 - 1), chunk(b"data", b"1234")), "no sound"),
        (riff(chunk(b"fmt ", fmt(channels=0)), chunk(b"data", b"1234")), "claims 0 channels"),
        (
            riff(chunk(b"fmt ", fmt()[:12] + struct.pack("<HH", 7, 16)), chunk(b"data", b"1234")),
            "frames of 7",
        ),
        (riff(chunk(b"fmt ", fmt(7, 8)), chunk(b"data", b"1234")), "8-bit µ-law"),
        (riff(chunk(b"fmt ", fmt(85, 16)), chunk(b"data", b"1234")), "MP3"),
        (riff(chunk(b"fmt ", fmt(PCM, 12)), chunk(b"data", b"1234")), "12-bit PCM"),
        (riff(chunk(b"fmt ", fmt(FLOAT, 64)), chunk(b"data", b"12345678")), "64-bit float"),
        (
            riff(chunk(b"fmt ", fmt(extensible=True)[:30]), chunk(b"data", b"1234")),
            "16-bit of format 65534",
        ),
        (riff(*[chunk(b"\0\0\0\0", b"")] * 2_000), "no sound"),
    ],
)
def test_a_damaged_file(tmp_path, content, words):
    text = refusal(tmp_path / "a.wav", content)
    assert words in text


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2 * LOUDEST, 32_767.0])
def test_floats_of_another_scale(tmp_path, value):
    content = wav(np.array([0.1, value]), FLOAT, 32)
    assert "full scale of −1 to 1" in refusal(tmp_path / "a.wav", content)


def test_a_clip_far_too_long_is_refused_without_reading_it(tmp_path):
    file = tmp_path / "long.wav"
    size = 3 * 2**30
    head = riff(chunk(b"fmt ", fmt()), chunk(b"data", b"", size))
    file.write_bytes(head)
    os.truncate(file, len(head) + size)  # three gigabytes, all of them a hole
    assert "must last at most 30 s, but it lasts 100663.3 s; cut it" in refusal(file)


def test_what_cannot_be_opened(tmp_path):
    assert "No such file" in refusal(tmp_path / "none.wav")
    (tmp_path / "folder.wav").mkdir()
    assert "Is a directory" in refusal(tmp_path / "folder.wav")
    (tmp_path / "loop.wav").symlink_to(tmp_path / "loop.wav")
    assert "symbolic links" in refusal(tmp_path / "loop.wav")


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_of_that_name_runs_nothing(tmp_path):
    sprung = tmp_path / "sprung"
    trap = pickle.dumps(Trap(str(sprung)))
    assert "does not begin as one" in refusal(tmp_path / "a.wav", trap)
    refusal(tmp_path / "a.wav", riff(chunk(b"fmt ", trap), chunk(b"data", trap)))
    assert not sprung.exists()
    pickle.loads(trap)  # noqa: S301 - the trap itself works
    assert sprung.exists()


WHOLE = wav(tone(440, seconds=0.01), extensible=True)


@pytest.mark.parametrize("length", [*range(90), len(WHOLE) - 1])
def test_cut_short_anywhere(tmp_path, length):
    refusal(tmp_path / "a.wav", WHOLE[:length])


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 75), st.integers(0, 255), st.integers(0, 75), st.integers(0, 255))
def test_a_damaged_header_gives_sound_or_one_sentence(tmp_path, at, byte, second, other):
    content = bytearray(WHOLE)
    content[at] = byte
    content[second] = other
    file = save(tmp_path / "a.wav", bytes(content))
    try:
        sound = read_wav(file, 16_000)
    except FedloomError:
        refusal(file)  # in a sentence that names it
    else:
        assert (
            sound.dtype == np.float32
            and sound.ndim == 1
            and len(sound)
            and np.isfinite(sound).all()
        )
