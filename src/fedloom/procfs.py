"""Files in which Linux tells a process about itself, and takes its wishes.

A client's order asks them three times. To open such a file takes longer than all else that is done
with it, so each is opened once a process and stays open.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

MOST_BYTES = 1 << 14  # of such a file; it is read in one piece


def read(path: Path) -> bytes:
    """What the file says now. Raises OSError where there is no such file."""
    return os.pread(_opened(path, os.O_RDONLY, os.getpid()), MOST_BYTES, 0)


def write(path: Path, wish: bytes) -> None:
    """Raises OSError where there is no such file, or it may not be written."""
    os.write(_opened(path, os.O_WRONLY, os.getpid()), wish)


@cache
def _opened(path: Path, flags: int, process: int) -> int:
    """A handle of this process.

    One that was opened before a fork tells of the parent, so a child opens its own.
    """
    return os.open(path, flags)
