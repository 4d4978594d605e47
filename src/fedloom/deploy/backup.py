"""Backup of a federation's server or of a site, as one file, and its restoration.

    fedloom federation backup DIR|KIT --out FILE      fedloom federation restore FILE DIR

A backup is a tar file that only its owner can read: it holds private keys. Of Flower's database it
holds a consistent copy, so the server may keep running. Logs, what can be made again, and the
folders of runs, which lie elsewhere, are not in it. Every file's SHA-256 is in `backup.json`, and
is checked before anything is written.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import os
import sqlite3
import tarfile
import tempfile
from pathlib import Path

from fedloom.errors import FedloomError
from fedloom.types import Json
from fedloom.version import __version__

INDEX = "backup.json"
DATABASE = "superlink.db"
# What is made again: Flower's home, sockets and locks of a running process, logs.
LEFT_OUT = ("flower", "systemd")
LEFT_OUT_ENDINGS = (".log", ".tmp", ".db-wal", ".db-shm")


def backup(folder: Path, out: Path) -> int:
    """Write a backup. Returns the number of files in it."""
    kind = kind_of(folder)
    rule = "--out must name a new file outside the folder"
    if out.exists() or not out.parent.is_dir():
        found = f"{out} exists, or its folder does not"
        raise FedloomError(rule, found, "name another")
    if out.resolve().is_relative_to(folder.resolve()):
        raise FedloomError(rule, f"{out} is inside", "name another")
    contents: dict[str, bytes] = {}
    modes: dict[str, int] = {}
    for path in files_of(folder):
        name = path.relative_to(folder).as_posix()
        contents[name] = content_of(path)
        modes[name] = path.stat().st_mode & 0o777
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    index: dict[str, Json] = {
        "format": 1,
        "kind": kind,
        "fedloom": __version__,
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "files": digests,
    }
    beside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
            add(archive, INDEX, json.dumps(index, indent=1).encode(), 0o600)
            for name, content in contents.items():
                add(archive, name, content, modes[name])
        beside.replace(out)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return len(contents)


def restore(file: Path, folder: Path) -> str:
    """Write a backup's files into a new folder, after all of them were checked.

    Returns "federation" or "site".
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        rule = "a backup must be restored into a new folder"
        raise FedloomError(rule, f"{folder} is not empty", "name another, or move it away")
    kind, contents, modes = read_backup(file)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, modes[name])
        with open(descriptor, "wb") as restored:
            restored.write(content)
            restored.flush()
            os.fsync(restored.fileno())
        path.chmod(modes[name])
    for kit in (folder / "kits").glob("*"):
        kit.chmod(0o700)
    if (folder / "state").is_dir():
        (folder / "state").chmod(0o700)
    return kind


def read_backup(file: Path) -> tuple[str, dict[str, bytes], dict[str, int]]:
    """The kind of a backup, and its files with their modes, which are as they were written."""
    rule = f"{file} must be a backup as fedloom wrote it"
    contents: dict[str, bytes] = {}
    modes: dict[str, int] = {}
    try:
        with tarfile.open(file, "r:") as archive:
            for member in archive.getmembers():
                extracted = archive.extractfile(member)
                if not member.isfile() or extracted is None or not is_inside(member.name):
                    raise FedloomError(rule, f"{member.name!r} is no plain file", "use another")
                contents[member.name] = extracted.read()
                modes[member.name] = member.mode & 0o700
        index = json.loads(contents.pop(INDEX))
        kind, digests = str(index["kind"]), dict(index["files"])
    except OSError as error:
        found = f"it cannot be read ({error.strerror or error})"
        raise FedloomError(rule, found, "use another") from None
    except (tarfile.TarError, KeyError, ValueError, TypeError, EOFError):
        raise FedloomError(rule, "it is damaged", "use another") from None
    found_digests = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    if found_digests != digests:
        wrong = sorted(set(digests.items()) ^ set(found_digests.items()))[0][0]
        raise FedloomError(rule, f"{wrong} is damaged or missing", "use another")
    return kind, contents, modes


def kind_of(folder: Path) -> str:
    if (folder / "federation.json").exists():
        return "federation"
    if (folder / "kit.json").exists():
        return "site"
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


def content_of(path: Path) -> bytes:
    """A file's content; of a database, that of a consistent copy."""
    if path.name != DATABASE:
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / DATABASE
        source, target = sqlite3.connect(path), sqlite3.connect(copy)
        try:
            source.backup(target)
        finally:
            target.close()
            source.close()
        return copy.read_bytes()


def add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def is_inside(name: str) -> bool:
    parts = Path(name).parts
    return bool(parts) and not Path(name).is_absolute() and ".." not in parts
