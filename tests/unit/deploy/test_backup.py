"""What a backup holds, and that a damaged one restores nothing."""

import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import threading
import tracemalloc

import numpy as np
import pytest

from fedloom.data.tables.table import Numbers, table_of
from fedloom.deploy import backup as backups
from fedloom.deploy.audit import HEAD, LOG, AuditLog
from fedloom.deploy.backup import backup, restore
from fedloom.deploy.counters import sentences_of
from fedloom.deploy.divisions import Cut
from fedloom.deploy.experiments import Division, Experiments, Record, locked_experiments
from fedloom.deploy.failures import Refusal
from fedloom.deploy.policy import Policy
from fedloom.deploy.surveys import Surveys
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
    assert restore(out, tmp_path / "again").kind == "federation"
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


# Archives that no backup is


def archive_of(path, files, index=None):
    """An archive with these files, and an index that fits them unless one is given."""
    if index is None:
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in files}
        facts = {"format": 1, "kind": "federation", "made": "2027", "files": digests}
        index = json.dumps(facts).encode()
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in [*files, ("backup.json", index)]:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


MARK = ("federation.json", b"{}")
NAMES = {
    "a file and its folder": [MARK, ("a", b""), ("a/b", b"")],
    "a folder and its file": [MARK, ("a/b/c", b""), ("a/b", b"")],
    "two spellings": [MARK, ("./a", b""), ("a", b"")],
    "one name twice": [MARK, ("a", b""), ("a", b"")],
    "a long name": [MARK, ("x" * 300, b"")],
    "a long path": [MARK, ("x" * 200 + "/" + "/".join(["y" * 200] * 20), b"")],
    "outside": [MARK, ("../a", b"")],
    "absolute": [MARK, ("/a", b"")],
    "the folder itself": [MARK, (".", b"")],
    "no federation": [("a", b"")],
}


@pytest.mark.parametrize("what", NAMES)
def test_names_that_no_backup_has_are_refused(tmp_path, what):
    file = archive_of(tmp_path / "evil.tar", NAMES[what])
    with pytest.raises(FedloomError, match=r"evil.tar must be a backup as fedloom wrote it, but"):
        restore(file, tmp_path / "again")
    assert not (tmp_path / "again").exists()


INDEXES = {
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "empty": b"",
    "no text": b"\xff\xfe",
    "a number": b"3",
    "no files": b'{"kind": "federation", "made": "2027", "files": 3}',
    "another kind": b'{"kind": "x", "made": "2027", "files": {}}',
    "no kind": b'{"kind": [], "made": "2027", "files": {}}',
    "a list of files": b'{"kind": "site", "made": "2027", "files": [1]}',
    "nothing": b"null",
}


@pytest.mark.parametrize("what", INDEXES)
def test_an_index_that_no_backup_has_is_refused(tmp_path, what):
    file = archive_of(tmp_path / "evil.tar", [MARK], INDEXES[what])
    with pytest.raises(FedloomError, match=r"evil.tar must be a backup as fedloom wrote it, but"):
        restore(file, tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("kept", [0, 1, 100, 512, 600, 1500])
def test_an_archive_that_ends_early_is_refused(tmp_path, federation, kept):
    out = tmp_path / "backup.tar"
    backup(federation, out)
    out.write_bytes(out.read_bytes()[:kept])
    with pytest.raises(FedloomError, match=r"backup.tar must be a backup as fedloom wrote it, but"):
        restore(out, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_backup_with_its_index_at_the_front_is_restored(tmp_path, federation):
    """As versions before this one wrote it."""
    out = tmp_path / "backup.tar"
    backup(federation, out)
    with tarfile.open(out) as archive:
        members = archive.getmembers()
        contents = [archive.extractfile(member).read() for member in members]
    with tarfile.open(out, "w") as archive:
        for member, data in reversed(list(zip(members, contents, strict=True))):
            archive.addfile(member, io.BytesIO(data))
    assert restore(out, tmp_path / "again").kind == "federation"


def test_what_could_not_be_restored_leaves_nothing_behind(tmp_path, federation, monkeypatch):
    out = tmp_path / "backup.tar"
    backup(federation, out)
    (tmp_path / "empty").mkdir()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backups, "digest_of", full)
    monkeypatch.setattr(backups, "extract", lambda *given: (extract(*given), full()))
    for folder in (tmp_path / "empty", tmp_path / "new"):
        with pytest.raises(OSError, match="No space left"):
            restore(out, folder)
    assert list((tmp_path / "empty").iterdir()) == [] and not (tmp_path / "new").exists()


extract = backups.extract


def test_a_large_file_is_never_in_memory(tmp_path, federation):
    size = 64 << 20
    with open(federation / "large", "wb") as file:
        file.truncate(size)
    tracemalloc.start()
    try:
        backup(federation, tmp_path / "backup.tar")
        restore(tmp_path / "backup.tar", tmp_path / "again")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "again" / "large").stat().st_size == size
    assert most < size // 4


# Sites


def record(trainings, size=0):
    return Record(
        client=0, seed=1, test=0.2, asked_test=0.2, hold=0.1, trainings=trainings, bytes=size
    )


FIRST = "1" * 16
SECOND = "2" * 16


@pytest.fixture
def kit(tmp_path):
    """A kit that took part in one experiment, with one training."""
    path = tmp_path / "kit"
    path.mkdir(mode=0o700)
    (path / "kit.json").write_text('{"site": "a", "server": "127.0.0.1:9092"}')
    with locked_experiments(path / "state") as experiments:
        experiments.put(FIRST, record(("x",), 10))
        experiments.put_divisions((Division(seed=1, client=0, test=0.2, hold=0.1, samples=100),))
    AuditLog(path).append("order", {"n": 1})
    return path


def test_a_kit_of_another_user_is_not_backed_up(tmp_path, kit, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: kit.stat().st_uid + 1)
    with pytest.raises(FedloomError, match="kit must belong to the user who opens it, but it"):
        backup(kit, tmp_path / "kit.tar")
    assert not (tmp_path / "kit.tar").exists()


def test_a_site_counts_and_logs_nothing_while_its_counters_are_copied(tmp_path, kit, monkeypatch):
    """An order that comes meanwhile waits; the backup is of the moment before it."""
    add = backups.Writer.add
    orders = []

    def order():
        with locked_experiments(kit / "state") as experiments:
            experiments.put(FIRST, record(("x", "y"), 20))
        AuditLog(kit).append("order", {"n": 2})

    def add_while_an_order_comes(writer, path):
        if not orders:
            orders.append(threading.Thread(target=order))
            orders[0].start()
            orders[0].join(0.3)
        add(writer, path)

    monkeypatch.setattr(backups.Writer, "add", add_while_an_order_comes)
    backup(kit, tmp_path / "kit.tar")
    orders[0].join()
    restore(tmp_path / "kit.tar", tmp_path / "again")
    lines = [line for line, _ in AuditLog(tmp_path / "again").verified()]
    assert [line.event for line in lines] == ["order", "restored"]
    assert Experiments(tmp_path / "again" / "state").get(FIRST) == record(("x",), 10)
    assert Experiments(kit / "state").get(FIRST) == record(("x", "y"), 20)


def test_a_restored_site_says_that_its_counters_are_old(tmp_path, kit):
    backup(kit, tmp_path / "kit.tar")
    restored = restore(tmp_path / "kit.tar", tmp_path / "again")
    assert any("could be asked of it again" in text for text in sentences_of(restored))
    *_, (line, _) = AuditLog(tmp_path / "again").verified()
    assert line.event == "restored" and line.content["made"] == restored.made
    assert line.content["with_counters"] is False
    digest = hashlib.sha256((tmp_path / "kit.tar").read_bytes()).hexdigest()
    assert line.content["archive"] == digest


def test_the_higher_counters_of_the_old_kit_count_on(tmp_path, kit):
    backup(kit, tmp_path / "kit.tar")
    with locked_experiments(kit / "state") as experiments:
        experiments.put(FIRST, record(("x", "y"), 20))
        experiments.put(SECOND, record(("z",), 5))
        later = Division(seed=2, client=0, test=0.2, hold=0.1, samples=100)
        experiments.put_divisions((*experiments.divisions(), later))
    (kit / "state" / "secret").write_bytes(b"s" * 32)
    AuditLog(kit).append("order", {"n": 2})
    again = tmp_path / "again"
    restored = restore(tmp_path / "kit.tar", again, kit)
    assert (restored.experiments, restored.audit_lines) == (2, 1)
    found = Experiments(again / "state")
    assert found.get(FIRST) == record(("x", "y"), 20) and found.get(SECOND) == record(("z",), 5)
    assert [division.seed for division in found.divisions()] == [1, 2]
    assert (again / "state" / "secret").read_bytes() == b"s" * 32
    events = [line.event for line, _ in AuditLog(again).verified()]
    assert events == ["order", "order", "restored"]
    assert len(list(AuditLog(kit).verified())) == 2  # the old kit stays as it is


def answered(kit, ages, question):
    """Let a site answer a survey about a table with these ages."""
    policy = Policy(methods=["*"], fields=["*"], rounds=1, megabytes=1)
    table = table_of("patients.csv", {"age": Numbers(np.array(ages, np.float64))})
    surveys = Surveys(kit / "state")
    surveys.count([question], policy)
    surveys.tell(table, policy)


def test_cuts_and_surveys_of_the_old_kit_count_on(tmp_path, kit):
    """Otherwise sums before and after one more row would leave."""
    answered(kit, range(100), "before")
    backup(kit, tmp_path / "kit.tar")
    answered(kit, range(200), "after")
    cut = Cut(seed=1, client=0, samples=100, begin=20, at=60, end=100)
    with locked_experiments(kit / "state") as experiments:
        experiments.put_cuts((cut,))
    again = tmp_path / "again"
    restore(tmp_path / "kit.tar", again, kit)
    assert Experiments(again / "state").cuts() == (cut,)
    assert Surveys(again / "state").answered() == Surveys(kit / "state").answered()
    with pytest.raises(Refusal, match="1 rows came"):
        answered(again, range(201), "once more")


def test_an_older_kit_lowers_no_counter(tmp_path, kit):
    older = shutil.copytree(kit, tmp_path / "older")
    with locked_experiments(kit / "state") as experiments:
        experiments.put(FIRST, record(("x", "y"), 20))
    AuditLog(kit).append("order", {"n": 2})
    backup(kit, tmp_path / "kit.tar")
    restored = restore(tmp_path / "kit.tar", tmp_path / "again", older)
    assert (restored.experiments, restored.audit_lines) == (0, 0)
    assert Experiments(tmp_path / "again" / "state").get(FIRST) == record(("x", "y"), 20)
    assert len(list(AuditLog(tmp_path / "again").verified())) == 3


def test_a_kit_is_never_overwritten(tmp_path, kit):
    backup(kit, tmp_path / "kit.tar")
    before = content(kit)
    with pytest.raises(FedloomError, match=r"must be restored into a new folder, but .*not empty"):
        restore(tmp_path / "kit.tar", kit)
    assert content(kit) == before


@pytest.mark.parametrize("damaged", [f"state/experiments/{FIRST}.json", LOG, HEAD, "kit.json"])
def test_counters_that_cannot_be_read_restore_nothing(tmp_path, kit, damaged):
    backup(kit, tmp_path / "kit.tar")
    (kit / damaged).write_bytes(b"\xff")
    with pytest.raises(FedloomError):
        restore(tmp_path / "kit.tar", tmp_path / "again", kit)
    assert not (tmp_path / "again").exists()


def test_counters_are_of_the_same_site(tmp_path, kit, federation):
    other = shutil.copytree(kit, tmp_path / "other")
    (other / "kit.json").write_text('{"site": "b", "server": "127.0.0.1:9092"}')
    backup(kit, tmp_path / "kit.tar")
    with pytest.raises(FedloomError, match=r"must name an old kit of the same site, but .* of b"):
        restore(tmp_path / "kit.tar", tmp_path / "again", other)
    backup(federation, tmp_path / "federation.tar")
    with pytest.raises(FedloomError, match="--counters must be for the backup of a site"):
        restore(tmp_path / "federation.tar", tmp_path / "again", kit)
    assert not (tmp_path / "again").exists()
