import os
import pickle
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from sounds import save, tone, wav

from fedloom.data.image_rules import ImageRules
from fedloom.data.readers.speech import from_table, holds_wav, read_tree
from fedloom.data.sources import SOURCES, open_source
from fedloom.errors import FedloomError

REAL = Path(__file__).parents[5] / "shared/data/speech/speech_commands_v0.01_sample300.tar.xz"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))


def grow(folder: Path) -> Path:
    """Two words by two speakers, one in each list."""
    for hertz, word in ((300, "yes"), (900, "no")):
        for who in ("0a7c", "ff00"):
            save(folder / word / f"{who}_nohash_0.wav", hertz=hertz)
    (folder / "validation_list.txt").write_text("no/0a7c_nohash_0.wav\n")
    (folder / "testing_list.txt").write_text("yes/ff00_nohash_0.wav\n")
    save(folder / "_background_noise_/hum.wav", wav(tone(50, seconds=12)))
    return folder


def refusal(name: str | Path, directory: Path | None = None) -> str:
    with pytest.raises(FedloomError) as caught:
        open_source(str(name), directory)
    text = str(caught.value)
    assert "\n" not in text
    return text


# What comes out


@pytest.mark.parametrize("below", ["", "speech_commands_v0.02", "speech-commands"])
def test_speech_commands_by_name(tmp_path, below):
    grow(tmp_path / below)
    source = open_source("speech-commands", tmp_path)
    assert (source.name, source.kind, source.labels) == ("speech-commands", "speech", ("no", "yes"))
    assert source.x.shape == (4, 1, 40, 51) and source.x.dtype == np.float32
    assert source.y.tolist() == [0, 0, 1, 1] and source.official.tolist() == [1, 0, 0, 2]
    assert (source.groups.tolist(), source.group_names) == ([0, 1, 0, 1], ("0a7c", "ff00"))
    assert source.grouping == "speaker"


@pytest.mark.parametrize("name", ["speech-commands", "words", "words.csv"])
def test_bad_files_are_left_out_however_the_data_is_named(tmp_path, name):
    folder = grow(tmp_path / "words")
    lines = [
        f"{file.relative_to(tmp_path)},{file.parent.name}"
        for file in sorted(folder.glob("*/*_nohash_*.wav"))
    ]
    (tmp_path / "words.csv").write_text("\n".join(["file,label", *lines]))
    (folder / "no/ff00_nohash_0.wav").write_bytes(b"")
    directory = folder if name == "speech-commands" else tmp_path
    assert "ff00_nohash_0.wav must be a complete WAVE file, but it is empty" in refusal(
        name, directory
    )
    source = open_source(name, directory, images=ImageRules(skip_bad=True))
    assert source.y.tolist() == [0, 1, 1]
    assert [file.reason for file in source.skipped] == ["it is empty"]


def test_the_features_are_chosen_by_the_name(tmp_path):
    grow(tmp_path)
    mfcc, logmel = (
        open_source(name, tmp_path) for name in ("speech-commands", "speech-commands:logmel")
    )
    assert (
        mfcc.x.shape == logmel.x.shape and mfcc.digest != logmel.digest and mfcc.mean != logmel.mean
    )
    assert np.allclose(
        mfcc.x[:, 0, 0] ** 2, logmel.x[:, 0].sum(axis=1) ** 2 / 40, rtol=1e-4
    )  # the first coefficient
    assert np.array_equal(read_tree(tmp_path, "logmel").x, logmel.x)


def test_the_same_folder_by_its_path(tmp_path):
    by_name = open_source("speech-commands", grow(tmp_path))
    by_path = open_source(str(tmp_path))
    assert by_path.name == tmp_path.name and by_path.digest == by_name.digest


def test_any_folder_of_class_folders(tmp_path):
    for word, names in (("cat", ("1.wav", "2.WAV")), ("dog", ("1.wav",))):
        for name in names:
            save(tmp_path / word / name)
    (tmp_path / "dog/.hidden").write_text("")
    (tmp_path / "README").write_text("")
    source = open_source(str(tmp_path))
    assert (source.labels, source.y.tolist(), source.groups, source.official) == (
        ("cat", "dog"),
        [0, 0, 1],
        None,
        None,
    )


def test_silence_may_be_a_class(tmp_path):
    save(tmp_path / "silence/a.wav", wav(np.zeros(16_000)))
    save(tmp_path / "yes/a.wav")
    assert open_source(str(tmp_path)).labels == ("silence", "yes")
    save(tmp_path / "yes/b.wav", wav(np.zeros(16_000)))
    assert f"{tmp_path / 'yes/b.wav'} must not be silent" in refusal(tmp_path)


def test_another_rate_is_resampled(tmp_path):
    for rate in (16_000, 44_100):
        save(tmp_path / f"{rate}/a.wav", wav(tone(1_000, rate), rate=rate))
    low, high = read_tree(tmp_path, "logmel").x[:, 0, :, 5:-5]
    assert (low.argmax(axis=0) == high.argmax(axis=0)).all() and np.abs(
        low.max(axis=0) - high.max(axis=0)
    ).max() < 0.05


class Line(NamedTuple):
    file: Path
    label: str
    client: str | None = None


def test_a_table(tmp_path):
    files = [
        save(tmp_path / f"{name}.wav", hertz=hertz)
        for name, hertz in (("a", 300), ("b", 900), ("c", 500))
    ]
    rows = [
        Line(files[0], "yes", "north"),
        Line(files[1], "no", "south"),
        Line(files[2], "yes", "north"),
    ]
    source = from_table(rows, "mine")
    assert (source.name, source.kind, source.labels, source.y.tolist()) == (
        "mine",
        "speech",
        ("no", "yes"),
        [1, 0, 1],
    )
    assert (source.groups.tolist(), source.group_names, source.grouping) == (
        [0, 1, 0],
        ("north", "south"),
        "client",
    )
    assert from_table([Line(*row[:2]) for row in rows]).groups is None
    assert from_table(rows, kind="logmel").mean != source.mean
    with pytest.raises(FedloomError, match=r"must name its client, or none, but .*b\.wav has none"):
        from_table([rows[0], Line(*rows[1][:2])])
    with pytest.raises(FedloomError, match="kind of features must be a known name"):
        from_table(rows, kind="mel")


def test_a_csv(tmp_path):
    for name, hertz in (("a", 300), ("b", 900)):
        save(tmp_path / f"sounds/{name}.wav", hertz=hertz)
    (tmp_path / "words.csv").write_text(
        "file,label,client\nsounds/a.wav,yes,north\nsounds/b.wav,no,south\n"
    )
    source = open_source(str(tmp_path / "words.csv"))
    assert (source.name, source.kind, source.labels, source.y.tolist()) == (
        "words",
        "speech",
        ("no", "yes"),
        [1, 0],
    )
    assert (source.group_names, source.grouping) == (("north", "south"), "client")


def test_registered_with_what_they_are():
    for name in ("fsdd", "speech-commands", "speech-commands-12"):
        assert (
            "MFCC" in SOURCES.get(name).__doc__
            and "log-mel" in SOURCES.get(f"{name}:logmel").__doc__
        )


# What is refused


def test_where_it_is_not(tmp_path):
    text = refusal("speech-commands", tmp_path)
    assert (
        f"must have validation_list.txt and testing_list.txt in {tmp_path}" in text
        and "--data-dir" in text
    )


def test_an_empty_class_folder(tmp_path):
    (grow(tmp_path) / "bed").mkdir()
    assert refusal(tmp_path).startswith(
        f"{tmp_path / 'bed'} must hold .wav files, but it is empty;"
    )


def test_one_class(tmp_path):
    save(tmp_path / "yes/a.wav")
    assert "at least 2 classes, but it has 1" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["a.mp3", "notes.txt", "more/a.wav"])
def test_something_else_in_a_class_folder(tmp_path, name):
    save(grow(tmp_path) / "yes" / name)
    assert (
        f"{tmp_path / 'yes'} must hold .wav files and nothing else, "
        f"but it has {name.split('/')[0]};" in refusal("speech-commands", tmp_path)
    )


def test_a_loop_of_links(tmp_path):
    (grow(tmp_path) / "bed").symlink_to(tmp_path)
    assert f"{tmp_path / 'bed'} must hold .wav files and nothing else" in refusal(tmp_path)


def test_missing_files_that_a_list_names_are_said(tmp_path, caplog):
    grow(tmp_path)
    with (tmp_path / "testing_list.txt").open("a") as file:
        file.write("yes/gone_nohash_1.wav\n../../secret.wav\n/etc/passwd\n")
    assert open_source("speech-commands", tmp_path).official.tolist() == [1, 0, 0, 2]
    (record,) = caplog.records
    text = (
        "3 of the 4 files that testing_list.txt names are missing, first 'yes/gone_nohash_1.wav';"
    )
    assert str(tmp_path) in record.getMessage() and text in record.getMessage()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "it is empty"),
        ("yes/gone.wav\n", "it names 'yes/gone.wav', which is not there, and no other"),
        ("no/0a7c_nohash_0.wav\n", "no/0a7c_nohash_0.wav is in both"),
        ("\0\xff", "which is not there"),
    ],
)
def test_a_wrong_list(tmp_path, content, words):
    (grow(tmp_path) / "testing_list.txt").write_text(content, encoding="latin-1")
    text = refusal("speech-commands", tmp_path)
    assert text.startswith(str(tmp_path / "testing_list.txt")) and words in text


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_bad_clip_is_named_and_nothing_in_it_runs(tmp_path):
    bad = grow(tmp_path) / "yes/ab_nohash_0.wav"
    good = wav(tone(300))
    sprung = tmp_path / "sprung"
    for content, words in (
        (pickle.dumps(Trap(str(sprung))), "does not begin as one"),
        (good[:-100], "it was cut short"),
        (b"", "it is empty"),
        (wav(np.zeros(16_000)), "must not be silent"),
        (wav(tone(300), channels=2), "must have one channel, but it has 2"),
        (wav(tone(300, seconds=31)), "must last at most 30 s, but it lasts 31.0 s"),
        (wav(tone(300), rate=300), "must have 4000 to 192000 samples per second, but it has 300"),
    ):
        bad.write_bytes(content)
        text = refusal("speech-commands", tmp_path)
        assert text.startswith(str(bad)) and words in text
    assert not sprung.exists()


def test_which_folders_are_speech(tmp_path):
    assert not holds_wav(tmp_path)
    (tmp_path / "a").mkdir()
    assert not holds_wav(tmp_path)
    save(tmp_path / "b/1.wav")
    assert holds_wav(tmp_path)
    save(tmp_path / "a/1.png", b"")
    assert holds_wav(tmp_path)  # and is refused for the other
    assert "nothing else, but it has 1.png" in refusal(tmp_path)


# The real thing


@pytest.mark.skipif(not REAL.exists(), reason="the sample of Speech Commands is not here")
def test_the_sample_of_the_data_set(tmp_path):
    with tarfile.open(REAL, "r:xz") as archive:
        archive.extractall(tmp_path, filter="data")
    source = open_source("speech-commands", tmp_path)
    assert (
        source.x.shape == (300, 1, 40, 51)
        and len(source.labels) == 30
        and len(source.group_names) == 41
    )
    assert np.bincount(source.y).tolist() == [10] * 30
    assert np.bincount(source.official).tolist() == [205, 44, 51]
    for speaker in range(41):  # the official parts are by speaker
        assert len(set(source.official[source.groups == speaker])) == 1
    assert (
        abs((source.x.mean() - source.mean[0]) / source.std[0]) < 0.1
        and 0.9 < source.x.std() / source.std[0] < 1.1
    )
    for number in range(3):
        save(
            tmp_path / f"speech_commands_v0.01/_background_noise_/{number}.wav",
            wav(tone(50 + number, seconds=15)),
        )
    twelve = open_source("speech-commands-12", tmp_path)
    clips_by_part = np.bincount(twelve.official[twelve.y < 10], minlength=3)
    assert (
        clips_by_part.sum() == 100
        and np.bincount(twelve.y).tolist() == [10] * 10 + [np.ceil(clips_by_part / 10).sum()] * 2
    )


@pytest.mark.parametrize("target", ["loop", "nowhere"])
def test_a_link_that_leads_nowhere_is_named(tmp_path, target):
    (grow(tmp_path) / "loop").symlink_to(target)
    assert f"the link {tmp_path / 'loop'} must lead to .wav files" in refusal(tmp_path)
