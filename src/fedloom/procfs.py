"""Files under /proc by which a Linux process learns about itself and changes its settings.

Every order of a client uses them three times. Opening such a file takes longer than everything else
that is done with it, so each is opened once per process and stays open.
"""

from __future__ import annotations

import errno
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 1 << 14  # of such a file, which is read with a single call


def read(path: Path) -> bytes:
    """The current content of the file. Raises OSError where there is no such file."""
    return os.pread(_handle(path, os.O_RDONLY), MOST_BYTES, 0)


def write(path: Path, value: bytes) -> None:
    """Write a value. Raises OSError where there is no such file, or it may not be written."""
    os.write(_handle(path, os.O_WRONLY), value)


class Opened(NamedTuple):
    """A handle, and the file that it was opened for."""

    handle: int
    device: int
    inode: int


def _handle(path: Path, flags: int) -> int:
    """The open handle of this process for a file.

    Raises OSError if other code has closed it: the number may then belong to another file.
    """
    opened = _opened(path, flags, os.getpid())
    now = os.fstat(opened.handle)
    if (now.st_dev, now.st_ino) != (opened.device, opened.inode):
        raise OSError(errno.EBADF, "its handle was closed", str(path))
    return opened.handle


@cache
def _opened(path: Path, flags: int, process: int) -> Opened:
    """Open a file, once per process: a handle from before a fork would describe the parent."""
    handle = os.open(path, flags)
    status = os.fstat(handle)
    return Opened(handle, status.st_dev, status.st_ino)
