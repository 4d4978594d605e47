"""What Linux tells a process about itself, through files that stay open."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedloom import procfs

STATUS = Path("/proc/self/status")


def process_in(status):
    """The process id in a `status` file."""
    return int(status.split(b"\nPid:")[1].split()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has such files")
def test_a_file_is_read_anew_each_time():
    first = procfs.read(Path("/proc/self/stat"))
    sum(range(10**6))  # some page or some tick
    large = bytearray(16 << 20)
    assert procfs.read(Path("/proc/self/stat")) != first and large is not None
    assert process_in(procfs.read(STATUS)) == os.getpid()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has such files")
def test_a_forked_child_reads_of_itself_and_not_of_its_parent():
    script = """
import os, sys
from pathlib import Path
from fedloom import procfs
status = Path("/proc/self/status")
procfs.read(status)
child = os.fork()
if child == 0:
    told = int(procfs.read(status).split(b"\\nPid:")[1].split()[0])
    os._exit(0 if told == os.getpid() else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        procfs.read(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        procfs.write(tmp_path / "none", b"5")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has such files")
def test_a_handle_that_somebody_closed_is_not_used_for_another_file(tmp_path):
    script = f"""
import os
from pathlib import Path
from fedloom import procfs
wishes = Path({str(tmp_path / "wishes")!r})
wishes.write_bytes(b"")
procfs.write(wishes, b"5")
os.closerange(3, 256)
other = os.open({str(tmp_path / "other")!r}, os.O_WRONLY | os.O_CREAT)
try:
    procfs.write(wishes, b"5")
except OSError:
    pass
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    assert (tmp_path / "wishes").read_bytes() == b"5" and (tmp_path / "other").read_bytes() == b""
