"""Importing torch at the start of a program of ours: a command, a worker."""

from __future__ import annotations

import gc
import sys


def load_torch() -> None:
    """Import torch, with the collector of garbage at rest.

    Torch makes a quarter of a million objects that all stay: to look through them again and again
    while they are made, in every full collection afterwards and once more at the end takes a
    quarter of what the import costs. So nothing is collected meanwhile, and what is there then is
    never looked at again. For programs of ours alone: in somebody else's process the collector is
    theirs, and where torch is there already nothing happens.
    """
    if "torch" in sys.modules:
        return
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        import torch  # noqa: F401
    finally:
        if was_collecting:
            gc.enable()
    gc.freeze()
