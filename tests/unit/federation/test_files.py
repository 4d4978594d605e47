import errno
import os

import pytest

from fedloom import files
from fedloom.files import remove_leftovers, sync_folder, write_whole

OLD = b"old"
NEW = b"new" * 10_000  # larger than Python's buffer
DURABLE = pytest.mark.parametrize("durable", [False, True])


def chunks():
    yield NEW[:5]
    yield memoryview(NEW)[5:20_000]
    yield NEW[20_000:]


def names(folder):
    return sorted(os.listdir(folder))


@DURABLE
def test_chunks_are_joined(tmp_path, durable):
    write_whole(tmp_path / "file", chunks(), durable=durable)
    assert (tmp_path / "file").read_bytes() == NEW and names(tmp_path) == ["file"]


@DURABLE
def test_no_chunks_make_an_empty_file(tmp_path, durable):
    write_whole(tmp_path / "file", [], durable=durable)
    assert (tmp_path / "file").read_bytes() == b""


@DURABLE
@pytest.mark.parametrize("before", [OLD, None], ids=["replacing", "creating"])
def test_a_death_at_any_line_leaves_the_old_or_the_new(tmp_path, deaths, durable, before):
    path = tmp_path / "file"
    seen = set()
    reset(path, before)
    for _ in deaths(lambda: write_whole(path, chunks(), durable=durable), files, least=8):
        content = path.read_bytes() if path.exists() else None
        assert content in (before, NEW)
        seen.add(content)
        remove_leftovers(tmp_path)
        assert names(tmp_path) == ([] if content is None else ["file"])
        reset(path, before)
    assert seen == {before, NEW}


def reset(path, content):
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)


def test_the_content_is_durable_before_its_name_is(tmp_path, monkeypatch):
    done = []
    fsync = os.fsync
    replace = os.replace

    def noted_fsync(handle):
        name = os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))
        done.append(f"sync {name} of {os.fstat(handle).st_size}")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("rename"), replace(a, b)))
    write_whole(tmp_path / "file", chunks(), durable=True)
    assert done[0] == f"sync .file.{os.getpid()}.tmp of {len(NEW)}"
    assert done[1] == "rename"
    assert done[2].startswith(f"sync {tmp_path.name} of")
    done.clear()
    write_whole(tmp_path / "file", chunks(), durable=False)
    assert done == ["rename"]


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fails_and_keeps(path, content, durable):
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, content, durable=durable)
    assert (path.read_bytes() if path.exists() else None) in (OLD, None)
    assert names(path.parent) == (["file"] if path.exists() else [])


@pytest.mark.parametrize(
    ("call", "durable"), [("fsync", True), ("replace", True), ("replace", False)]
)
@pytest.mark.parametrize("before", [OLD, None], ids=["replacing", "creating"])
def test_a_disk_that_is_full_at_a_call_keeps_the_old(tmp_path, monkeypatch, before, call, durable):
    reset(tmp_path / "file", before)
    monkeypatch.setattr(os, call, full)
    fails_and_keeps(tmp_path / "file", chunks(), durable)
    assert (tmp_path / "file").exists() == (before is not None)


@DURABLE
@pytest.mark.parametrize("size", [1, 100_000], ids=["at the last flush", "at the first write"])
def test_a_write_without_space_keeps_the_old(tmp_path, durable, size):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    os.symlink("/dev/full", tmp_path / f".file.{os.getpid()}.tmp")
    fails_and_keeps(path, [b"x" * size], durable)
    assert path.read_bytes() == OLD


@DURABLE
def test_a_really_full_disk_keeps_the_old_and_gets_its_space_back(tiny_disk, durable):
    path = tiny_disk / "file"
    path.write_bytes(OLD)
    free = os.statvfs(tiny_disk).f_bfree
    fails_and_keeps(path, [b"x" * 30_000] * 4, durable)
    assert (path.read_bytes(), os.statvfs(tiny_disk).f_bfree) == (OLD, free)
    write_whole(path, chunks(), durable=durable)
    assert path.read_bytes() == NEW


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_an_error_while_the_chunks_are_made_keeps_the_old(tmp_path, error):
    def broken():
        yield b"half"
        raise error

    (tmp_path / "file").write_bytes(OLD)
    with pytest.raises(error):
        write_whole(tmp_path / "file", broken(), durable=True)
    assert names(tmp_path) == ["file"] and (tmp_path / "file").read_bytes() == OLD


def test_only_leftovers_are_removed(tmp_path):
    for name in ("file", ".hidden", ".file.1.tmp", ".other.22.tmp", "seen.tmp"):
        (tmp_path / name).write_bytes(OLD)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [".hidden", "file", "seen.tmp"]


def test_no_handle_stays_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    write_whole(tmp_path / "file", chunks(), durable=True)
    sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "absent")
    assert len(os.listdir("/proc/self/fd")) == before
