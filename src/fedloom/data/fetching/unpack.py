"""Unpacks a .tar.gz so that nothing in it can write outside its folder or fill the disk.

Only plain files and folders with relative names are unpacked. They go into a new folder, which has
no links, so every name leads where it says. Owners, modes and times in the archive are ignored. The
standard library's `data` filter would accept links that stay inside; no data set here has any.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path, PurePosixPath

from fedloom.data.fetching.catalogue import Archive
from fedloom.data.fetching.screen import DownloadScreen
from fedloom.errors import FedloomError

BLOCK = 1 << 16
UNREADABLE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


class Limited:
    """A stream that raises an error before it fills memory or disk. Headers count too."""

    def __init__(self, stream: BufferedIOBase, archive: Path, most: int) -> None:
        self.stream = stream
        self.archive = archive
        self.bytes_left = most

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = BLOCK
        block = self.stream.read(min(size, BLOCK))
        self.bytes_left -= len(block)
        if self.bytes_left < 0:
            raise refusal(self.archive, "it unpacks to far more bytes than its data set has")
        return block


def unpack(archive: Path, into: Path, expected: Archive, screen: DownloadScreen) -> dict[str, str]:
    """Writes all members to the new folder `into`.

    Returns the SHA-256 of each file, by its name within the folder `expected.inner`.
    """
    digests: dict[str, str] = {}
    most = 2 * expected.bytes
    room = most + 2 * expected.files * 4096  # headers, and the padding of small files
    into.mkdir(parents=True)
    try:
        with gzip.open(archive) as raw:
            limited = Limited(raw, archive, room)
            with tarfile.open(fileobj=limited, mode="r|") as members:  # type: ignore[call-overload]
                for member, done in safe(members, archive, most, 2 * expected.files):
                    digest = write(members, member, into, archive)
                    if digest is not None:
                        digests[str(PurePosixPath(member.name))] = digest
                    screen.step(f"unpacking {archive.name}", done, expected.bytes)
            while limited.read():
                pass  # only the end of the file proves that it is complete
    except UNREADABLE as error:
        rule = f"{archive} must be a complete .tar.gz"
        problem = f"{type(error).__name__}: {error}"
        raise FedloomError(rule, problem, "remove it and fetch it again") from error
    if not expected.inner:
        return digests
    return inside(f"{expected.inner}/", digests)


def inside(folder: str, digests: dict[str, str]) -> dict[str, str]:
    """Returns the digests of files below a folder, by their names in it."""
    below = {}
    for name, digest in digests.items():
        if name.startswith(folder):
            below[name.removeprefix(folder)] = digest
    return below


def safe(
    members: tarfile.TarFile,
    archive: Path,
    most_bytes: int,
    most_files: int,
) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Checks each member before it is written, and yields it with the bytes up to its end."""
    size = 0
    for number, member in enumerate(members, 1):
        name = PurePosixPath(member.name)
        shown = repr(member.name[:200])
        if name.is_absolute():
            raise refusal(archive, f"{shown} is an absolute name")
        if ".." in name.parts or "\0" in member.name:
            raise refusal(archive, f"{shown} leads out of its folder")
        if member.issym() or member.islnk():
            raise refusal(archive, f"{shown} is a link to {member.linkname[:200]!r}")
        if not (member.isreg() or member.isdir()):
            raise refusal(archive, f"{shown} is a device or another special file")
        size += member.size
        if size > most_bytes or number > most_files:
            amount = f"{size} bytes in {number} files, far more than its data set has"
            raise refusal(archive, f"with {shown} it has {amount}")
        yield member, size


def write(
    members: tarfile.TarFile,
    member: tarfile.TarInfo,
    into: Path,
    archive: Path,
) -> str | None:
    """Writes one member. Returns the SHA-256 of a file, and None for a folder."""
    path = into / member.name
    try:
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        sha = hashlib.sha256()
        content = members.extractfile(member)
        assert content is not None  # a regular file has one
        with open(path, "xb") as file:
            while block := content.read(BLOCK):
                sha.update(block)
                file.write(block)
        return sha.hexdigest()
    except FileExistsError as error:
        raise refusal(archive, f"{member.name!r} occurs twice") from error


def refusal(archive: Path, problem: str) -> FedloomError:
    rule = f"{archive} must be safe to unpack"
    return FedloomError(rule, problem, "remove it; it is not what its maintainers publish")
