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


def array(clips, settings):
    return features_of(clips, settings).x


def two(tmp_path):
    return [
        Clip(save(tmp_path / name, hertz=hertz), name[0])
        for name, hertz in (("a.wav", 300), ("b.wav", 900))
    ]


def test_a_row_a_clip_mapped_from_the_cache(tmp_path, cache):
    clips = two(tmp_path)
    x = array(clips, SETTINGS)
    assert isinstance(x.base, np.memmap) and x.shape == (2, 1, 40, 51) and not x.flags.writeable
    for row, clip in zip(x, clips, strict=True):
        assert np.array_equal(row, features(read_wav(clip.file, 16_000), 16_000))
    assert len(list(cache.glob("speech-*.npy"))) == 1


def test_no_bit_depends_on_a_neighbour(tmp_path):
    clips = two(tmp_path)
    assert np.array_equal(array(clips, SETTINGS)[1], array(clips[1:], SETTINGS)[0])


def test_computed_once(tmp_path, computed):
    clips = two(tmp_path)
    first = array(clips, SETTINGS)
    assert np.array_equal(array(clips, SETTINGS), first) and len(computed) == 2


def test_a_changed_file_or_setting_is_computed_anew(tmp_path, computed):
    clips = two(tmp_path)
    old = array(clips, SETTINGS).copy()
    times = clips[0].file.stat()
    clips[0].file.write_bytes(wav(tone(2_000)))
    os.utime(
        clips[0].file, ns=(times.st_atime_ns, times.st_mtime_ns)
    )  # same size, same mtime: as an archive does
    new = array(clips, SETTINGS)
    assert (
        len(computed) == 4 and not np.array_equal(new[0], old[0]) and np.array_equal(new[1], old[1])
    )
    assert not np.array_equal(array(clips, SETTINGS._replace(kind="logmel")), new)
    assert array(clips, SETTINGS._replace(rate=8_000)).shape == new.shape
    assert not np.array_equal(array(clips[::-1], SETTINGS), new)
    assert len(computed) == 10


def test_other_files_of_the_same_names_sizes_and_times(tmp_path, computed):
    for folder, hertz in (("one", 300), ("other", 900)):
        file = save(tmp_path / folder / "a.wav", hertz=hertz)
        os.utime(file, ns=(0, 0))
    x = [array([Clip(tmp_path / folder / "a.wav", "a")], SETTINGS) for folder in ("one", "other")]
    assert not np.array_equal(*x)


def test_a_second_cut_from_a_long_recording(tmp_path):
    file = save(tmp_path / "noise.wav", wav(np.concatenate([tone(300), tone(900), tone(1_800)])))
    x = array([Clip(file, "silence", start=start) for start in (0, 16_000, 32_000)], SETTINGS)
    for row, hertz in zip(x, (300, 900, 1_800), strict=True):
        second = read_wav(save(tmp_path / "second.wav", hertz=hertz), 16_000)
        assert np.array_equal(row, features(second, 16_000))


def test_a_source_of_clips(tmp_path):
    files = [save(tmp_path / f"{name}.wav") for name in "abc"]
    clips = [
        Clip(files[0], "yes", "eve", 0),
        Clip(files[1], "no", "ann", 2),
        Clip(files[2], "yes", "ann", 1),
    ]
    source = to_source("words", clips, ("no", "yes"), SETTINGS, parts=True)
    assert (source.kind, source.labels, source.y.tolist()) == ("speech", ("no", "yes"), [1, 0, 1])
    assert (source.mean, source.std) == ((-1.0,), (7.0,))
    assert (source.groups.tolist(), source.group_names, source.grouping) == (
        [1, 0, 0],
        ("ann", "eve"),
        "speaker",
    )
    assert source.official.tolist() == [0, 2, 1] and source.official.dtype == np.uint8
    bare = to_source(
        "words", [clip._replace(speaker=None) for clip in clips], ("no", "yes"), SETTINGS
    )
    assert bare.groups is None and bare.group_names == () and bare.official is None


def test_silence_only_in_its_class(tmp_path):
    file = save(tmp_path / "a.wav", wav(np.zeros(16_000)))
    assert array([Clip(file, "silence")], SETTINGS).shape == (1, 1, 40, 51)
    with pytest.raises(FedloomError, match=r"a\.wav must not be silent"):
        array([Clip(file, "yes")], SETTINGS)


def test_a_bad_file_in_the_middle_leaves_no_cache(tmp_path, cache):
    clips = [*two(tmp_path), Clip(save(tmp_path / "c.wav", b"RIFF"), "c")]
    with pytest.raises(FedloomError, match=r"c\.wav must be a complete WAVE file"):
        array(clips, SETTINGS)
    assert os.listdir(cache) == []


# Files that cannot be read


@pytest.fixture
def damaged(tmp_path):
    """Five clips of three speakers, three of them bad in three ways."""
    clips = []
    for name, speaker in (
        ("no/1", "ann"),
        ("no/2", "bob"),
        ("yes/1", "ann"),
        ("yes/2", "eve"),
        ("yes/3", "eve"),
    ):
        file = save(tmp_path / f"{name}.wav", hertz=300 + 100 * len(clips))
        clips.append(Clip(file, name.split("/")[0], speaker, part=len(clips) % 3))
    clips[1].file.write_bytes(clips[1].file.read_bytes()[:5_000])
    clips[2].file.write_bytes(wav(np.zeros(16_000)))
    clips[4].file.unlink()
    return clips


def test_all_bad_files_are_told_at_once(damaged):
    with pytest.raises(FedloomError) as caught:
        array(damaged, SETTINGS)
    first, *lines = str(caught.value).splitlines()
    assert first == (
        "every .wav file must be usable, but 3 of 5 are not; "
        "repair or remove them, or leave them out with --skip-bad."
    )
    bad = [str(damaged[place].file) for place in (1, 2, 4)]
    assert sorted(line.split(": ")[0].strip() for line in lines) == bad
    assert any("it is silent" in line for line in lines) and any(
        "cut short" in line for line in lines
    )


def test_one_bad_file_is_told_with_what_to_do(tmp_path):
    file = save(tmp_path / "a.wav", wav(tone(300), channels=2))
    message = (
        r"a\.wav must have one channel, but it has 2 channels; convert it to mono, .*, "
        "or leave it out with --skip"
    )
    with pytest.raises(FedloomError, match=message):
        array([*two(tmp_path / "more"), Clip(file, "c")], SETTINGS)


def test_bad_files_can_be_left_out_and_are_told(damaged, computed):
    def read():
        return to_source("words", damaged, ("no", "yes"), SETTINGS, parts=True, skip_bad=True)

    source = read()
    assert (source.y.tolist(), source.labels) == ([0, 1], ("no", "yes"))
    assert (source.groups.tolist(), source.group_names) == ([0, 2], ("ann", "bob", "eve"))
    assert source.official.tolist() == [0, 0]
    assert sorted(file.file for file in source.skipped) == [
        str(damaged[place].file) for place in (1, 2, 4)
    ]
    assert np.array_equal(source.x, array([damaged[0], damaged[3]], SETTINGS))
    before = len(computed)
    again = read()
    assert (again.digest, sorted(again.skipped)) == (source.digest, sorted(source.skipped))
    assert len(computed) == before
    damaged[1].file.write_bytes(wav(tone(900)))
    assert len(read().y) == 3


def test_bad_files_are_known_again_from_another_folder(damaged, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = [clip._replace(file=clip.file.relative_to(tmp_path)) for clip in damaged]
    first = features_of(relative, SETTINGS, skip_bad=True)
    monkeypatch.chdir("/")
    assert features_of(damaged, SETTINGS, skip_bad=True).skipped == first.skipped


def test_nothing_but_bad_files(damaged):
    with pytest.raises(
        FedloomError, match=r"at least one \.wav file must be usable, but none of 3 is"
    ):
        features_of([damaged[1], damaged[2], damaged[4]], SETTINGS, skip_bad=True)


@pytest.mark.parametrize("trouble", ["missing", "pipe", "folder", "loop"])
def test_what_is_no_file(tmp_path, trouble):
    file = tmp_path / "odd.wav"
    if trouble == "pipe":
        os.mkfifo(file)
    elif trouble == "folder":
        file.mkdir()
    elif trouble == "loop":
        file.symlink_to(file)
    with pytest.raises(
        FedloomError,
        match=r"odd\.wav must be a complete WAVE file, but it (is not a file|cannot be read)",
    ):
        array([Clip(file, "yes")], SETTINGS)


def test_no_clips():
    with pytest.raises(FedloomError, match="at least one clip"):
        array([], SETTINGS)
