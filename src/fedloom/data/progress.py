"""Progress of long work on data, reported to a listener if there is one.

A progress display listens while it is open; otherwise nobody does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

# Called with what is being done, how many items are finished, and how many there are.
Tell: TypeAlias = Callable[[str, int, int], None]
Item = TypeVar("Item")
STEPS = 200  # at most so many calls for one task
LISTENER: ContextVar[Tell | None] = ContextVar("listener", default=None)


@contextmanager
def listening(tell: Tell) -> Iterator[None]:
    """Reports the progress of long work to `tell` while this context is open."""
    token = LISTENER.set(tell)
    try:
        yield
    finally:
        LISTENER.reset(token)


def with_progress(task: str, items: Sequence[Item]) -> Iterator[Item]:
    """Yields the items, and reports to the listener after some of them and after the last."""
    tell = LISTENER.get()
    step = max(1, len(items) // STEPS)
    for number, item in enumerate(items, 1):
        yield item
        if tell is not None and (number % step == 0 or number == len(items)):
            tell(task, number, len(items))
