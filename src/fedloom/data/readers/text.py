"""Plain text, to predict the next character.

A sample is a window of symbols, and its label is the symbol after it. A window has 80 symbols, as
in LEAF. The next window begins `stride` symbols later, by default where the previous one ended:
then every symbol is read once, and test windows share no symbol with training windows except a
label. LEAF's own stride is 1, which makes 80 times as many samples: `shakespeare:80:1`.

If the paragraphs of a text begin with `ROLE:` on a separate line, as in a play, samples are grouped
by role. Everything a role says is one text, without the names. Windows never mix roles, and roles
with less than one window are left out.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.data.checks import symbol_type
from fedloom.data.source import Source
from fedloom.errors import FedloomError

WINDOW = 80  # symbols
NAMES = ("input.txt", "tinyshakespeare_input.txt", "tinyshakespeare.txt")
HEAD = re.compile(r"([^\n:]{1,60}):[ \t]*(?:\n|$)")  # the first line of a role's paragraph
SPELLED = {" ": "space", "\n": "newline", "\t": "tab"}
CHUNK = 1 << 22  # symbols that are turned into numbers at a time
ROWS = 1 << 16  # windows that are gathered at a time


class Windows(NamedTuple):
    """The windows of several texts."""

    x: np.ndarray  # [n, window], symbol numbers
    y: np.ndarray  # [n], the symbol after each window
    counts: np.ndarray  # [texts], how many windows each text has


def shakespeare(
    directory: Path | None = None,
    window: int = WINDOW,
    stride: int | None = None,
) -> Source:
    """Tiny Shakespeare, a million characters of plays, to predict the next; roles are groups."""
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
    """Reads a text file, grouped by role if its paragraphs have roles."""
    if stride is None:
        stride = window
    if min(window, stride) < 1:
        rule = "window and stride must be at least 1"
        raise FedloomError(rule, f"got {window} and {stride}", "try 80 and 80")
    text = decoded(file)
    stride = min(stride, len(text))  # there is nothing beyond the end
    alphabet = alphabet_of(file, [text])
    parts = roles(text)
    by_role = parts is not None
    if parts is None:
        parts = {"": text}
    texts = {role: part for role, part in parts.items() if len(part) > window}
    if not texts:
        longest = max(len(part) for part in parts.values())
        raise too_short(file, window, longest, by_role)
    symbols = numbered("".join(texts.values()), alphabet)
    samples = windows(symbols, [len(part) for part in texts.values()], window, stride)
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


# The content of a file


def decoded(file: Path) -> str:
    """Returns a file's text, with newlines as one character. Refuses what is not text."""
    rule = f"{file} must be text in UTF-8"
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        problem = f"it could not be read ({error.strerror})"
        raise FedloomError(rule, problem, "check the file") from error
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not: it has another encoding, or is not text"
        raise FedloomError(rule, problem, "convert it, for example with iconv") from error
    if not text.strip():
        raise FedloomError(rule, "it is empty", "give a file with text")
    if "\0" in text:
        place = text.index("\0")
        raise FedloomError(rule, f"character {place} is NUL: it is not text", "give plain text")
    return text.replace("\r\n", "\n")


def roles(text: str) -> dict[str, str] | None:
    """Returns what each role says, in the order of their first words.

    None: the paragraphs of the text have no roles.
    """
    paragraphs = re.split(r"\n{2,}", text.strip("\n"))
    paragraphs = [paragraph for paragraph in paragraphs if paragraph.strip()]
    if not HEAD.match(paragraphs[0]):
        return None
    speeches: dict[str, list[str]] = {}
    role = ""
    for paragraph in paragraphs:
        speech = paragraph
        head = HEAD.match(paragraph)
        if head:  # a paragraph without a name belongs to the role before
            role = head[1].strip()
            speech = paragraph[head.end() :]
        if speech:
            speeches.setdefault(role, []).append(f"{speech}\n")
    if len(speeches) < 2:
        return None
    return {role: "".join(paragraphs) for role, paragraphs in speeches.items()}


# Symbols as numbers


def alphabet_of(file: Path, texts: Iterable[str]) -> str:
    """Returns every symbol that occurs, sorted."""
    alphabet = "".join(sorted(set().union(*texts)))
    if len(alphabet) < 2:
        rule = f"{file} must have at least 2 different symbols"
        advice = "give a text with something to predict"
        raise FedloomError(rule, f"it has {len(alphabet)}", advice)
    return alphabet


def numbered(text: str, alphabet: str) -> np.ndarray:
    """Returns each symbol's place in the alphabet, as uint8 if it fits, else int32."""
    table = np.zeros(ord(alphabet[-1]) + 1, symbol_type(len(alphabet)))
    table[[ord(symbol) for symbol in alphabet]] = np.arange(len(alphabet))
    symbols = np.empty(len(text), table.dtype)
    for start in range(0, len(text), CHUNK):
        chunk = text[start : start + CHUNK].encode("utf-32-le", "surrogatepass")
        symbols[start : start + CHUNK] = table[np.frombuffer(chunk, "<u4")]
    return symbols


def spelled(alphabet: str) -> tuple[str, ...]:
    """Returns a printable name for each symbol.

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
    """Returns the windows of texts that lie end to end in `symbols`.

    For a single text, x is a view of its symbols, so overlapping windows take no memory. The
    windows of several texts are not evenly spaced, so they are written to a temporary file, which
    is memory-mapped and already unlinked.
    """
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    counts = np.array([(length - window - 1) // stride + 1 for length in lengths])
    # The number of each window within its text.
    nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.repeat(begins, counts) + stride * nth
    labels = symbols[starts + window].astype(np.int64)
    all_windows = np.lib.stride_tricks.sliding_window_view(symbols, window)
    if len(lengths) == 1:
        return Windows(all_windows[: starts[-1] + 1 : stride], labels, counts)
    return Windows(gathered(all_windows, starts), labels, counts)


def gathered(all_windows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryFile() as file:
        for first in range(0, len(starts), ROWS):
            file.write(all_windows[starts[first : first + ROWS]].data)
        file.flush()
        return np.memmap(file, all_windows.dtype, "r+", shape=(len(starts), all_windows.shape[1]))
