import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from fedloom.data import cache
from fedloom.errors import FedloomError

ROWS = np.arange(60, dtype=np.float32).reshape(20, 3)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def made(rows=ROWS, calls=None):
    if calls is not None:
        calls.append(1)
    blocks = (rows[start : start + 7] for start in range(0, len(rows), 7))
    return cache.Rows(rows.shape, rows.dtype, blocks)


def test_where_it_is(monkeypatch, tmp_path):
    assert cache.folder() == tmp_path / "cache"
    monkeypatch.delenv("FEDLOOM_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache/fedloom"


def test_an_array_is_made_once(folder):
    calls = []
    for _ in range(3):
        np.testing.assert_array_equal(cache.cached_array("key", lambda: made(calls=calls)), ROWS)
    assert (len(calls), os.listdir(folder)) == (1, ["key.npy"])


@pytest.mark.parametrize("damage", [b"", b"\x80\x04N.", "cut", "pickle"])
def test_a_damaged_file_is_made_again(folder, damage):
    cache.cached_array("key", made)
    file = folder / "key.npy"
    whole = file.read_bytes()
    file.unlink()
    if damage == "pickle":
        np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    else:
        file.write_bytes(whole[:-1] if damage == "cut" else damage)
    np.testing.assert_array_equal(cache.cached_array("key", made), ROWS)


def test_keys_and_versions(tmp_path):
    assert cache.key_of("a", [1, 2]) == cache.key_of("a", (1, 2)) != cache.key_of("a", [1, 3])
    (tmp_path / "f").write_text("one")
    first = cache.version_of(tmp_path / "f")
    os.utime(tmp_path / "f", ns=(5, 5))
    assert cache.version_of(tmp_path / "f") != first


def test_a_failure_leaves_nothing(folder):
    def broken():
        yield ROWS[:3]
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        cache.cached_array("key", lambda: cache.Rows(ROWS.shape, ROWS.dtype, broken()))
    assert os.listdir(folder) == []


def test_too_few_rows_are_noticed():
    with pytest.raises(FedloomError, match="it was damaged right after it was written"):
        cache.cached_array("key", lambda: cache.Rows(ROWS.shape, ROWS.dtype, [ROWS[:3]]))


def test_what_a_kill_left_goes_after_a_day(folder):
    folder.mkdir()
    old = folder / ".old.npy.1"
    new = folder / ".new.npy.2"
    for file in (old, new):
        file.touch()
    os.utime(old, (1, 1))
    cache.cached_array("key", made)
    assert sorted(os.listdir(folder)) == [new.name, "key.npy"]


def make_it(barrier, queue):
    barrier.wait(timeout=30)
    queue.put(float(cache.cached_array("key", made).sum()))


def test_processes_that_need_the_same_array_at_once(folder):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    queue = context.Queue()
    workers = [context.Process(target=make_it, args=(barrier, queue)) for _ in range(4)]
    for worker in workers:
        worker.start()
    assert [queue.get(timeout=30) for _ in workers] == [float(ROWS.sum())] * 4
    for worker in workers:
        worker.join(timeout=30)
    assert os.listdir(folder) == ["key.npy"]
