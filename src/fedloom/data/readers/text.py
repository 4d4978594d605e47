"""Plain text, for foretelling the next character.

A sample is a window of symbols, its label the symbol after it. A window has 80 symbols, as in LEAF.
The next one begins `stride` symbols further on, by default where the one before ended: every symbol
is read once, and no test window shares one with a training window but for its label. LEAF's own
stride is 1, which makes 80 times the samples: `shakespeare:80:1`.

A text of paragraphs that open with `ROLE:` on a line of their own, as a play's, is grouped by role.
All that a role says is one text, without the names; windows never mix roles, and a role with less
than one window is left out.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.data.source import Source
from fedloom.errors import FedloomError

WINDOW = 80  # symbols
NAMES = ("input.txt", "tinyshakespeare_input.txt", "tinyshakespeare.txt")
HEAD = re.compile(r"([^\n:]{1,60}):[ \t]*(?:\n|$)")  # the first line of a role's paragraph
SPELLED = {" ": "space", "\n": "newline", "\t": "tab"}
CHUNK = 1 << 22  # symbols that are turned into numbers at once
ROWS = 1 << 16  # windows that are gathered at once


class Windows(NamedTuple):
    """Windows, the symbol after each, and how many of them each text has."""

    x: np.ndarray
    y: np.ndarray
    counts: np.ndarray


def shakespeare(
    directory: Path | None = None,
    window: int = WINDOW,
    stride: int | None = None,
) -> Source:
    """Tiny Shakespeare, a million characters of plays, to foretell the next; roles are groups."""
    home = directory or Path()
    below = home / "shakespeare"
    for folder in (home, below):
        for name in NAMES:
            file = folder / name
            if file.is_file():
                return read_text(file, window, stride, "shakespeare")
    names = " or ".join(NAMES)
    rule = f"--data shakespeare must have its file, {names}, in {home} or {below}"
    advice = "name --data-dir, or `fedloom data get shakespeare`"
    raise FedloomError(rule, "there is none", advice)


def read_text(
    file: Path,
    window: int = WINDOW,
    stride: int | None = None,
    name: str | None = None,
) -> Source:
    """One text file, by role if it is made of roles' paragraphs."""
    if stride is None:
        stride = window
    if min(window, stride) < 1:
        rule = "window and stride must be at least 1"
        raise FedloomError(rule, f"got {window} and {stride}", "try 80 and 80")
    text = decoded(file)
    stride = min(stride, len(text))  # beyond its end there is nothing
    alphabet = alphabet_of(file, [text])
    parts = roles(text)
    by_role = parts is not None
    if parts is None:
        parts = {"": text}
    texts = {role: words for role, words in parts.items() if len(words) > window}
    if not texts:
        longest = max(len(words) for words in parts.values())
        raise too_short(file, window, longest, by_role)
    symbols = numbered("".join(texts.values()), alphabet)
    samples = windows(symbols, [len(words) for words in texts.values()], window, stride)
    source = Source(
        name or file.stem,
        samples.x,
        samples.y,
        spelled(alphabet),
        kind="text",
        grouping="role",
    )
    if not by_role:
        return source
    groups = np.repeat(np.arange(len(texts)), samples.counts)
    return replace(source, groups=groups, group_names=tuple(texts))


def too_short(file: Path, window: int, longest: int, by_role: bool) -> FedloomError:
    rule = f"{file} must have more than a window of {window} characters"
    if by_role:
        rule = f"{rule} in some role"
    advice = f"add text, or ask for a smaller window, for example {file.name}:10"
    return FedloomError(rule, f"it has {longest}", advice)


# What a file says


def decoded(file: Path) -> str:
    """A file's text, newlines as one character. What is no text is refused."""
    rule = f"{file} must be a text in UTF-8"
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        found = f"it could not be read ({error.strerror})"
        raise FedloomError(rule, found, "check the file") from error
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is not: another encoding, or no text at all"
        raise FedloomError(rule, found, "convert it, for example with iconv") from error
    if not text.strip():
        raise FedloomError(rule, "it is empty", "give one with text in it")
    if "\0" in text:
        place = text.index("\0")
        raise FedloomError(rule, f"character {place} is NUL: it is no text", "give a plain text")
    return text.replace("\r\n", "\n")


def roles(text: str) -> dict[str, str] | None:
    """What each role says, in the order of their first words.

    It is None if the text is not made of roles' paragraphs.
    """
    paragraphs = re.split(r"\n{2,}", text.strip("\n"))
    paragraphs = [paragraph for paragraph in paragraphs if paragraph.strip()]
    if not HEAD.match(paragraphs[0]):
        return None
    speeches: dict[str, list[str]] = {}
    role = ""
    for paragraph in paragraphs:
        words = paragraph
        head = HEAD.match(paragraph)
        if head:  # a paragraph without a name goes on with the role before
            role = head[1].strip()
            words = paragraph[head.end() :]
        if words:
            speeches.setdefault(role, []).append(f"{words}\n")
    if len(speeches) < 2:
        return None
    return {role: "".join(paragraphs) for role, paragraphs in speeches.items()}


# Symbols as numbers


def alphabet_of(file: Path, texts: Iterable[str]) -> str:
    """Every symbol that occurs, sorted."""
    alphabet = "".join(sorted(set().union(*texts)))
    if len(alphabet) < 2:
        rule = f"{file} must have at least 2 different symbols"
        advice = "give one with something to foretell in it"
        raise FedloomError(rule, f"it has {len(alphabet)}", advice)
    return alphabet


def numbered(text: str, alphabet: str) -> np.ndarray:
    """Each symbol's place in the alphabet, in the smallest type that torch computes with."""
    dtype = np.uint8 if len(alphabet) <= 256 else np.int32
    table = np.zeros(ord(alphabet[-1]) + 1, dtype)
    table[[ord(symbol) for symbol in alphabet]] = np.arange(len(alphabet))
    symbols = np.empty(len(text), table.dtype)
    for start in range(0, len(text), CHUNK):
        chunk = text[start : start + CHUNK].encode("utf-32-le", "surrogatepass")
        symbols[start : start + CHUNK] = table[np.frombuffer(chunk, "<u4")]
    return symbols


def spelled(alphabet: str) -> tuple[str, ...]:
    """A printable name for each symbol.

    Only a symbol that stands for itself has a name of one character.
    """
    return tuple(spelled_symbol(symbol) for symbol in alphabet)


def spelled_symbol(symbol: str) -> str:
    if symbol in SPELLED:
        return SPELLED[symbol]
    if symbol.isprintable():
        return symbol
    return f"U+{ord(symbol):04X}"


# Windows


def windows(symbols: np.ndarray, lengths: Sequence[int], window: int, stride: int) -> Windows:
    """The windows of the texts that lie end to end in `symbols`.

    Of one text, x is a view of its symbols, so that overlapping windows take no memory. Those of
    several do not lie at equal distances: they are written into a temporary file that is mapped and
    has no name any more.
    """
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    counts = np.array([(length - window - 1) // stride + 1 for length in lengths])
    # Which of its own text's windows each one is.
    nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.repeat(begins, counts) + stride * nth
    labels = symbols[starts + window].astype(np.int64)
    every = np.lib.stride_tricks.sliding_window_view(symbols, window)
    if len(lengths) == 1:
        return Windows(every[: starts[-1] + 1 : stride], labels, counts)
    return Windows(gathered(every, starts), labels, counts)


def gathered(every: np.ndarray, starts: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryFile() as file:
        for first in range(0, len(starts), ROWS):
            file.write(every[starts[first : first + ROWS]].data)
        file.flush()
        return np.memmap(file, every.dtype, "r+", shape=(len(starts), every.shape[1]))
