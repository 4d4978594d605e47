"""Downloads one file over HTTP: it is resumed where it stopped, verified, then renamed into place.

Bytes received so far lie in `NAME.part`. What the server said about the file lies beside them in
`NAME.part.json`: a download is only continued while the server still says the same. If pieces that
do not belong together were joined all the same, the checksum detects it.
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
from fedloom.data.fetching.screen import DownloadScreen
from fedloom.errors import FedloomError
from fedloom.version import __version__

PASSING = {408, 425, 429, 500, 502, 503, 504}  # HTTP errors that may pass on another attempt
OFFLINE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
BLOCK = 1 << 16
TROUBLE = (OSError, http.client.HTTPException)


class Unfetched(FedloomError):
    """A file could not be downloaded. The user may fetch it by other means."""


@dataclass(frozen=True)
class Patience:
    """When a download waits, tries again, and gives up."""

    stall: float = 30.0  # seconds without a byte, after which a connection is given up
    attempts: int = 5  # so many attempts in a row without a new byte are the last
    pause: float = 1.0  # seconds before the second attempt; doubled for each further one


@dataclass(frozen=True)
class Facts:
    """What a server said about a file."""

    url: str
    total: int | None  # the size of the file
    validator: str | None  # its ETag, or the time of its last change


@dataclass
class Part:
    """The bytes of a file received so far, and what the server said about the file."""

    path: Path
    url: str
    glued: bool = False  # whether it was received in more than one piece

    @property
    def note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def size(self) -> int:
        if not self.path.is_file():
            return 0
        return self.path.stat().st_size

    def facts(self) -> Facts | None:
        """Returns what the server said. None: there is nothing to continue from this URL."""
        try:
            raw = json.loads(self.note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(raw, dict) or raw.get("url") != self.url:
            return None
        return Facts(self.url, raw.get("total"), raw.get("validator"))

    def begin(self, start: int, facts: Facts) -> None:
        """Keeps the first `start` bytes, and notes what the server now says.

        The other bytes are removed before the note is written: a kill in between then leaves no
        bytes that the next attempt would wrongly continue.
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


def fetch(remote: Remote, target: Path, screen: DownloadScreen, patience: Patience) -> None:
    """Downloads a file from the first of its URLs that works.

    `target` is complete and verified afterwards, or absent.
    """
    failures: list[Unfetched] = []
    for url in remote.urls:
        part = Part(target.with_name(f"{target.name}.part"), url)
        try:
            fetch_from(part, remote, screen, patience)
        except Unfetched as failure:
            failures.append(failure)
            if url != remote.urls[-1]:
                screen.say(f"{failure} Trying the next mirror.")
            continue
        with disk(target):
            os.replace(part.path, target)
            part.note.unlink(missing_ok=True)
        return
    raise failures[0]


def fetch_from(part: Part, remote: Remote, screen: DownloadScreen, patience: Patience) -> None:
    """Downloads a file from one URL and verifies it."""
    if part.size and part.facts() is not None:
        screen.say(f"{remote.name}: continuing after {part.size} bytes")
    download(part, remote, screen, patience)
    mismatch = broken(part.path, remote.checksums)
    if mismatch is not None and part.glued:
        screen.say(f"{remote.name}: its pieces do not fit; starting over")
        part.drop()
        download(part, remote, screen, patience)
        mismatch = broken(part.path, remote.checksums)
    if mismatch is not None:
        part.drop()
        raise Unfetched(
            f"{part.url} must have the {mismatch.published}",
            f"the downloaded file has {mismatch.digest}",
            "the file was damaged on its way or has changed: try again later",
        )


def download(part: Part, remote: Remote, screen: DownloadScreen, patience: Patience) -> None:
    """Makes attempts until the file is complete, or several in a row brought no new byte."""
    fruitless = 0  # attempts in a row
    largest = part.size
    while True:
        try:
            return transfer(part, remote, screen, patience)
        except TROUBLE as error:
            fruitless += 1
            if part.size > largest:
                largest = part.size
                fruitless = 0
            if is_final(error) or fruitless >= patience.attempts:
                rule = f"{part.url} must be fetched"
                raise Unfetched(rule, reason(error, patience), when_to_try(part)) from error
        time.sleep(min(patience.pause * 2**fruitless, 60.0))


def when_to_try(part: Part) -> str:
    if not part.size:
        return "try again later"
    kept = f"{part.size} bytes are kept and the next attempt continues from there"
    return f"try again later; {kept}"


def transfer(part: Part, remote: Remote, screen: DownloadScreen, patience: Patience) -> None:
    """Makes one attempt to download the missing bytes, or all of them."""
    before = part.facts()
    have = part.size if before is not None else 0
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
        size = receive(response, part, extent.start, remote, screen)
    expected = extent.total
    if expected is None and remote.exact:
        expected = remote.size
    if expected is not None and size < expected:
        raise ConnectionError(f"the connection ended after {size} of {expected} bytes")


def headers(have: int, facts: Facts | None) -> dict[str, str]:
    """Returns the headers that ask for the whole file, or for the bytes after the first `have`.

    A weak ETag says that two files mean the same, not that they have the same bytes. So a download
    with a weak ETag is not continued.
    """
    fields = {"User-Agent": f"fedloom/{__version__}", "Accept-Encoding": "identity"}
    if not have or facts is None:
        return fields
    validator = facts.validator
    if isinstance(validator, str) and validator.startswith("W/"):
        return fields
    fields["Range"] = f"bytes={have}-"
    if isinstance(validator, str):
        fields["If-Range"] = validator
    return fields


class Extent(NamedTuple):
    """Where the bytes of a response belong, and the size of the file, if the server says it."""

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
    raise http.client.HTTPException("the server's file has changed since the download began")


def check_size(part: Part, remote: Remote, total: int | None) -> None:
    if total is not None and remote.exact and total != remote.size:
        rule = f"{part.url} must be {remote.size} bytes"
        advice = "it has changed, or the server sent a web page instead: try again later"
        raise Unfetched(rule, f"the server offers {total}", advice)


def receive(
    response: http.client.HTTPResponse,
    part: Part,
    start: int,
    remote: Remote,
    screen: DownloadScreen,
) -> int:
    """Appends the response to the part, and returns the size of the part.

    Nothing beyond the file's size is written, whatever the server sends.
    """
    size = start
    most = remote.size if remote.exact else 2 * remote.size
    # Unbuffered: bytes that were received are kept, whatever happens next.
    with open(part.path, "ab", buffering=0) as file:
        while block := response.read1(BLOCK):
            size += len(block)
            if size > most:
                file.truncate(0)
                qualifier = "" if remote.exact else "about "
                rule = f"{part.url} must be {qualifier}{remote.size} bytes"
                raise Unfetched(rule, "the server sent more", "it has changed: try again later")
            with disk(part.path):
                file.write(block)
            screen.step(remote.name, size, remote.size)
        os.fsync(file.fileno())
    return size


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turns errors of writing our own files into a sentence for the user.

    They are not the network's fault, and another attempt does not help.
    """
    try:
        yield
    except OSError as error:
        rule = f"{path} must be writable"
        problem = (error.strerror or str(error)).lower()
        advice = "make room or choose another --data-dir; downloaded bytes are kept"
        raise FedloomError(rule, problem, advice) from error


def is_final(error: BaseException) -> bool:
    """Whether another attempt cannot help."""
    if isinstance(error, urllib.error.HTTPError):
        became_shorter = error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
        return error.code not in PASSING and not became_shorter
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
        return f"its host cannot be reached ({cause.strerror})"
    return str(cause) or type(cause).__name__


def cause_of(error: BaseException) -> BaseException | str:
    """Returns the cause of an error of urllib, and other errors as they are."""
    if isinstance(error, urllib.error.URLError):
        return error.reason
    return error
