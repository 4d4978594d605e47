"""Files in which Linux tells a process about itself, and takes its wishes.

A client's order asks them three times. To open such a file takes longer than all else that is done
with it, so each is opened once a process and stays open.
"""

from __future__ import annotations

import errno
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 1 << 14  # of such a file; it is read in one piece


def read(path: Path) -> bytes:
    """What the file says now. Raises OSError where there is no such file."""
    return os.pread(_handle(path, os.O_RDONLY), MOST_BYTES, 0)


def write(path: Path, wish: bytes) -> None:
    """Raises OSError where there is no such file, or it may not be written."""
    os.write(_handle(path, os.O_WRONLY), wish)


class Opened(NamedTuple):
    """A handle, and the file that it was opened for."""

    handle: int
    device: int
    inode: int


def _handle(path: Path, flags: int) -> int:
    """Of this process; raises OSError if somebody has closed it, and it may be another file's."""
    opened = _opened(path, flags, os.getpid())
    now = os.fstat(opened.handle)
    if (now.st_dev, now.st_ino) != (opened.device, opened.inode):
        raise OSError(errno.EBADF, "its handle was closed", str(path))
    return opened.handle


@cache
def _opened(path: Path, flags: int, process: int) -> Opened:
    """One that was opened before a fork tells of the parent, so a child opens its own."""
    handle = os.open(path, flags)
    status = os.fstat(handle)
    return Opened(handle, status.st_dev, status.st_ino)
