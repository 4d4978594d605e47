"""What a backup holds, and that a damaged one restores nothing."""

import io
import sqlite3
import tarfile

import pytest

from fedloom.deploy.backup import backup, restore
from fedloom.errors import FedloomError


@pytest.fixture
def federation(tmp_path):
    folder = tmp_path / "fed"
    (folder / "kits" / "a").mkdir(parents=True)
    (folder / "flower").mkdir()
    (folder / "federation.json").write_text("{}")
    (folder / "server.key").write_bytes(b"secret")
    (folder / "server.key").chmod(0o600)
    (folder / "kits" / "a" / "node.key").write_bytes(b"key")
    (folder / "superlink.log").write_text("log")
    (folder / "flower" / "executor.secret").write_text("made again")
    with sqlite3.connect(folder / "superlink.db") as database:
        database.execute("create table node (id integer)")
        database.execute("insert into node values (7)")
    return folder


def content(folder):
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return files


def test_what_cannot_be_made_again_comes_back(tmp_path, federation):
    open_database = sqlite3.connect(federation / "superlink.db")  # the server may be running
    out = tmp_path / "backup.tar"
    assert backup(federation, out) == 4
    assert out.stat().st_mode & 0o777 == 0o600
    open_database.close()
    assert restore(out, tmp_path / "again") == "federation"
    restored = content(tmp_path / "again")
    assert set(restored) == {
        "federation.json", "kits/a/node.key", "server.key", "superlink.db",
    }  # fmt: skip
    assert restored["server.key"] == b"secret"
    assert (tmp_path / "again" / "server.key").stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(tmp_path / "again" / "superlink.db") as database:
        assert database.execute("select id from node").fetchall() == [(7,)]


@pytest.mark.parametrize("where", [b"backup.json", b"secret", b"create table"], ids=str)
def test_a_damaged_backup_restores_nothing(tmp_path, federation, where):
    out = tmp_path / "backup.tar"
    backup(federation, out)
    data = bytearray(out.read_bytes())
    data[data.lower().index(where)] ^= 1
    out.write_bytes(data)
    with pytest.raises(FedloomError, match=r"backup.tar must be a backup as fedloom wrote it, but"):
        restore(out, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_backup_writes_nothing_outside_its_folder(tmp_path):
    out = tmp_path / "evil.tar"
    with tarfile.open(out, "w") as archive:
        member = tarfile.TarInfo("../evil")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(FedloomError, match="is no plain file"):
        restore(out, tmp_path / "again")
    assert not (tmp_path / "evil").exists()


def test_places_that_would_lose_something_are_refused(tmp_path, federation):
    out = tmp_path / "backup.tar"
    backup(federation, out)
    for path in (out, federation / "inside.tar", tmp_path / "nowhere" / "x.tar"):
        with pytest.raises(FedloomError, match="--out must name a new file outside"):
            backup(federation, path)
    with pytest.raises(FedloomError, match="must be restored into a new folder"):
        restore(out, federation)
    with pytest.raises(FedloomError, match="must be a federation's folder or a site's kit"):
        backup(tmp_path, tmp_path / "another.tar")
    with pytest.raises(FedloomError, match="it cannot be read"):
        restore(tmp_path / "none.tar", tmp_path / "again")
