"""Reports MACs that are computed without calling a module to whoever counts them.

A meter of MACs sees only the modules that are called. What a network computes in another way, such
as the operations of several edges in one call, it reports here.
"""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    def add_reported(self, macs: int) -> None: ...


LISTENERS: list[Listener] = []  # the meters that are counting in this process now


def report_macs(macs: int) -> None:
    """Reports the MACs of products that are computed now, in a forward or backward pass."""
    for listener in LISTENERS:
        listener.add_reported(macs)
