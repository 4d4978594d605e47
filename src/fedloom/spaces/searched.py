"""Which space a task searches, and how large its network is: what a method's recipe answers."""

from __future__ import annotations

from typing import NamedTuple

from fedloom.spaces import is_foreign
from fedloom.spaces.space import Size, Space


class SearchedSpace(NamedTuple):
    space: Space
    size: Size
    final: Size | None = None  # of a final network that repeats the cells that were searched

    @property
    def is_foreign(self) -> bool:
        """Whether it is none of ours: those have tests."""
        return is_foreign(self.space.family)
