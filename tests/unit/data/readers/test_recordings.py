import os

import numpy as np
import pytest
from sounds import save, tone, wav

from fedloom.data.readers import recordings
from fedloom.data.readers.features import features
from fedloom.data.readers.recordings import Clip, FeatureSettings, features_of, to_source
from fedloom.data.readers.wav import read_wav
from fedloom.errors import FedloomError

SETTINGS = FeatureSettings(16_000, "mfcc", -1.0, 7.0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def computed(monkeypatch):
    """The clips whose features were computed, and not found in the cache."""
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return features(*arguments)

    monkeypatch.setattr(recordings, "features", counted)
    return calls


def two(tmp_path):
    return [Clip(save(tmp_path / name, hertz=hertz), name[0]) for name, hertz in (("a.wav", 300), ("b.wav", 900))]


def test_a_row_a_clip_mapped_from_the_cache(tmp_path, cache):
    clips = two(tmp_path)
    x = features_of(clips, SETTINGS)
    assert isinstance(x.base, np.memmap) and x.shape == (2, 1, 40, 51) and not x.flags.writeable
    for row, clip in zip(x, clips, strict=True):
        assert np.array_equal(row, features(read_wav(clip.file, 16_000), 16_000))
    assert len(list(cache.glob("speech-*.npy"))) == 1


def test_no_bit_depends_on_a_neighbour(tmp_path):
    clips = two(tmp_path)
    assert np.array_equal(features_of(clips, SETTINGS)[1], features_of(clips[1:], SETTINGS)[0])


def test_computed_once(tmp_path, computed):
    clips = two(tmp_path)
    first = features_of(clips, SETTINGS)
    assert np.array_equal(features_of(clips, SETTINGS), first) and len(computed) == 2


def test_a_changed_file_or_setting_is_computed_anew(tmp_path, computed):
    clips = two(tmp_path)
    old = features_of(clips, SETTINGS).copy()
    times = clips[0].file.stat()
    clips[0].file.write_bytes(wav(tone(2_000)))
    os.utime(clips[0].file, ns=(times.st_atime_ns, times.st_mtime_ns))  # same size, same mtime: as an archive does
    new = features_of(clips, SETTINGS)
    assert len(computed) == 4 and not np.array_equal(new[0], old[0]) and np.array_equal(new[1], old[1])
    assert not np.array_equal(features_of(clips, SETTINGS._replace(kind="logmel")), new)
    assert features_of(clips, SETTINGS._replace(rate=8_000)).shape == new.shape
    assert not np.array_equal(features_of(clips[::-1], SETTINGS), new)
    assert len(computed) == 10


def test_other_files_of_the_same_names_sizes_and_times(tmp_path, computed):
    for folder, hertz in (("one", 300), ("other", 900)):
        file = save(tmp_path / folder / "a.wav", hertz=hertz)
        os.utime(file, ns=(0, 0))
    x = [features_of([Clip(tmp_path / folder / "a.wav", "a")], SETTINGS) for folder in ("one", "other")]
    assert not np.array_equal(*x)


def test_a_second_cut_from_a_long_recording(tmp_path):
    file = save(tmp_path / "noise.wav", wav(np.concatenate([tone(300), tone(900), tone(1_800)])))
    x = features_of([Clip(file, "silence", start=start) for start in (0, 16_000, 32_000)], SETTINGS)
    for row, hertz in zip(x, (300, 900, 1_800), strict=True):
        second = read_wav(save(tmp_path / "second.wav", hertz=hertz), 16_000)
        assert np.array_equal(row, features(second, 16_000))


def test_a_source_of_clips(tmp_path):
    files = [save(tmp_path / f"{name}.wav") for name in "abc"]
    clips = [Clip(files[0], "yes", "eve", 0), Clip(files[1], "no", "ann", 2), Clip(files[2], "yes", "ann", 1)]
    source = to_source("words", clips, ("no", "yes"), SETTINGS, parts=True)
    assert (source.kind, source.labels, source.y.tolist()) == ("speech", ("no", "yes"), [1, 0, 1])
    assert (source.mean, source.std) == ((-1.0,), (7.0,))
    assert (source.groups.tolist(), source.group_names, source.grouping) == ([1, 0, 0], ("ann", "eve"), "speaker")
    assert source.official.tolist() == [0, 2, 1] and source.official.dtype == np.uint8
    bare = to_source("words", [clip._replace(speaker=None) for clip in clips], ("no", "yes"), SETTINGS)
    assert bare.groups is None and bare.group_names == () and bare.official is None


def test_silence_only_in_its_class(tmp_path):
    file = save(tmp_path / "a.wav", wav(np.zeros(16_000)))
    assert features_of([Clip(file, "silence")], SETTINGS).shape == (1, 1, 40, 51)
    with pytest.raises(FedloomError, match=r"a\.wav must be heard"):
        features_of([Clip(file, "yes")], SETTINGS)


def test_a_bad_file_in_the_middle_leaves_no_cache(tmp_path, cache):
    clips = [*two(tmp_path), Clip(save(tmp_path / "c.wav", b"RIFF"), "c")]
    with pytest.raises(FedloomError, match=r"c\.wav must be a whole WAVE file"):
        features_of(clips, SETTINGS)
    assert os.listdir(cache) == []


@pytest.mark.parametrize("trouble", ["missing", "pipe", "folder", "loop"])
def test_what_is_no_file(tmp_path, trouble):
    file = tmp_path / "odd.wav"
    if trouble == "pipe":
        os.mkfifo(file)
    elif trouble == "folder":
        file.mkdir()
    elif trouble == "loop":
        file.symlink_to(file)
    with pytest.raises(FedloomError, match=r"odd\.wav must be a whole WAVE file, but it (is no file|cannot be read)"):
        features_of([Clip(file, "yes")], SETTINGS)


def test_no_clips():
    with pytest.raises(FedloomError, match="at least one clip"):
        features_of([], SETTINGS)
