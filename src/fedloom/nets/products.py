"""Products that are computed without calling a module, told to whoever counts them.

A meter of MACs sees the modules that are called. What a network computes in another way, such as
the operations of several edges in one call, it tells here.
"""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    def hear_of(self, macs: int) -> None: ...


LISTENING: list[Listener] = []  # in this process, at the moment


def tell(macs: int) -> None:
    """Of products that are computed now, forward or backward."""
    for listener in LISTENING:
        listener.hear_of(macs)
