"""Files of a run that are there and cannot be read as they should.

A reader of the page must know of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fedloom.report.html import Safe
from fedloom.report.parts import note


class Damage(NamedTuple):
    file: str
    sentence: str  # what is wrong with it, and what follows from that


def damage_note(sentences: Iterable[str]) -> Safe | None:
    text = " ".join(sentences)
    if not text:
        return None
    return note(text)
