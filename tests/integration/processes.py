"""Real `fedloom` processes: started, watched, killed, and their workers counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

FEDLOOM = [sys.executable, "-m", "fedloom"]


def launch(*words: str) -> subprocess.Popen[str]:
    """In a session of its own, as a terminal would start it."""
    return subprocess.Popen(
        [*FEDLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        # a shell's background jobs ignore it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The worker processes it has now."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except OSError:
        return []
    return [int(child) for child in children if alive(int(child))]


def alive(pid: int) -> bool:
    """A zombie that nobody has buried yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether it became true in time."""
    give_up = time.monotonic() + seconds
    while not what():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.005)
    return True


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors; a process that hangs fails the test."""
    try:
        output, errors = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.kill(process.pid, 9)
    return process.returncode, output, errors
