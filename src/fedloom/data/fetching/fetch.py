"""One file over HTTP: resumed where it stopped, verified, then renamed into place.

What has come lies in `NAME.part`, and beside it in `NAME.part.json` what the server said of the file: a part is only
continued while the server still says the same. Whatever is glued together wrongly all the same, the checksum finds.
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
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

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
        return self.path.stat().st_size if self.path.is_file() else 0

    def said(self) -> dict[str, Any]:
        """Empty if there is nothing to continue from this URL."""
        try:
            said = json.loads(self.note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return said if isinstance(said, dict) and said.get("url") == self.url else {}

    def begin(self, start: int, said: dict[str, Any]) -> None:
        """Bytes that do not belong to what the server now says go first: a kill in between leaves nothing to glue."""
        self.glued = start > 0
        with disk(self.path), open(self.path, "r+b" if start else "wb") as file:
            file.truncate(start)
        with disk(self.note):
            self.note.write_text(json.dumps(said), encoding="utf-8")

    def drop(self) -> None:
        for file in (self.note, self.path):
            file.unlink(missing_ok=True)


def fetch(remote: Remote, target: Path, shown: Silent, patience: Patience) -> None:
    """From the first of its URLs that gives it; `target` is then whole and verified, or absent."""
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
    if part.size and part.said():
        shown.say(f"{remote.name}: going on after {part.size} bytes")
    download(part, remote, shown, patience)
    wrong = broken(part.path, remote.checksums)
    if wrong is not None and part.glued:
        shown.say(f"{remote.name}: its pieces do not fit; starting over")
        part.drop()
        download(part, remote, shown, patience)
        wrong = broken(part.path, remote.checksums)
    if wrong is not None:
        part.drop()
        checksum, found = wrong
        must = f"{part.url} must have the {checksum.algorithm} {checksum.digest} ({checksum.source})"
        raise Unfetched(
            must, f"what came has {found}", "the file was damaged on its way or has changed: try again later"
        )


def download(part: Part, remote: Remote, shown: Silent, patience: Patience) -> None:
    """Attempt after attempt, as long as every few of them bring something new."""
    fruitless, best = 0, part.size
    while True:
        try:
            return transfer(part, remote, shown, patience)
        except TROUBLE as error:
            best, fruitless = (part.size, 0) if part.size > best else (best, fruitless + 1)
            if final(error) or fruitless >= patience.attempts:
                kept = f"; {part.size} bytes are kept and the next attempt goes on from there" if part.size else ""
                todo = f"try again later{kept}"
                raise Unfetched(f"{part.url} must be fetched", reason(error, patience), todo) from error
        time.sleep(min(patience.pause * 2**fruitless, 60.0))


def transfer(part: Part, remote: Remote, shown: Silent, patience: Patience) -> None:
    said = part.said()
    have = part.size if said else 0
    if have and have == said.get("total"):
        return
    request = urllib.request.Request(part.url, headers=headers(have, said))
    try:
        response = urllib.request.urlopen(request, timeout=patience.stall)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.drop()  # the file has become shorter: the next attempt starts over
        raise
    with response:
        start, total = extent(response, part, have, said)
        check_size(part, remote, total)
        validator = response.headers.get("ETag") or response.headers.get("Last-Modified")
        part.begin(start, {"url": part.url, "total": total, "validator": validator})
        size = receive(response, part, start, remote, shown)
    expected = total if total is not None else remote.size if remote.exact else size
    if size < expected:
        raise ConnectionError(f"the connection ended after {size} of {expected} bytes")


def headers(have: int, said: dict[str, Any]) -> dict[str, str]:
    """A weak ETag says that two files mean the same, not that they are the same: it is no ground to go on."""
    plain = {"User-Agent": f"fedloom/{__version__}", "Accept-Encoding": "identity"}
    validator = said.get("validator")
    if not have or (isinstance(validator, str) and validator.startswith("W/")):
        return plain
    condition = {"If-Range": validator} if isinstance(validator, str) else {}
    return {**plain, "Range": f"bytes={have}-", **condition}


def extent(response: http.client.HTTPResponse, part: Part, have: int, said: dict[str, Any]) -> tuple[int, int | None]:
    """Where the answer's bytes belong, and how long the whole file is if the server says so."""
    if response.status == HTTPStatus.PARTIAL_CONTENT:
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != have or said.get("total") not in (None, int(found[3])):
            part.drop()  # the next attempt starts over
            raise http.client.HTTPException("it is no longer the file of which a part was here")
        return have, int(found[3])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def check_size(part: Part, remote: Remote, total: int | None) -> None:
    if total is not None and remote.exact and total != remote.size:
        must, found = f"{part.url} must be {remote.size} bytes", f"the server offers {total}"
        raise Unfetched(must, found, "it has changed or a page of the server came instead: try again later")


def receive(response: http.client.HTTPResponse, part: Part, start: int, remote: Remote, shown: Silent) -> int:
    """Returns the size of the part. Nothing beyond the file's size is written, whatever is sent."""
    size, most = start, remote.size if remote.exact else 2 * remote.size
    with open(part.path, "ab", buffering=0) as file:  # unbuffered: what was received is there, whatever comes then
        while block := response.read1(BLOCK):
            size += len(block)
            if size > most:
                file.truncate(0)
                must = f"{part.url} must be {'about ' * (not remote.exact)}{remote.size} bytes"
                raise Unfetched(must, "more came", "it has changed: try again later")
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
        must, found = f"{path} must be writable", (error.strerror or str(error)).lower()
        raise FedloomError(must, found, "make room or choose another --data-dir; what has come is kept") from error


def final(error: BaseException) -> bool:
    """Whether another attempt cannot help."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code not in PASSING and error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, socket.gaierror | ssl.SSLCertVerificationError | str):
        return True
    return isinstance(cause, OSError) and cause.errno in OFFLINE


def reason(error: BaseException, patience: Patience) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, socket.gaierror):
        return f"its host is not found, so there may be no network here ({cause.strerror})"
    if isinstance(cause, TimeoutError):
        return f"the server sent nothing for {patience.stall:g} seconds, again and again"
    if isinstance(cause, OSError) and cause.errno in OFFLINE:
        return f"there is no way to its host ({cause.strerror})"
    return str(cause) or type(cause).__name__
