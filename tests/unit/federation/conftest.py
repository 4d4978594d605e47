"""Processes that die at every line of a module, and a disk that is really full."""

import os
import shutil
import signal
import subprocess
import sys

import pytest


def die_at(line, work, files):
    """Run `work` in its own process, which is killed before the given line of our code.

    Returns False if it ended before that line.
    """
    child = os.fork()
    if child == 0:
        left = line

        def trace(frame, event, _):
            nonlocal left
            if frame.f_code.co_filename not in files:
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        try:
            sys.settrace(trace)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.fixture
def deaths():
    """`for line in deaths(work, modules…)`: the body sees the files that each death left behind.

    `work` runs from the beginning each time.
    """

    def every(work, *modules, least):
        files = {module.__file__ for module in modules}
        line = 0
        while die_at(line, work, files):
            yield line
            line += 1
        assert line >= least, "the work has more lines than that: is it traced?"

    return every


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not shutil.which("mount") or os.geteuid() != 0:
        pytest.skip("only root can mount a tiny disk")
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True
    ).returncode:
        pytest.skip("this system does not let root mount a tiny disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
