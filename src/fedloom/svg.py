"""Text inside SVG and HTML: what XML cannot hold is replaced, what it would misread is escaped."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

# Every character that XML cannot hold.
CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"
TO_BASE_LINE = 4  # pixels from the middle of a line of text


def printable(words: str) -> str:
    """Replace what could break XML or move a cursor.

    Names come from folders, files and clients, so any character may be in them.
    """
    return CONTROL.sub(REPLACEMENT, words)


def text(x: float, y: float, words: str, kind: str = "label") -> str:
    base_line = y + TO_BASE_LINE
    return f'<text class="{kind}" x="{x:g}" y="{base_line:g}">{escape(words)}</text>'
