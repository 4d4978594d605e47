"""Architectures for a reader.

In a few words, for a table's cell; and as a picture where there can be one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from fedloom.errors import FedloomError
from fedloom.spaces import space_of
from fedloom.spaces.drawing import as_svg, graphs_of, slot_by_slot
from fedloom.types import Arch, Json

Answer = TypeVar("Answer")


def in_words(architecture: Json) -> str:
    """A fixed network by its name, a searched one by its operations: `5 sep3, 3 skip`."""
    if architecture is None:
        return "–"
    if not isinstance(architecture, dict):
        return str(architecture)
    try:
        counts = carefully(lambda: operations(Arch.from_plain(architecture)))
    except FedloomError:  # of another version, edited, or of a space that does not answer
        return "unknown"
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def operations(arch: Arch) -> Counter[str]:
    """How often each operation is alive, over all slots, by its short name."""
    space = space_of(arch.space)
    counts: Counter[str] = Counter()
    for slot, live in zip(space.slots, arch.choice, strict=True):
        for op in live:
            counts[space.short_name(slot.options[op])] += 1
    return counts


class Picture(NamedTuple):
    """A file's content, and how its name ends."""

    suffix: str
    content: str
    trouble: str | None = None  # why it is in words, where its space brings a drawing that fails


def drawn(architecture: Json, title: str = "") -> str:
    """As SVG."""
    return carefully(lambda: as_svg(Arch.from_plain(architecture), title))


def pictured(architecture: Json, title: str = "") -> Picture:
    """As SVG; of a space that brings no drawing, or one that fails, in words."""
    arch = carefully(lambda: Arch.from_plain(architecture))
    words = f"{title}\n\n{carefully(lambda: slot_by_slot(arch))}\n"
    try:
        if carefully(lambda: graphs_of(arch)) is None:
            return Picture(".txt", words)
        return Picture(".svg", carefully(lambda: as_svg(arch, title)))
    except FedloomError as error:
        return Picture(".txt", f"{words}\nIts drawing failed: {error}\n", trouble=str(error))


def carefully(work: Callable[[], Answer]) -> Answer:
    """Whatever a space's own code may raise is one error.

    What is told of a result is never worth the result.
    """
    try:
        return work()
    except FedloomError:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        raise FedloomError(
            "an architecture must be of a space that can be drawn",
            " ".join(reason.split()),  # in one line
            "read it as JSON",
        ) from error
