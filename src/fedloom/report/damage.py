"""Files of a run that exist but cannot be read. Readers of a page must know about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fedloom.report.html import Safe
from fedloom.report.parts import note


class Damage(NamedTuple):
    """A file that cannot be read."""

    file: str
    sentence: str  # what is wrong with the file, and what follows from that


def damage_note(sentences: Iterable[str]) -> Safe | None:
    text = " ".join(sentences)
    if not text:
        return None
    return note(text)
