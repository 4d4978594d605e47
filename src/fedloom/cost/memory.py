"""The most memory this process held while it did something, as Linux counts it.

Everything resident counts, libraries and data included; memory of a GPU does not. Elsewhere it is
not known.
"""

from __future__ import annotations

from pathlib import Path

from fedloom import procfs

STATUS = Path("/proc/self/status")
FORGET = Path("/proc/self/clear_refs")
HELD_MOST = b"\nVmHWM:"  # the line of `status` that tells the peak, in kB
PEAK = b"5"  # what `clear_refs` takes to begin the peak anew


def forget_peak() -> bool:
    """From now on the peak is that of what follows.

    False: it cannot be (not Linux, not allowed), and is of no use.
    """
    try:
        procfs.write(FORGET, PEAK)
    except OSError:
        return False
    return True


def peak() -> int | None:
    """In bytes, since it was last forgotten; None: it cannot be told."""
    try:
        status = procfs.read(STATUS)
    except OSError:
        return None
    at = status.find(HELD_MOST)
    if at < 0:
        return None
    kilobytes = status[at + len(HELD_MOST) :].split(maxsplit=1)[0]
    return int(kilobytes) * 1024
