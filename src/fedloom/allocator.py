"""glibc's allocator, settled for processes that train.

A training step takes and gives back the same large blocks again and again. By default glibc gives
freed memory back to the kernel at once and adapts its thresholds as it goes, which took up to a
quarter of a small round's time. `settle` fixes the thresholds, so that freed memory stays with the
process; blocks from `LARGE` bytes on still go back at once. `give_back` sees to it, between two
orders, that no more than `KEPT` bytes stay.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedloom import procfs

# Numbers that mallopt(3) knows.
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
KEPT = 1 << 28  # bytes of freed memory that a process may keep
LARGE = 1 << 25  # bytes: the largest threshold that glibc accepts
STATM = Path("/proc/self/statm")  # sizes of this process, in pages


class Usage(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [
        ("arena", ctypes.c_size_t),
        ("ordblks", ctypes.c_size_t),
        ("smblks", ctypes.c_size_t),
        ("hblks", ctypes.c_size_t),
        ("hblkhd", ctypes.c_size_t),
        ("usmblks", ctypes.c_size_t),
        ("fsmblks", ctypes.c_size_t),
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),  # bytes that are free, but not given back
        ("keepcost", ctypes.c_size_t),
    ]


def settle() -> bool:
    """For this process, from now on.

    False: it has another allocator than glibc's, and nothing is changed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl, macOS, Windows
        return False
    BEGINNING.resident = resident() or 0
    return bool(mallopt(MMAP_THRESHOLD, LARGE) and mallopt(TRIM_THRESHOLD, KEPT))


def give_back(peak: int | None = None) -> bool:
    """Freed memory goes back to the kernel, if there is much of it.

    `peak` is the most that the process held of late, if it is known: it holds no more now. False:
    there is not much, or nobody can tell. glibc looks at every free block to answer, which takes
    milliseconds in a process that holds many small ones. So it is asked only where the process has
    grown enough to keep so much.
    """
    if peak is not None and peak - BEGINNING.resident <= KEPT:
        return False
    now = resident()
    if now is not None and now - BEGINNING.resident <= KEPT:
        return False
    glibc = find_glibc()
    if glibc is None or glibc.mallinfo2().fordblks <= KEPT:
        return False
    return bool(glibc.malloc_trim(0))


def resident() -> int | None:
    """Bytes of this process that are in memory; None: only Linux tells."""
    try:
        pages = procfs.read(STATM).split()[1]
    except OSError:
        return None
    return int(pages) * mmap.PAGESIZE


@dataclass
class Beginning:
    """What the process was when it settled."""

    resident: int = 0


BEGINNING = Beginning()


@cache
def find_glibc() -> ctypes.CDLL | None:
    """The C library of this process, if it is glibc and new enough to tell how much it keeps."""
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = Usage
        library.malloc_trim.restype = ctypes.c_int
    except (OSError, AttributeError, TypeError):
        return None
    return library
