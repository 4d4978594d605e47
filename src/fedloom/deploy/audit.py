"""A site's audit log: every order that came, and every answer that left or was refused.

KIT/audit.jsonl   one JSON object per line; each holds the SHA-256 of the line before it
KIT/audit.head    the number and the SHA-256 of the last line

So a line that is changed, left out, added in between or moved is noticed at the next one, and lines
cut off at the end are noticed by the head. Both files are on the disk before an answer leaves, so
that not even a power cut loses what the server has seen, or leaves a head that is far behind. A
line that a power cut left unfinished is cut off, because its answer never left, and so is one whose
head a full disk did not take.

Whoever can write in the kit can make a new log that is whole. Keep the head that `federation audit`
prints somewhere else: `--head` then tells whether the log still contains it.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from fedloom.errors import FedloomError
from fedloom.federation.protocol.strict_json import read_json
from fedloom.files import write_whole
from fedloom.types import Json

LOG = "audit.jsonl"
HEAD = "audit.head"
NO_LINE = "0" * 64  # what the first line holds instead of the digest of a line before it
MOST_LINE = 32 << 20  # bytes; no line that a site writes is longer
MOST_HEAD = 1000  # bytes
DIGEST = re.compile("[0-9a-f]{64}")
OWN_NAMES = ("number", "previous", "time", "event")  # of every line
TAIL = 1 << 16  # bytes that are read at a time to find the last line


class AuditError(FedloomError):
    """The audit log is not as the site wrote it."""


@dataclass(frozen=True)
class Head:
    """The last line of a log, or the place before its first line."""

    number: int
    digest: str

    def to_json(self) -> dict[str, Json]:
        return {"number": self.number, "digest": self.digest}


BEGINNING = Head(0, NO_LINE)


@dataclass(frozen=True)
class Line:
    """One line of the log."""

    number: int
    previous: str  # the SHA-256 of the line before
    time: str  # by the site's clock, which nothing relies on
    event: str  # "order", "reply", "refused", "approved", …
    content: dict[str, Json]

    def to_bytes(self) -> bytes:
        own = {
            "number": self.number,
            "previous": self.previous,
            "time": self.time,
            "event": self.event,
        }
        return json.dumps({**own, **self.content}, allow_nan=False).encode()

    def to_json(self) -> dict[str, Json]:
        return {"number": self.number, "time": self.time, "event": self.event, **self.content}

    @classmethod
    def read(cls, raw: bytes) -> Line:
        """Read one line. Raises ValueError."""
        if len(raw) > MOST_LINE:
            raise ValueError(f"it has {len(raw):,} bytes")
        content = read_json(raw.decode(), finite=True)
        if not isinstance(content, dict) or not content.keys() >= set(OWN_NAMES):
            raise ValueError("it is not a line of an audit log")
        number = content.pop("number")
        previous = content.pop("previous")
        time = content.pop("time")
        event = content.pop("event")
        texts = (previous, time, event)
        if type(number) is not int or not all(isinstance(text, str) for text in texts):
            raise ValueError("it is not a line of an audit log")
        return cls(number, previous, time, event, content)


def digest_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


@dataclass(frozen=True)
class AuditLog:
    """The audit log of a kit."""

    kit: Path

    @property
    def path(self) -> Path:
        return self.kit / LOG

    def append(self, event: str, content: Mapping[str, Json]) -> int:
        """Add a line, and return its number. It is on the disk when this returns.

        Raises AuditError if the end of the log is not what its head says, and OSError if it cannot
        be written. Nothing may leave the site then.
        """
        with locked(self.path) as file:
            head = self._end(file)
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            line = Line(head.number + 1, head.digest, now, event, dict(content)).to_bytes()
            if len(line) > MOST_LINE:
                raise ValueError(f"a line of the audit log would have {len(line):,} bytes")
            end = file.seek(0, os.SEEK_END)
            new_head = Head(head.number + 1, digest_of(line))
            try:
                write_all(file, line + b"\n")
                os.fsync(file.fileno())
                self._write_head(new_head)
            except OSError:
                if self.head() != new_head:
                    file.truncate(end)  # such as on a full disk: the line does not count
                raise
        return head.number + 1

    def _end(self, file: FileIO) -> Head:
        """The last whole line, which must be the head's or the one after it.

        Appending checks no more than this, because it is done for every order.
        """
        head = self.head()
        size = file.seek(0, os.SEEK_END)
        last, end = last_line(file, size)
        if end < size:
            file.truncate(end)  # a line that was never finished, so its answer never left
        if last is None:
            if head != BEGINNING:
                raise self._broken(1, f"the log is empty, but {HEAD} names line {head.number}")
            return head
        try:
            line = Line.read(last)
        except ValueError as error:
            raise self._broken(None, f"its last line cannot be read ({error})") from None
        found = Head(line.number, digest_of(last))
        was_killed_before_head = line.number == head.number + 1 and line.previous == head.digest
        if found != head and not was_killed_before_head:
            raise self._broken(line.number, f"{HEAD} names another last line, {head.number}")
        if was_killed_before_head:
            self._write_head(found)  # a site that is killed again must not be two lines ahead
        return found

    def head(self) -> Head:
        path = self.kit / HEAD
        try:
            raw = path.read_bytes()[: MOST_HEAD + 1]
        except FileNotFoundError:
            return BEGINNING
        try:
            content = read_json(raw.decode())
            number = content["number"]
            digest = content["digest"]
            if type(number) is not int or len(content) != 2 or not DIGEST.fullmatch(digest):
                raise ValueError
        except (ValueError, TypeError, KeyError):
            raise AuditError(
                f"{path} must be as the site wrote it",
                "it is damaged",
                "restore it; see docs/deploy.md",
            ) from None
        return Head(number, digest)

    def _write_head(self, head: Head) -> None:
        content = json.dumps(head.to_json()).encode()
        write_whole(self.kit / HEAD, [content], durable=True)

    def verified(self) -> Iterator[tuple[Line, str]]:
        """Yield the lines and their digests, checking each.

        Raises AuditError, which names the first wrong line. A last line that was never finished is
        left out: the next one replaces it.
        """
        if not self.path.exists():
            head = self.head()
            if head != BEGINNING:
                raise self._broken(1, f"there is no log, but {HEAD} names line {head.number}")
            return
        with opened(self.path) as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            head = self.head()
            last = BEGINNING
            head_was_met = head == BEGINNING
            for raw in bounded_lines(file):
                place = last.number + 1
                if not raw.endswith(b"\n"):
                    if head_was_met:
                        break  # a power cut came while it was written, so its answer never left
                    raise self._broken(place, "it is unfinished")
                line = self._checked(raw[:-1], last)
                last = Head(line.number, digest_of(raw[:-1]))
                if last.number == head.number:
                    if last != head:
                        raise self._broken(place, f"{HEAD} has another digest of it")
                    head_was_met = True
                if last.number > head.number + 1:  # a site that was killed is one line ahead
                    raise self._broken(place, f"{HEAD} names line {head.number} as the last one")
                yield line, last.digest
        if not head_was_met:
            missing = f"lines up to {head.number} must follow line {last.number}"
            raise self._broken(last.number + 1, f"the log ends before it, but {missing}")

    def has_unfinished_line(self) -> bool:
        """Whether a power cut or a full disk left a beginning of a line at the end."""
        if not self.path.exists():
            return False
        with opened(self.path) as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            size = file.seek(0, os.SEEK_END)
            _, end = last_line(file, size)
        return end < size

    def _checked(self, raw: bytes, last: Head) -> Line:
        """The line, after checking that it follows the line before."""
        place = last.number + 1
        try:
            line = Line.read(raw)
        except ValueError as error:
            raise self._broken(place, f"it cannot be read ({error})") from None
        if line.number != place:
            raise self._broken(place, f"line {line.number} stands there")
        if line.previous != last.digest:
            if place == 1:
                raise self._broken(1, "it is not the first line of a log")
            raise self._broken(place - 1, f"line {place} was written after another line")
        return line

    def _broken(self, number: int | None, problem: str) -> AuditError:
        where = "its end"
        if number is not None:
            where = f"line {number}"
        return AuditError(
            f"{self.path} must be as the site wrote it",
            f"{where} is not: {problem}",
            f"restore it, or move it and {HEAD} to a safe place: the site then begins a new one",
        )


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        reason = f"it cannot be read ({error.strerror})"
        raise AuditError(f"{path} must be readable", reason, "restore it") from None


def last_line(file: BinaryIO | FileIO, size: int) -> tuple[bytes | None, int]:
    """The last whole line of a file without its end, and where the file's whole lines end."""
    begin = size
    tail = b""
    while begin > 0 and len(tail) <= 2 * MOST_LINE:
        step = min(TAIL, begin)
        begin -= step
        file.seek(begin)
        tail = file.read(step) + tail
        if tail.count(b"\n") >= 2:
            break
    *whole_lines, unfinished = tail.split(b"\n")
    if whole_lines:
        return whole_lines[-1], size - len(unfinished)
    if begin == 0:
        return None, 0
    return None, size  # no line that a site writes is so long: nothing is cut off


def bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file with their ends. A line without any end is cut."""
    while True:
        raw = file.readline(MOST_LINE + 2)
        if not raw:
            return
        yield raw


def write_all(file: FileIO, content: bytes) -> None:
    """Write to a file without a buffer, which may take a part at a time."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


@contextmanager
def locked(path: Path) -> Iterator[FileIO]:
    """A file that can be read and appended to, by one process at a time and its owner alone.

    It has no buffer: what could not be written would be tried again when the file is closed.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with open(handle, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
