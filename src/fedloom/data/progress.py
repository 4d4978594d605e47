"""How far long work on data has come, for whoever listens.

That is a screen while it is open, and nobody otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

Tell: TypeAlias = Callable[[str, int, int], None]  # what is worked on, how many are done, of all
Item = TypeVar("Item")
STEPS = 200  # calls of one long work, at most
LISTENER: ContextVar[Tell | None] = ContextVar("listener", default=None)


@contextmanager
def listening(tell: Tell) -> Iterator[None]:
    """While this is open, `tell` hears of long work."""
    token = LISTENER.set(tell)
    try:
        yield
    finally:
        LISTENER.reset(token)


def with_progress(what: str, items: Sequence[Item]) -> Iterator[Item]:
    """The items, one by one; the listener hears of some of them and of the last."""
    tell = LISTENER.get()
    step = max(1, len(items) // STEPS)
    for number, item in enumerate(items, 1):
        yield item
        if tell is not None and (number % step == 0 or number == len(items)):
            tell(what, number, len(items))
