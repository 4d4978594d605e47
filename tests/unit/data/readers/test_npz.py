"""npz files of any size; what their arrays must be like is in test_sources."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedloom.data import mapped
from fedloom.data.mapped import place_of
from fedloom.data.mapped_clients import MappedClients
from fedloom.data.readers import npz as module
from fedloom.data.sources import open_source
from fedloom.data.split import make_split
from fedloom.errors import FedloomError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (60, 6, 5), dtype=np.uint8)
Y = np.arange(60) % 3


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDLOOM_CACHE", str(folder))
    return folder


@pytest.fixture
def everything_is_large(monkeypatch):
    monkeypatch.setattr(module, "LARGE", 1)
    for place in (module, mapped):
        monkeypatch.setattr(place, "BLOCK", 100)


def same(path, monkeypatch) -> tuple:
    """The source read as a large one, once it is known to equal what is read as a small one."""
    with monkeypatch.context() as small:
        small.setattr(module, "LARGE", 1 << 30)
        expected = open_source(str(path))
        assert place_of(expected.x) is None
    source = open_source(str(path))
    np.testing.assert_array_equal(source.x, expected.x)
    assert source.x.dtype == expected.x.dtype
    assert (source.digest, source.labels, source.mean) == (
        expected.digest,
        expected.labels,
        expected.mean,
    )
    return source, place_of(source.x)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_stored_array_is_mapped_where_it_lies(
    tmp_path, cache, everything_is_large, monkeypatch, dtype
):
    np.savez(tmp_path / "a.npz", y=Y, x=X.astype(dtype), labels=list("abc"))
    source, place = same(tmp_path / "a.npz", monkeypatch)
    assert place.file == tmp_path / "a.npz"
    assert not any(cache.iterdir())
    clients_data = MappedClients.build(
        tmp_path / "clients_data", source, make_split(source, 2, "iid", 0)
    )
    assert not (tmp_path / "clients_data/x.npy").exists()
    np.testing.assert_array_equal(clients_data.x, source.x)


def test_a_compressed_array_is_unpacked_once(tmp_path, cache, everything_is_large, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", x=X, y=Y)
    _, place = same(tmp_path / "a.npz", monkeypatch)
    assert [place.file] == list(cache.iterdir())
    monkeypatch.setattr(module, "values", lambda *_: pytest.fail("it is in the cache"))
    same(tmp_path / "a.npz", monkeypatch)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_change_that_leaves_size_and_mtime_as_they_were_is_seen(
    tmp_path, everything_is_large, save
):
    (file := tmp_path / "a.npz").touch()
    digests = set()
    for turned in (X, X[:, ::-1]):
        save(file, x=turned.astype(np.float64), y=Y)
        file.write_bytes(file.read_bytes().ljust(40_000, b"\0"))  # a zip may have a tail
        os.utime(file, ns=(5, 5))
        digests.add(open_source(str(file)).digest)
    assert len(digests) == 2


def test_other_forms_are_rearranged_once(tmp_path, cache, everything_is_large, monkeypatch):
    colour = RNG.integers(0, 256, (20, 6, 5, 3))
    np.savez(tmp_path / "a.npz", x=colour, y=Y[:20])  # channels last, int64
    source, place = same(tmp_path / "a.npz", monkeypatch)
    assert source.x.shape == (20, 3, 6, 5)
    assert place.file.parent == cache


def test_columns_first_is_read_as_it_is(tmp_path, everything_is_large, monkeypatch):
    np.savez(tmp_path / "a.npz", x=np.asfortranarray(X), y=Y)
    assert same(tmp_path / "a.npz", monkeypatch)[1] is None


def test_parts_and_sites_are_joined_in_the_cache(tmp_path, cache, everything_is_large, monkeypatch):
    (tmp_path / "sites").mkdir()
    np.savez(tmp_path / "sites/a.npz", x=X[:20], y=Y[:20])
    np.savez_compressed(tmp_path / "sites/b.npz", x=X[20:], y=Y[20:])
    source, place = same(tmp_path / "sites", monkeypatch)
    assert (place.file.parent, source.groups.tolist()) == (cache, [0] * 20 + [1] * 40)
    parts = {"train": X[:30], "val": X[30:40], "test": X[40:]}
    labels = {"train": Y[:30], "val": Y[30:40], "test": Y[40:]}
    named = {f"{name}_images": x for name, x in parts.items()} | {
        f"{name}_labels": y for name, y in labels.items()
    }
    np.savez(tmp_path / "medical.npz", **named)
    _, place = same(tmp_path / "medical.npz", monkeypatch)
    assert place.file.parent == cache


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_large_array_is_a_sentence(tmp_path, cache, everything_is_large, save):
    path = tmp_path / "a.npz"
    save(path, x=X, y=Y)
    content = bytearray(path.read_bytes())
    content[900] ^= 1  # within x
    path.write_bytes(content)
    with pytest.raises(FedloomError, match=r"a\.npz must be a complete \.npz of plain arrays"):
        open_source(str(path))
    assert not any(cache.iterdir())


def test_a_head_that_lies_about_its_size(tmp_path, everything_is_large):
    head = io.BytesIO()
    facts = {"descr": "|u1", "fortran_order": False, "shape": (10**9, 10**9)}
    np.lib.format.write_array_header_1_0(head, facts)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", head.getvalue() + b"\0" * 900)
        archive.writestr("y.npy", b"")
    with pytest.raises(FedloomError, match=r"a\.npz must be a complete \.npz"):
        open_source(str(tmp_path / "a.npz"))
