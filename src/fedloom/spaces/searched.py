"""The space that a task searches and the size of its network, as a method's recipe returns them."""

from __future__ import annotations

from typing import NamedTuple

from fedloom.spaces import is_foreign
from fedloom.spaces.space import Size, Space


class SearchedSpace(NamedTuple):
    space: Space
    size: Size
    final: Size | None = None  # the size of a final network that repeats the searched cells

    @property
    def is_foreign(self) -> bool:
        """Whether the space is not built in: built-in spaces have tests."""
        return is_foreign(self.space.family)
