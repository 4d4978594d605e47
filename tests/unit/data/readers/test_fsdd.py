import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sounds import save, tone, wav

from fedloom.data.sources import open_source
from fedloom.errors import FedloomError

REAL = Path(__file__).parents[5] / "shared/data/speech/fsdd_wav.tar.xz"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))


def grow(folder):
    for name in ("0_eve_4", "0_eve_5", "7_ann_0", "7_ann_12"):
        save(folder / f"{name}.wav", wav(tone(300, 8_000, 0.4), rate=8_000))


@pytest.mark.parametrize("below", ["", "recordings", "fsdd/recordings"])
def test_by_name(tmp_path, below):
    grow(tmp_path / below)
    source = open_source("fsdd", tmp_path)
    assert (source.name, source.kind, source.y.tolist()) == ("fsdd", "speech", [0, 0, 7, 7])
    assert source.labels == tuple("0123456789") and source.x.shape == (4, 1, 40, 51)
    assert source.official.tolist() == [2, 0, 2, 0]
    assert (source.groups.tolist(), source.group_names, source.grouping) == (
        [1, 1, 0, 0],
        ("ann", "eve"),
        "speaker",
    )
    assert open_source("fsdd:logmel", tmp_path).digest != source.digest


def test_where_it_is_not(tmp_path):
    with pytest.raises(
        FedloomError, match=r"--data fsdd must have \.wav files in .*, but there are none"
    ):
        open_source("fsdd", tmp_path)


@pytest.mark.parametrize("name", ["a.wav", "10_eve_0.wav", "1_eve_x.wav", "1_eve.wav"])
def test_a_file_of_another_name(tmp_path, name):
    grow(tmp_path)
    save(tmp_path / name)
    with pytest.raises(FedloomError, match=f"{tmp_path / name} must be named DIGIT_SPEAKER_INDEX"):
        open_source("fsdd", tmp_path)


@pytest.mark.skipif(not REAL.exists(), reason="FSDD is not here")
def test_a_tenth_of_the_real_thing(tmp_path):
    with tarfile.open(REAL, "r:xz") as archive:
        for one in archive:  # in one go: to seek back would mean to decompress again
            if one.name.endswith(("_3.wav", "_4.wav", "_5.wav", "_14.wav", "_49.wav")):
                archive.extract(one, tmp_path, filter="data")
    source = open_source("fsdd", tmp_path)
    assert len(source.y) == 300 and len(source.group_names) == 6
    assert (
        np.bincount(source.y).tolist() == [30] * 10
        and np.bincount(source.groups).tolist() == [50] * 6
    )
    assert np.bincount(source.official).tolist() == [180, 0, 120]
    assert (
        abs((source.x.mean() - source.mean[0]) / source.std[0]) < 0.1
        and 0.9 < source.x.std() / source.std[0] < 1.1
    )
    flat = source.x.reshape(300, -1)
    train = source.official == 0
    test = source.official == 2
    right = source.y[train][cdist(flat[test], flat[train]).argmin(axis=1)] == source.y[test]
    assert right.mean() > 0.6  # the nearest neighbour alone; by chance 0.1
