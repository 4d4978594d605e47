"""Settings of glibc's memory allocator for processes that train.

A training step allocates and frees the same large blocks again and again. By default glibc returns
freed memory to the kernel at once and adapts its thresholds as it goes, which took up to a quarter
of a small round's time. `settle` fixes the thresholds, so that freed memory stays with the process;
blocks of `LARGE` bytes and more are still returned at once. `give_back`, called between two orders,
ensures that no more than `MOST_FREED` bytes of freed memory stay for long.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedloom import procfs

# The numbers of these parameters in mallopt(3).
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
MOST_FREED = 1 << 28  # bytes of freed memory that a process may keep
LARGE = 1 << 25  # bytes: the largest threshold that glibc accepts
PAUSE = 50  # times as long as glibc took to answer, before it is asked again
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
    """Fix the thresholds for this process, from now on.

    Returns False, and changes nothing, where the allocator is not glibc's.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl, macOS, Windows
        return False
    MEMORY.resident_at_start = resident() or 0
    return bool(mallopt(MMAP_THRESHOLD, LARGE) and mallopt(TRIM_THRESHOLD, MOST_FREED))


def give_back(peak: int | None = None) -> bool:
    """Return freed memory to the kernel, if there is much of it.

    `peak` is the most memory that the process held lately, if that is known: it holds no more now.
    Returns False if there is little freed memory, or if its amount is unknown. glibc visits every
    free block to tell how much there is, which takes milliseconds in a process with many small
    ones. So we ask only where the process has grown enough to keep more than `MOST_FREED` bytes,
    and so seldom that asking takes no more than 1/`PAUSE` of the time.
    """
    if peak is not None and peak - MEMORY.resident_at_start <= MOST_FREED:
        return False
    now = resident()
    if now is not None and now - MEMORY.resident_at_start <= MOST_FREED:
        return False
    glibc = find_glibc()
    if glibc is None or time.monotonic() < MEMORY.earliest_question:
        return False
    before = time.monotonic()
    freed_bytes = glibc.mallinfo2().fordblks
    after = time.monotonic()
    MEMORY.earliest_question = after + PAUSE * (after - before)
    if freed_bytes <= MOST_FREED:
        return False
    return bool(glibc.malloc_trim(0))


def resident() -> int | None:
    """The bytes of this process that are in memory; None on systems other than Linux."""
    try:
        pages = procfs.read(STATM).split()[1]
    except OSError:
        return None
    return int(pages) * mmap.PAGESIZE


@dataclass
class MemoryState:
    """What this process remembers about its memory."""

    resident_at_start: int = 0  # bytes, when `settle` was called
    # When glibc may be asked again how much freed memory there is, by the monotonic clock.
    earliest_question: float = 0.0


MEMORY = MemoryState()


@cache
def find_glibc() -> ctypes.CDLL | None:
    """The C library of this process, if it is a glibc that can tell how much free memory it keeps.

    Older versions cannot: they have no `mallinfo2`.
    """
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = Usage
        library.malloc_trim.restype = ctypes.c_int
    except (OSError, AttributeError, TypeError):
        return None
    return library
