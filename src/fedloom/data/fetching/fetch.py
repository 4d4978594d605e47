"""One file over HTTP: resumed where it stopped, verified, then renamed into place.

What has come lies in `NAME.part`, and beside it in `NAME.part.json` what the server said of the
file: a part is only continued while the server still says the same. Whatever is glued together
wrongly all the same, the checksum finds.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from fedloom.data.fetching.catalogue import Remote
from fedloom.data.fetching.digests import broken
from fedloom.data.fetching.shown import Silent
from fedloom.errors import FedloomError
from fedloom.version import __version__

PASSING = {408, 425, 429, 500, 502, 503, 504}  # answers that another attempt may change
OFFLINE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
BLOCK = 1 << 16
TROUBLE = (OSError, http.client.HTTPException)


class Unfetched(FedloomError):
    """A file could not be had from a server; the user may fetch it by other means."""


@dataclass(frozen=True)
class Patience:
    stall: float = 30.0  # seconds without a byte, after which a connection is given up
    attempts: int = 5  # in a row that bring nothing new
    pause: float = 1.0  # seconds before the second attempt; doubled for each further one


@dataclass(frozen=True)
class Facts:
    """What a server said of a file."""

    url: str
    total: int | None  # its size
    validator: str | None  # its ETag, or when it was changed


@dataclass
class Part:
    """What has come of a file, and what the server said of it."""

    path: Path
    url: str
    glued: bool = False  # whether it came in more than one piece

    @property
    def note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def size(self) -> int:
        if not self.path.is_file():
            return 0
        return self.path.stat().st_size

    def facts(self) -> Facts | None:
        """What the server said; None if there is nothing to continue from this URL."""
        try:
            raw = json.loads(self.note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(raw, dict) or raw.get("url") != self.url:
            return None
        return Facts(self.url, raw.get("total"), raw.get("validator"))

    def begin(self, start: int, facts: Facts) -> None:
        """Bytes that do not belong to what the server now says go first.

        So a kill in between leaves nothing to glue.
        """
        self.glued = start > 0
        mode = "r+b" if start else "wb"
        with disk(self.path), open(self.path, mode) as file:
            file.truncate(start)
        with disk(self.note):
            self.note.write_text(json.dumps(asdict(facts)), encoding="utf-8")

    def drop(self) -> None:
        for file in (self.note, self.path):
            file.unlink(missing_ok=True)


def fetch(remote: Remote, target: Path, shown: Silent, patience: Patience) -> None:
    """From the first of its URLs that gives it.

    `target` is then whole and verified, or absent.
    """
    failures: list[Unfetched] = []
    for url in remote.urls:
        part = Part(target.with_name(f"{target.name}.part"), url)
        try:
            fetch_from(part, remote, shown, patience)
        except Unfetched as failure:
            failures.append(failure)
            if url != remote.urls[-1]:
                shown.say(f"{failure} Trying the next mirror.")
            continue
        with disk(target):
            os.replace(part.path, target)
            part.note.unlink(missing_ok=True)
        return
    raise failures[0]


def fetch_from(part: Part, remote: Remote, shown: Silent, patience: Patience) -> None:
    if part.size and part.facts() is not None:
        shown.say(f"{remote.name}: going on after {part.size} bytes")
    download(part, remote, shown, patience)
    mismatch = broken(part.path, remote.checksums)
    if mismatch is not None and part.glued:
        shown.say(f"{remote.name}: its pieces do not fit; starting over")
        part.drop()
        download(part, remote, shown, patience)
        mismatch = broken(part.path, remote.checksums)
    if mismatch is not None:
        part.drop()
        raise Unfetched(
            f"{part.url} must have the {mismatch.published}",
            f"what came has {mismatch.digest}",
            "the file was damaged on its way or has changed: try again later",
        )


def download(part: Part, remote: Remote, shown: Silent, patience: Patience) -> None:
    """Attempt after attempt, as long as every few of them bring something new."""
    fruitless = 0
    largest = part.size
    while True:
        try:
            return transfer(part, remote, shown, patience)
        except TROUBLE as error:
            fruitless += 1
            if part.size > largest:
                largest = part.size
                fruitless = 0
            if final(error) or fruitless >= patience.attempts:
                rule = f"{part.url} must be fetched"
                raise Unfetched(rule, reason(error, patience), when_to_try(part)) from error
        time.sleep(min(patience.pause * 2**fruitless, 60.0))


def when_to_try(part: Part) -> str:
    if not part.size:
        return "try again later"
    kept = f"{part.size} bytes are kept and the next attempt goes on from there"
    return f"try again later; {kept}"


def transfer(part: Part, remote: Remote, shown: Silent, patience: Patience) -> None:
    """One attempt: the rest of the file, or all of it."""
    before = part.facts()
    have = part.size
    if before is None:
        have = 0
    if have and before is not None and have == before.total:
        return
    request = urllib.request.Request(part.url, headers=headers(have, before))
    try:
        response = urllib.request.urlopen(request, timeout=patience.stall)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.drop()  # the file has become shorter: the next attempt starts over
        raise
    with response:
        extent = extent_of(response, part, have, before)
        check_size(part, remote, extent.total)
        validator = response.headers.get("ETag") or response.headers.get("Last-Modified")
        part.begin(extent.start, Facts(part.url, extent.total, validator))
        size = receive(response, part, extent.start, remote, shown)
    expected = extent.total
    if expected is None and remote.exact:
        expected = remote.size
    if expected is not None and size < expected:
        raise ConnectionError(f"the connection ended after {size} of {expected} bytes")


def headers(have: int, facts: Facts | None) -> dict[str, str]:
    """What to ask for: all of the file, or what comes after the bytes that are here.

    A weak ETag says that two files mean the same, not that they are the same: it is no ground to go
    on.
    """
    asked = {"User-Agent": f"fedloom/{__version__}", "Accept-Encoding": "identity"}
    if not have or facts is None:
        return asked
    validator = facts.validator
    if isinstance(validator, str) and validator.startswith("W/"):
        return asked
    asked["Range"] = f"bytes={have}-"
    if isinstance(validator, str):
        asked["If-Range"] = validator
    return asked


class Extent(NamedTuple):
    """Where an answer's bytes belong, and how long the whole file is if the server says so."""

    start: int
    total: int | None


def extent_of(
    response: http.client.HTTPResponse,
    part: Part,
    have: int,
    before: Facts | None,
) -> Extent:
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        length = response.headers.get("Content-Length", "")
        if not length.isdecimal():
            return Extent(0, None)
        return Extent(0, int(length))
    content_range = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", content_range)
    if match is not None and int(match[1]) == have:
        total = int(match[3])
        if before is None or before.total in (None, total):
            return Extent(have, total)
    part.drop()  # the next attempt starts over
    raise http.client.HTTPException("it is no longer the file of which a part was here")


def check_size(part: Part, remote: Remote, total: int | None) -> None:
    if total is not None and remote.exact and total != remote.size:
        rule = f"{part.url} must be {remote.size} bytes"
        advice = "it has changed or a page of the server came instead: try again later"
        raise Unfetched(rule, f"the server offers {total}", advice)


def receive(
    response: http.client.HTTPResponse,
    part: Part,
    start: int,
    remote: Remote,
    shown: Silent,
) -> int:
    """Returns the size of the part. Nothing beyond the file's size is written, whatever is sent."""
    size = start
    most = remote.size if remote.exact else 2 * remote.size
    # Unbuffered: what was received is there, whatever comes then.
    with open(part.path, "ab", buffering=0) as file:
        while block := response.read1(BLOCK):
            size += len(block)
            if size > most:
                file.truncate(0)
                about = "" if remote.exact else "about "
                rule = f"{part.url} must be {about}{remote.size} bytes"
                raise Unfetched(rule, "more came", "it has changed: try again later")
            with disk(part.path):
                file.write(block)
            shown.step(remote.name, size, remote.size)
        os.fsync(file.fileno())
    return size


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Trouble with a file of ours is not the network's, and another attempt does not help."""
    try:
        yield
    except OSError as error:
        rule = f"{path} must be writable"
        found = (error.strerror or str(error)).lower()
        advice = "make room or choose another --data-dir; what has come is kept"
        raise FedloomError(rule, found, advice) from error


def final(error: BaseException) -> bool:
    """Whether another attempt cannot help."""
    if isinstance(error, urllib.error.HTTPError):
        shortened = error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
        return error.code not in PASSING and not shortened
    cause = cause_of(error)
    if isinstance(cause, socket.gaierror | ssl.SSLCertVerificationError | str):
        return True
    return isinstance(cause, OSError) and cause.errno in OFFLINE


def reason(error: BaseException, patience: Patience) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    cause = cause_of(error)
    if isinstance(cause, socket.gaierror):
        return f"its host is not found, so there may be no network here ({cause.strerror})"
    if isinstance(cause, TimeoutError):
        return f"the server sent nothing for {patience.stall:g} seconds, again and again"
    if isinstance(cause, OSError) and cause.errno in OFFLINE:
        return f"there is no way to its host ({cause.strerror})"
    return str(cause) or type(cause).__name__


def cause_of(error: BaseException) -> BaseException | str:
    """What lies behind the library's own error."""
    if isinstance(error, urllib.error.URLError):
        return error.reason
    return error
