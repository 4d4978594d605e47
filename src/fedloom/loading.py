"""Importing torch at the start of our own programs: commands and workers."""

from __future__ import annotations

import gc
import sys


def load_torch() -> None:
    """Import torch with the garbage collector switched off.

    torch creates a quarter of a million objects that all stay alive. To visit them again and again
    during the import, in every full collection afterwards and once more at exit costs a quarter of
    the import's time. So nothing is collected during the import, and the objects that exist
    afterwards are frozen: no later collection visits them. Only our own programs call this, because
    in another program's process the collector is not ours to change. Where torch is imported
    already, nothing happens.
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
