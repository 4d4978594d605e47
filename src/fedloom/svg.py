"""Text inside SVG and HTML: characters that XML cannot hold are replaced, its own are escaped."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

# Every character that XML cannot hold.
CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"
TO_BASE_LINE = 4  # pixels from the middle of a line of text down to its base line


def printable(text: str) -> str:
    """Replace characters that could break XML or move a terminal's cursor.

    Names come from folders, files and clients, so any character may be in them.
    """
    return CONTROL.sub(REPLACEMENT, text)


def text(x: float, y: float, content: str, kind: str = "label") -> str:
    """An SVG text element whose middle is at height `y`; `kind` is its CSS class."""
    base_line = y + TO_BASE_LINE
    return f'<text class="{kind}" x="{x:g}" y="{base_line:g}">{escape(content)}</text>'
