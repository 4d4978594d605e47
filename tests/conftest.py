"""What holds for every test of this process.

One torch thread, as in every engine: the last bits of a sum depend on it. No waiting for the disk:
a test sees what was written without it, and no test cuts the power. Processes that a test starts do
wait.
"""

import gc
import os
import tempfile

import torch

pytest_plugins = ["pytester"]
torch.set_num_threads(1)
# Nobody's own cache is read or filled by a test.
CACHE = tempfile.TemporaryDirectory(prefix="fedloom-cache-")
os.environ["FEDLOOM_CACHE"] = CACHE.name


def fsync_without_waiting(handle: int) -> None:
    """Refuses what is no open file, as `os.fsync` does."""
    os.fstat(handle)


os.fsync = fsync_without_waiting


def pytest_collection_finish() -> None:
    """What was collected stays until the end: the garbage collector need not visit it again."""
    gc.collect()
    gc.freeze()
