import multiprocessing
import os
import pickle
import time

import numpy as np
import pytest

from fedloom.data import cache
from fedloom.data.cache import kept
from fedloom.errors import FedloomError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def ones(array):
    array[:] = 1


def never(array):
    raise AssertionError("it was there already")


def test_made_once_then_mapped_read_only(folder):
    made = kept("a", (3, 2), np.float32, ones)
    again = kept("a", (3, 2), np.float32, never)
    assert isinstance(again, np.memmap) and made.tolist() == again.tolist() == [[1, 1]] * 3
    with pytest.raises(ValueError, match="read-only"):
        again[0] = 2
    assert sorted(file.name for file in folder.iterdir()) == ["a.lock", "a.npy"]


def test_what_fill_leaves_is_zero():
    assert kept("zeros", (4,), np.uint8, lambda array: None).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("damage", ["cut", "pickle", "other shape", "empty"])
def test_a_damaged_file_is_made_again(folder, damage):
    kept("a", (50,), np.float32, ones)
    file = folder / "a.npy"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "pickle":
        file.write_bytes(pickle.dumps(Trap(str(folder / "sprung"))))
    elif damage == "other shape":
        np.save(file, np.ones(49, np.float32))
    else:
        file.write_bytes(b"")
    assert kept("a", (50,), np.float32, ones).tolist() == [1] * 50
    assert not (folder / "sprung").exists()


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_an_error_while_filling_leaves_nothing_behind(folder):
    def half(array):
        array[0] = 1
        raise FedloomError("a", "b", "c")

    with pytest.raises(FedloomError, match="a, but b; c"):
        kept("a", (2,), np.uint8, half)
    assert [file.name for file in folder.iterdir()] == ["a.lock"]
    assert kept("a", (2,), np.uint8, ones).tolist() == [1, 1]


def test_what_a_killed_process_left_is_not_taken_for_whole(folder):
    folder.mkdir()
    (folder / "a.part").write_bytes(b"half of it" * 1000)
    assert kept("a", (2,), np.uint8, ones).tolist() == [1, 1]
    assert not (folder / "a.part").exists()


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FEDLOOM_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(FedloomError, match=r"file/below must be writable .* set FEDLOOM_CACHE"):
        kept("a", (2,), np.uint8, ones)


def test_a_full_disk_is_said_before_any_work(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(FedloomError, match="No space left on device; make room"):
        kept("a", (2,), np.uint8, never)


def test_an_input_that_cannot_be_read_is_not_blamed_on_the_cache():
    with pytest.raises(FileNotFoundError):
        kept("a", (2,), np.uint8, lambda array: os.stat("nowhere"))


def test_the_default_folder(monkeypatch):
    monkeypatch.delenv("FEDLOOM_CACHE")
    assert cache.folder().parts[-2:] == (".cache", "fedloom")


def slow_fill(log):
    def fill(array):
        with open(log, "a") as file:
            file.write("made\n")
        time.sleep(0.2)
        array[:] = 7

    return kept("shared", (1000,), np.int32, fill).sum() == 7000


def test_of_two_processes_one_works_and_both_get_it(tmp_path):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(slow_fill, [tmp_path / "log"] * 2, chunksize=1) == [True, True]
    assert (tmp_path / "log").read_text() == "made\n"
