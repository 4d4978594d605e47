"""The peak memory of this process during some work, as Linux counts it.

Everything resident counts, libraries and data included; the memory of a GPU does not. On other
systems the peak is unknown.
"""

from __future__ import annotations

from pathlib import Path

from fedloom import procfs

STATUS = Path("/proc/self/status")
FORGET = Path("/proc/self/clear_refs")
HELD_MOST = b"\nVmHWM:"  # the line of `status` that has the peak, in kB
PEAK = b"5"  # the value that resets the peak when it is written to `clear_refs`


def forget_peak() -> bool:
    """Reset the peak, so that it covers only what follows.

    Returns False where that is impossible (not Linux, or not allowed): the peak is then of no use.
    """
    try:
        procfs.write(FORGET, PEAK)
    except OSError:
        return False
    return True


def peak() -> int | None:
    """The peak in bytes since it was last reset; None: unknown."""
    try:
        status = procfs.read(STATUS)
    except OSError:
        return None
    at = status.find(HELD_MOST)
    if at < 0:
        return None
    kilobytes = status[at + len(HELD_MOST) :].split(maxsplit=1)[0]
    return int(kilobytes) * 1024
