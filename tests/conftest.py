"""One torch thread in every test, as in every engine: the last bits of a sum depend on it."""

import gc
import os
import tempfile

import torch

pytest_plugins = ["pytester"]
torch.set_num_threads(1)
CACHE = tempfile.TemporaryDirectory(
    prefix="fedloom-cache-"
)  # nobody's own cache is read or filled by a test
os.environ["FEDLOOM_CACHE"] = CACHE.name


def pytest_collection_finish() -> None:
    """What was collected stays until the end: the garbage collector need not visit it again."""
    gc.collect()
    gc.freeze()
