"""Plain text, for foretelling the next character: a sample is a window of symbols, its label the symbol after it.

A window has 80 symbols, as in LEAF. The next one begins `stride` symbols further on, by default where the one before
ended: every symbol is read once, and no test window shares one with a training window but for its label. LEAF's own
stride is 1, which makes 80 times the samples: `shakespeare:80:1`.

A text of paragraphs that open with `ROLE:` on a line of their own, as a play's, is grouped by role. All that a role
says is one text, without the names; windows never mix roles, and a role with less than one window is left out.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fedloom.data.source import Source
from fedloom.errors import FedloomError

WINDOW = 80  # symbols
NAMES = ("input.txt", "tinyshakespeare_input.txt", "tinyshakespeare.txt")
HEAD = re.compile(r"([^\n:]{1,60}):[ \t]*(?:\n|$)")  # the first line of a role's paragraph
SPELLED = {" ": "space", "\n": "newline", "\t": "tab"}
CHUNK = 1 << 22  # symbols that are turned into numbers at once
ROWS = 1 << 16  # windows that are gathered at once


def shakespeare(directory: Path | None = None, window: int = WINDOW, stride: int | None = None) -> Source:
    """Tiny Shakespeare, a million characters of plays: the next one is to be foretold; roles are its groups."""
    folders = [Path() if directory is None else directory]
    folders.append(folders[0] / "shakespeare")
    for file in (folder / name for folder in folders for name in NAMES):
        if file.is_file():
            return read_text(file, window, stride, "shakespeare")
    must = f"--data shakespeare must have its file, {' or '.join(NAMES)}, in {folders[0]} or {folders[1]}"
    raise FedloomError(must, "there is none", "name --data-dir, or `fedloom data get shakespeare`")


def read_text(file: Path, window: int = WINDOW, stride: int | None = None, name: str | None = None) -> Source:
    """One text file, by role if it is made of roles' paragraphs."""
    step = window if stride is None else stride
    if min(window, step) < 1:
        raise FedloomError("window and stride must be at least 1", f"got {window} and {step}", "try 80 and 80")
    text = decoded(file)
    step = min(step, len(text))  # beyond its end there is nothing
    alphabet = alphabet_of(file, [text])
    spoken = roles(text)
    texts = {"": text} if spoken is None else spoken
    long = {role: said for role, said in texts.items() if len(said) > window}
    if not long:
        must = f"{file} must have more than a window of {window} characters" + " in some role" * (spoken is not None)
        found = f"it has {max(map(len, texts.values()))}"
        raise FedloomError(must, found, f"add text, or ask for a smaller window, for example {file.name}:10")
    symbols = numbered("".join(long.values()), alphabet)
    x, y, counts = windows(symbols, [len(said) for said in long.values()], window, step)
    whose = None if spoken is None else np.repeat(np.arange(len(counts)), counts)
    names = () if spoken is None else tuple(long)
    return Source(
        name or file.stem, x, y, spelled(alphabet), kind="text", groups=whose, group_names=names, grouping="role"
    )


def decoded(file: Path) -> str:
    """A file's text, newlines as one character. What is no text is refused; nothing is ever unpickled."""
    must = f"{file} must be a text in UTF-8"
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise FedloomError(must, f"it could not be read ({error.strerror})", "check the file") from error
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is not: another encoding, or no text at all"
        raise FedloomError(must, found, "convert it, for example with iconv") from error
    if not text.strip():
        raise FedloomError(must, "it is empty", "give one with text in it")
    if "\0" in text:
        raise FedloomError(must, f"character {text.index(chr(0))} is NUL: it is no text", "give a plain text")
    return text.replace("\r\n", "\n")


def roles(text: str) -> dict[str, str] | None:
    """What each role says, in the order of their first words; None if the text is not made of roles' paragraphs."""
    paragraphs = [paragraph for paragraph in re.split(r"\n{2,}", text.strip("\n")) if paragraph.strip()]
    if not HEAD.match(paragraphs[0]):
        return None
    said: dict[str, list[str]] = {}
    role = ""
    for paragraph in paragraphs:
        head = HEAD.match(paragraph)
        role = head[1].strip() if head else role  # a paragraph without a name goes on with the role before
        words = paragraph[head.end() :] if head else paragraph
        if words:
            said.setdefault(role, []).append(f"{words}\n")
    return {role: "".join(parts) for role, parts in said.items()} if len(said) > 1 else None


def alphabet_of(file: Path, texts: Iterable[str]) -> str:
    """Every symbol that occurs, sorted."""
    alphabet = "".join(sorted(set().union(*texts)))
    if len(alphabet) < 2:
        todo = "give one with something to foretell in it"
        raise FedloomError(f"{file} must have at least 2 different symbols", f"it has {len(alphabet)}", todo)
    return alphabet


def numbered(text: str, alphabet: str) -> np.ndarray:
    """Each symbol's place in the alphabet, in the smallest type that torch computes with."""
    table = np.zeros(ord(alphabet[-1]) + 1, np.uint8 if len(alphabet) <= 256 else np.int32)
    table[[ord(symbol) for symbol in alphabet]] = np.arange(len(alphabet))
    symbols = np.empty(len(text), table.dtype)
    for start in range(0, len(text), CHUNK):
        codes = np.frombuffer(text[start : start + CHUNK].encode("utf-32-le", "surrogatepass"), "<u4")
        symbols[start : start + CHUNK] = table[codes]
    return symbols


def windows(
    symbols: np.ndarray, lengths: Sequence[int], window: int, stride: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and how many of each of the texts that lie end to end in `symbols`.

    Of one text, x is a view of its symbols, so that overlapping windows take no memory. Those of several do not lie
    at equal distances: they are written into a temporary file that is mapped and has no name any more.
    """
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    counts = np.array([(length - window - 1) // stride + 1 for length in lengths])
    nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)  # of its own text's windows
    starts = np.repeat(begins, counts) + stride * nth
    every = np.lib.stride_tricks.sliding_window_view(symbols, window)
    x = every[: starts[-1] + 1 : stride] if len(lengths) == 1 else gathered(every, starts)
    return x, symbols[starts + window].astype(np.int64), counts


def gathered(every: np.ndarray, starts: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryFile() as file:
        for first in range(0, len(starts), ROWS):
            file.write(every[starts[first : first + ROWS]].data)
        file.flush()
        return np.memmap(file, every.dtype, "r+", shape=(len(starts), every.shape[1]))


def spelled(alphabet: str) -> tuple[str, ...]:
    """A printable name for each symbol; only a symbol that stands for itself has a name of one character."""
    return tuple(SPELLED.get(one, one if one.isprintable() else f"U+{ord(one):04X}") for one in alphabet)
