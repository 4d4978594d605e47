"""The peak memory of this process during some work, as Linux counts it.

Everything resident counts, libraries and data included; the memory of a GPU does not. On other
systems the peak is unknown.
"""

from __future__ import annotations

from pathlib import Path

from fedloom import procfs

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
PEAK_LINE = b"\nVmHWM:"  # the line of `status` that has the peak, in kB
RESET_PEAK = b"5"  # the value that resets the peak when it is written to `clear_refs`


def reset_peak() -> bool:
    """Reset the peak, so that it covers only what follows.

    Returns False where that is impossible (not Linux, or not allowed): the peak is then of no use.
    """
    try:
        procfs.write(CLEAR_REFS, RESET_PEAK)
    except OSError:
        return False
    return True


def peak() -> int | None:
    """The peak in bytes since it was last reset; None: unknown."""
    try:
        status = procfs.read(STATUS)
    except OSError:
        return None
    at = status.find(PEAK_LINE)
    if at < 0:
        return None
    kilobytes = status[at + len(PEAK_LINE) :].split(maxsplit=1)[0]
    return int(kilobytes) * 1024
