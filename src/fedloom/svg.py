"""Text inside SVG and HTML: what XML cannot hold is replaced, what it would misread is escaped."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML cannot hold
REPLACEMENT = "\ufffd"
TO_BASE_LINE = 4  # pixels from the middle of a line of text


def printable(words: str) -> str:
    """Names come from folders, files and clients: none of their characters may break XML or move a cursor."""
    return CONTROL.sub(REPLACEMENT, words)


def text(x: float, y: float, words: str, kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y + TO_BASE_LINE:g}">{escape(words)}</text>'
