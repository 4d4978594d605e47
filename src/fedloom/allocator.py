"""glibc's allocator, settled for processes that train.

A training step takes and gives back the same large blocks again and again. By default glibc gives freed memory back
to the kernel at once and adapts its thresholds as it goes, which took up to a quarter of a small round's time. `settle`
fixes the thresholds: up to `KEPT` bytes stay with the process, and blocks from `LARGE` bytes on still go back at once.
"""

from __future__ import annotations

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # numbers that mallopt(3) knows
KEPT = 1 << 28  # bytes of freed memory that a process may keep
LARGE = 1 << 25  # bytes: the largest threshold that glibc accepts


def settle() -> bool:
    """For this process, from now on. False: it has another allocator than glibc's, and nothing is changed."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl, macOS, Windows
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGE) and mallopt(TRIM_THRESHOLD, KEPT))
