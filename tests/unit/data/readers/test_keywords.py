import math

import numpy as np
import pytest
from sounds import save, tone, wav

from fedloom.data.readers import keywords
from fedloom.data.readers.keywords import KEYWORDS, silences, unknown_words
from fedloom.data.readers.recordings import Clip
from fedloom.data.sources import open_source
from fedloom.errors import FedloomError

RATE = 16_000


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def folder(tmp_path):
    """Each keyword by three speakers, one a part; two other words by them."""
    lines = {0: [], 1: [], 2: []}
    for word in (*KEYWORDS, "bed", "cat"):
        for part, who in enumerate(("aa", "bb", "cc")):
            file = save(tmp_path / word / f"{who}_nohash_0.wav", wav(tone(300, seconds=0.1)))
            lines[part].append(f"{word}/{file.name}\n")
    (tmp_path / "validation_list.txt").write_text("".join(lines[1]))
    (tmp_path / "testing_list.txt").write_text("".join(lines[2]))
    for number in range(2):
        save(tmp_path / f"_background_noise_/{number}.wav", wav(tone(60, seconds=12)))
    return tmp_path


def test_twelve_classes(folder):
    source = open_source("speech-commands-12", folder)
    assert (
        source.labels == (*KEYWORDS, "unknown", "silence") and source.name == "speech-commands-12"
    )
    assert np.bincount(source.y).tolist() == [3] * 10 + [3, 3]  # a tenth of ten in each part
    assert np.bincount(source.official).tolist() == [12, 12, 12]
    for label in (10, 11):
        assert sorted(source.official[source.y == label].tolist()) == [0, 1, 2]
    assert source.group_names == ("aa", "bb", "cc")
    assert (
        source.groups.tolist() == source.official.tolist()
    )  # silence, too, is in its part's only speaker
    assert source.digest == open_source("speech-commands-12", folder).digest
    assert open_source("speech-commands-12:logmel", folder).digest != source.digest


def known(count, part):
    return [
        Clip(keywords.Path(f"{number}.wav"), "yes", f"s{number % 3}", part)
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [1, 10, 11, 2_003])
def test_a_tenth_rounded_up_of_each(folder, count):
    others = [Clip(keywords.Path(f"o{number}.wav"), "bed", "x", 1) for number in range(500)]
    chosen = unknown_words(folder, known(count, 1), others)
    assert (
        len(chosen)
        == len(set(chosen))
        == len(silences(folder, known(count, 1), RATE))
        == math.ceil(count / 10)
    )
    assert {clip.label for clip in chosen} == {"unknown"} and {clip.part for clip in chosen} == {1}


def test_no_noise_is_in_two_parts(folder):
    spans = []
    for part in range(3):
        starts = [clip.start for clip in silences(folder, known(5_000, part), RATE)]
        spans.append((min(starts), max(starts) + RATE))
        assert len(set(starts)) > 50
    (a, b), (c, d), (e, f) = spans
    assert 0 <= a < b <= 0.8 * 12 * RATE <= c < d <= 0.9 * 12 * RATE <= e < f <= 12 * RATE


def test_unknown_is_drawn_from_all_other_words(folder):
    others = []
    for word in "abcde":
        for number in range(100):
            others.append(Clip(keywords.Path(f"{word}/{number}.wav"), word, "x"))
    drawn = unknown_words(folder, known(1_000, 0), others)
    assert {clip.file.parts[0] for clip in drawn} == set("abcde")
    assert drawn == unknown_words(folder, known(1_000, 0), others)


def refusal(folder):
    with pytest.raises(FedloomError) as caught:
        open_source("speech-commands-12", folder)
    return str(caught.value)


def test_a_keyword_is_missing(folder):
    for file in (folder / "stop").iterdir():
        file.unlink()
    (folder / "stop").rmdir()
    assert "a folder for each of the ten keywords, but stop is missing" in refusal(folder)


def test_without_noise(folder):
    for file in (folder / "_background_noise_").iterdir():
        file.unlink()
    assert (
        f"{folder / '_background_noise_'} must hold .wav files, from which the class silence is cut"
        in refusal(folder)
    )


def test_noise_too_short_or_too_long(folder):
    file = save(folder / "_background_noise_/0.wav", wav(tone(60, seconds=10.9)))
    assert f"{file} must last at least 11 s" in refusal(folder) and "it lasts 10.9 s" in refusal(
        folder
    )
    save(file, wav(np.zeros(4_000 * 601) + 0.5, bits=8, rate=4_000))
    assert f"{file} must last at most 600 s" in refusal(folder)


def test_too_few_other_words(folder):
    for word in ("bed", "cat"):
        (folder / word / "bb_nohash_0.wav").unlink()
    assert "must have 1 clips of other words in its official part 1, but it has 0" in refusal(
        folder
    )
