"""Backup of a federation's server or of a site, as one file, and its restoration.

    fedloom federation backup DIR|KIT --out FILE
    fedloom federation restore FILE DIR|KIT [--counters KIT]

A backup is a tar file that only its owner can read: it holds private keys. Of Flower's database it
holds a consistent copy, and of a site's counters and audit log one of a moment between two orders,
so that server and site may keep running. Logs, what can be made again, and the folders of runs,
which lie elsewhere, are not in it. Every file's SHA-256 is in `backup.json`, the last of its files,
and is checked before anything is written. Files are copied piece by piece, because a site's private
states can be larger than its memory.

A site's counters say how often it trained, and a backup's are those of its time. `restore` says so,
also in the audit log, and takes the higher ones of the old kit if that still exists (counters.py).
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from fedloom.deploy.audit import HEAD, LOG, AuditLog
from fedloom.deploy.counters import Restored, merge_counters
from fedloom.deploy.experiments import CUTS, DRAWS, FOLDER, locked_experiments
from fedloom.deploy.kit_file import KitFile, check_owner
from fedloom.deploy.surveys import FOLDER as SURVEYS
from fedloom.errors import FedloomError, shortened
from fedloom.reading import Unreadable, parse_json
from fedloom.types import Json
from fedloom.version import __version__

INDEX = "backup.json"
DATABASE = "superlink.db"
# What is made again: Flower's home, sockets and locks of a running process, logs.
LEFT_OUT = ("flower", "systemd")
LEFT_OUT_ENDINGS = (".log", ".tmp", ".db-wal", ".db-shm", ".lock")
PIECE = 1 << 20  # bytes that are in memory at a time
MOST_INDEX = 256 << 20  # bytes
LONGEST_PART = 255  # bytes of a file's name, and of a folder's
LONGEST_NAME = 3000  # bytes of both together
FEDERATION, SITE = "federation", "site"
MARKS = {FEDERATION: "federation.json", SITE: "kit.json"}


# Backup


def backup(folder: Path, out: Path) -> int:
    """Write a backup. Returns the number of files in it."""
    check_owner(folder)
    kind = kind_of(folder)
    rule = "--out must name a new file outside the folder"
    if out.exists() or not out.parent.is_dir():
        found = f"{out} exists, or its folder does not"
        raise FedloomError(rule, found, "name another")
    if out.resolve().is_relative_to(folder.resolve()):
        raise FedloomError(rule, f"{out} is inside", "name another")
    beside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w") as archive:
                count = Writer(archive, folder).write(kind)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(out)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return count


class Writer:
    """Writes the files of a federation or kit into an archive."""

    def __init__(self, archive: tarfile.TarFile, folder: Path) -> None:
        self.archive = archive
        self.folder = folder
        self.digests: dict[str, str] = {}

    def write(self, kind: str) -> int:
        """Write all files, then their index. Returns the number of files."""
        with between_orders(self.folder, kind):
            for path in files_of(self.folder):
                if is_counter(path.relative_to(self.folder)):
                    self.add(path)
        for path in files_of(self.folder):
            if not is_counter(path.relative_to(self.folder)):
                self.add(path)
        index: dict[str, Json] = {
            "format": 1,
            "kind": kind,
            "fedloom": __version__,
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "files": self.digests,
        }
        content = json.dumps(index, indent=1).encode()
        member = tarfile.TarInfo(INDEX)
        member.size, member.mode = len(content), 0o600
        self.archive.addfile(member, io.BytesIO(content))
        return len(self.digests)

    def add(self, path: Path) -> None:
        """Add a file. One that is not needed any more may vanish while the others are copied."""
        name = path.relative_to(self.folder).as_posix()
        with ExitStack() as stack:
            try:
                mode = path.stat().st_mode & 0o777
                if path.name == DATABASE:
                    file = stack.enter_context(copied_database(path))
                else:
                    file = stack.enter_context(open(path, "rb"))
            except FileNotFoundError:
                return
            member = tarfile.TarInfo(name)
            member.size, member.mode = os.fstat(file.fileno()).st_size, mode
            copied = Digesting(file)
            try:
                self.archive.addfile(member, copied)  # type: ignore[arg-type]
            except OSError as error:
                if error.errno is not None:
                    raise
                rule = f"{path} must stay as it is during a backup"
                raise FedloomError(rule, "it became shorter", "try again") from None
            self.digests[name] = copied.digest.hexdigest()


class Digesting:
    """A file that computes the SHA-256 of what is read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        piece = self.file.read(size)
        self.digest.update(piece)
        return piece


@contextmanager
def between_orders(folder: Path, kind: str) -> Iterator[None]:
    """Let a site count nothing and write no line of its audit log meanwhile."""
    with ExitStack() as stack:
        states = folder / "state"
        if kind == SITE and (states / FOLDER).is_dir():
            stack.enter_context(locked_experiments(states))
        if kind == SITE and (folder / LOG).is_file():
            log = stack.enter_context(open(folder / LOG, "rb"))
            fcntl.flock(log, fcntl.LOCK_SH)
        yield


def is_counter(name: Path) -> bool:
    """Whether a file of a site must be of the same moment as its counters."""
    if name.parts[0] == "state":
        return name.parts[1:2] in ((FOLDER,), (DRAWS,), (CUTS,), (SURVEYS,))
    return name.parts in ((LOG,), (HEAD,))


def kind_of(folder: Path) -> str:
    for kind, mark in MARKS.items():
        if (folder / mark).exists():
            return kind
    rule = f"{folder} must be a federation's folder or a site's kit"
    raise FedloomError(rule, "it is neither", "name another")


def files_of(folder: Path) -> list[Path]:
    """The files of a federation or kit that cannot be made again."""
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if parts[0] in LEFT_OUT or path.name.endswith(LEFT_OUT_ENDINGS) or ".log." in path.name:
            continue
        if path.is_symlink() or not path.is_file():
            continue
        found.append(path)
    return found


@contextmanager
def copied_database(path: Path) -> Iterator[BinaryIO]:
    """A consistent copy of a database that may be in use."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / DATABASE
        source, target = sqlite3.connect(path), sqlite3.connect(copy)
        try:
            source.backup(target)
        except sqlite3.Error as error:
            rule = f"{path} must be Flower's database"
            raise FedloomError(rule, f"it is not ({error})", "restore it") from None
        finally:
            target.close()
            source.close()
        with open(copy, "rb") as file:
            yield file


# Restoration


@dataclass
class Content:
    """What is in a backup whose files are all as they were written."""

    kind: str
    made: str
    digests: dict[str, str]
    modes: dict[str, int] = field(default_factory=dict)


def restore(file: Path, folder: Path, counters: Path | None = None) -> Restored:
    """Write a backup's files into a new folder, after all of them were checked.

    `counters` is the kit as it was last, if there still is one: what it counted more counts.
    """
    is_new = not folder.exists()
    if not is_new and (not folder.is_dir() or any(folder.iterdir())):
        rule = "a backup must be restored into a new folder"
        advice = "name another, or move it away: nothing is overwritten"
        raise FedloomError(rule, f"{folder} is not empty", advice)
    content = read_backup(file)
    if counters is not None:
        check_counters(content.kind, counters)
    folder.mkdir(parents=True, exist_ok=True)
    check_owner(folder)
    try:
        folder.chmod(0o700)
        extract(file, content, folder)
        for kit in (folder / "kits").glob("*"):
            kit.chmod(0o700)
        if (folder / "state").is_dir():
            (folder / "state").chmod(0o700)
        if content.kind != SITE:
            return Restored(content.kind, content.made)
        return restored_site(file, content, folder, counters)
    except BaseException:
        empty(folder, also_itself=is_new)  # nothing is restored by halves
        raise


def restored_site(file: Path, content: Content, folder: Path, counters: Path | None) -> Restored:
    """Bring a site's counters up to those of its old kit, and note it all in the audit log."""
    name = KitFile.read(folder).site
    if counters is not None and KitFile.read(counters).site != name:
        rule = "--counters must name an old kit of the same site"
        found = f"{counters} is that of {KitFile.read(counters).site}, not of {name}"
        raise FedloomError(rule, found, "name another, or leave it out")
    restored = Restored(SITE, content.made)
    if counters is not None:
        restored = merge_counters(folder, counters, content.made)
    line = {"made": content.made, "archive": digest_of(file), **restored.to_json()}
    AuditLog(folder).append("restored", line)
    return restored


def check_counters(kind: str, counters: Path) -> None:
    if kind != SITE:
        rule = "--counters must be for the backup of a site"
        raise FedloomError(rule, "this is a federation's", "leave it out")
    check_owner(counters)
    KitFile.read(counters)


def read_backup(file: Path) -> Content:
    """What is in a backup. Raises an error unless all of it is as it was written."""
    rule = f"{file} must be a backup as fedloom wrote it"
    digests: dict[str, str] = {}
    modes: dict[str, int] = {}
    index: Any = None
    try:
        with tarfile.open(file, "r:") as archive:
            for member in archive:
                check_member(member, rule)
                if member.name in digests or (member.name == INDEX and index is not None):
                    raise FedloomError(rule, f"{printable(member)} is in it twice", "use another")
                if member.name == INDEX:
                    index = parse_json(index_text(archive, member))
                    continue
                digests[member.name] = digest_in(archive, member)
                modes[member.name] = member.mode & 0o700
        content = content_in(index, modes)
    except OSError as error:
        found = f"it cannot be read ({error.strerror or error})"
        raise FedloomError(rule, found, "use another") from None
    except (
        tarfile.TarError,
        Unreadable,
        KeyError,
        ValueError,
        TypeError,
        EOFError,
        OverflowError,
        RecursionError,
    ):
        raise FedloomError(rule, "it is damaged", "use another") from None
    if digests != content.digests:
        wrong = sorted(set(digests.items()) ^ set(content.digests.items()))[0][0]
        raise FedloomError(rule, f"{shortened(wrong, 80)} is damaged or missing", "use another")
    check_names(digests, rule)
    return content


def content_in(index: Any, modes: dict[str, int]) -> Content:
    """What a backup's index says. Raises ValueError, KeyError or TypeError."""
    digests = {}
    for name, digest in index["files"].items() if isinstance(index["files"], dict) else ():
        digests[str(name)] = str(digest)
    content = Content(str(index["kind"]), shortened(str(index["made"]), 40), digests, modes)
    if MARKS[content.kind] not in digests:
        raise ValueError("it is of another kind")
    return content


def check_member(member: tarfile.TarInfo, rule: str) -> None:
    """Raise an error unless this is a plain file, which goes into the new folder."""
    if not member.isreg() or member.issparse() or not is_inside(member.name):
        raise FedloomError(rule, f"{printable(member)} is no plain file", "use another")


def check_names(names: dict[str, str], rule: str) -> None:
    """Raise an error if a file has the name of another one's folder."""
    for name in names:
        for parent in PurePosixPath(name).parents:
            if str(parent) in names:
                found = f"{shortened(str(parent), 80)!r} is a file and a folder"
                raise FedloomError(rule, found, "use another")


def is_inside(name: str) -> bool:
    """Whether this is a name as a backup writes it, which every disk takes."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or "\0" in name:
        return False
    raw = os.fsencode(name)
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    return bool(path.parts) and longest <= LONGEST_PART and len(raw) <= LONGEST_NAME


def printable(member: tarfile.TarInfo) -> str:
    return shortened(ascii(member.name), 80)


def index_text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    if member.size > MOST_INDEX:
        raise ValueError("its index is too large")
    return b"".join(pieces_of(archive, member)).decode()


def digest_in(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    digest = hashlib.sha256()
    for piece in pieces_of(archive, member):
        digest.update(piece)
    return digest.hexdigest()


def pieces_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    """The content of a file in an archive, piece by piece."""
    file = archive.extractfile(member)
    if file is None:
        raise ValueError("it has no content")
    left = member.size
    while left > 0:
        piece = file.read(min(PIECE, left))
        if not piece:
            raise EOFError
        left -= len(piece)
        yield piece


def extract(file: Path, content: Content, folder: Path) -> None:
    """Write the files. The archive may have been changed since it was checked: they are again."""
    written: dict[str, str] = {}
    with tarfile.open(file, "r:") as archive:
        for member in archive:
            if member.name == INDEX:
                continue
            expected = content.digests.get(member.name)
            if expected is None or member.name in written:
                break
            written[member.name] = extract_one(archive, member, folder, content)
            if written[member.name] != expected:
                break
    if written != content.digests:
        rule = f"{file} must stay as it is while it is restored"
        raise FedloomError(rule, "it was changed meanwhile", "try again")


def extract_one(
    archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, content: Content
) -> str:
    """Write one file, and return its SHA-256."""
    path = folder / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = content.modes[member.name]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    digest = hashlib.sha256()
    with open(descriptor, "wb") as restored:
        for piece in pieces_of(archive, member):
            digest.update(piece)
            restored.write(piece)
        restored.flush()
        os.fsync(restored.fileno())
    path.chmod(mode)
    return digest.hexdigest()


def empty(folder: Path, *, also_itself: bool) -> None:
    """Remove what was written into a folder that had been empty."""
    if also_itself:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def digest_of(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
