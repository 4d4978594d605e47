"""Architectures for readers: in a few words for a table's cell, or as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from fedloom.errors import FedloomError
from fedloom.spaces import space_of
from fedloom.spaces.drawing import as_svg, graphs_of, slot_by_slot
from fedloom.types import Arch, Json

Result = TypeVar("Result")


def in_words(architecture: Json) -> str:
    """Describe a fixed network by its name, and a searched one by its operations: `5 sep3, 3 skip`.

    An architecture that cannot be read is "unknown".
    """
    if architecture is None:
        return "–"
    if not isinstance(architecture, dict):
        return str(architecture)
    try:
        counts = carefully(lambda: operations(Arch.from_plain(architecture)))
    except FedloomError:  # written by another version, edited, or its space's code failed
        return "unknown"
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def operations(arch: Arch) -> Counter[str]:
    """Count in how many slots each operation is chosen, by the operation's short name."""
    space = space_of(arch.space)
    counts: Counter[str] = Counter()
    for slot, chosen_ops in zip(space.slots, arch.choice, strict=True):
        for op in chosen_ops:
            counts[space.short_name(slot.options[op])] += 1
    return counts


class Picture(NamedTuple):
    """The content of a picture's file, and the suffix of its name."""

    suffix: str
    content: str
    trouble: str | None = None  # why the picture is text although its space has a drawing


def svg_of(architecture: Json, title: str = "") -> str:
    """Draw an architecture as SVG."""
    return carefully(lambda: as_svg(Arch.from_plain(architecture), title))


def pictured(architecture: Json, title: str = "") -> Picture:
    """Draw an architecture as SVG, or as text if its space has no drawing or the drawing fails."""
    arch = carefully(lambda: Arch.from_plain(architecture))
    text = f"{title}\n\n{carefully(lambda: slot_by_slot(arch))}\n"
    try:
        if carefully(lambda: graphs_of(arch)) is None:
            return Picture(".txt", text)
        return Picture(".svg", carefully(lambda: as_svg(arch, title)))
    except FedloomError as error:
        return Picture(".txt", f"{text}\nIts drawing failed: {error}\n", trouble=str(error))


def carefully(work: Callable[[], Result]) -> Result:
    """Call code of a space, and turn whatever it raises into a FedloomError.

    A failing description or drawing must never cost the result that it describes.
    """
    try:
        return work()
    except FedloomError:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        raise FedloomError(
            "an architecture must be of a space that can be drawn",
            " ".join(reason.split()),  # on one line
            "read it as JSON",
        ) from error
