"""The live page: a run's report, served on the loopback address while the run goes on.

It is for whoever has the link. The server only reads files, so it cannot disturb the run, and a
failure here does not affect the run. Every path begins with a random token. A request must name a
loopback host, so that no page of another origin can reach it by a DNS name that points here (DNS
rebinding), and it must not come from another origin.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedloom.errors import FedloomError
from fedloom.records.folder import RunFolder
from fedloom.report import page, versus
from fedloom.report.groups import Versus
from fedloom.report.sections import methods
from fedloom.report.story import FileMark, Reader, Standing, Story, mark_of
from fedloom.report.style import LIVE, PAGES, policy
from fedloom.report.versus import Comparing
from fedloom.types import Json

HERE = "127.0.0.1"
NAMES = (HERE, "localhost")  # hosts that a request may name
HEADERS = {
    "Content-Security-Policy": policy(PAGES + LIVE, live=True) + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FILES = (  # the files whose changes a page shows
    "result.json",
    "metrics.jsonl",
    "scores.jsonl",
    "gain.json",
    "config.toml",
    "split.json",
)
FRESH = 5.0  # seconds after a page's latest request during which it counts as open
FAREWELL = 3.0  # seconds that an open page has to fetch how the run ended


@dataclass
class View:
    """What a page shows, rebuilt only when a file has changed. One thread at a time reads."""

    folder: RunFolder
    runs_here: bool = False  # in this process: then the run has not stopped until `close`
    version: str = ""  # changes whenever the sections do
    sections: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    standing: Standing = "running"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.reader: Reader | Comparing = Reader(self.folder)
        if self.folder.kind == "compare":
            self.reader = Comparing(self.folder)

    def look(self) -> None:
        """Rebuild the sections if a file has changed."""
        with self.lock:
            mark = self._mark()  # before reading: what is written meanwhile is seen next time
            content = self._read()
            version = f"{mark}-{content.standing}"
            if version == self.version:
                return
            if isinstance(content, Story):
                self.sections = page.sections(content)
                self.title = page.title(content)
            else:
                self.sections = methods.sections(content, None)
                self.title = methods.title(content)
            self.version = version
            self.standing = content.standing

    def document(self) -> str:
        with self.lock:
            content = self._read()
        if isinstance(content, Story):
            return page.run_page(content, live=True)
        return versus.versus_page(content, self.folder.path, live=True)

    def _read(self) -> Story | Versus:
        content = self.reader.read()
        if self.runs_here and content.standing == "stopped":
            return replace(content, standing="running")
        return content

    def _mark(self) -> int:
        """Return a number that changes whenever one of the page's files does."""
        folders = [self.folder.path]
        for config in sorted(self.folder.path.glob("*/config.toml")):
            folders.append(config.parent)
        marks: list[FileMark | None] = []
        for folder in folders:
            marks += [mark_of(folder / name) for name in FILES]
        return hash(tuple(marks))


@contextmanager
def needs_free(port: int) -> Iterator[None]:
    """Turn the error of a port that cannot be used into one that users understand."""
    try:
        yield
    except OSError as error:
        raise FedloomError(
            f"--port {port} must be free",
            f"{error.strerror or error}",
            "name another, or leave --port out",
        ) from None


def check_port(port: int) -> None:
    """Check that the port can be used, before anything else is done."""
    with needs_free(port):
        ThreadingHTTPServer((HERE, port), BaseHTTPRequestHandler).server_close()


class Watch:
    """A server of one run's page, from its construction until `close`."""

    def __init__(self, folder: RunFolder, port: int = 0, *, runs_here: bool = False) -> None:
        self.view = View(folder, runs_here)
        self.token = secrets.token_urlsafe(16)
        self.last_request = -FRESH  # when a page last asked
        self.ended = False  # whether the run has ended
        self.end_was_fetched = False  # whether a page has fetched how the run ended
        with needs_free(port):
            self.server = ThreadingHTTPServer((HERE, port), handler(self))
        self.server.daemon_threads = True
        self.thread = threading.Thread(
            target=self.server.serve_forever,
            args=(0.1,),  # seconds between checks whether it shall stop
            daemon=True,
            name="watch",
        )
        self.thread.start()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{HERE}:{self.port}/{self.token}/"

    def state(self, version: str) -> Json:
        """Return what a page asks for about every second: all sections if anything changed.

        `version` is the version that the page shows.
        """
        self.last_request = time.monotonic()
        self.view.look()
        view = self.view
        sections: Mapping[str, str] = {}
        if version != view.version:
            sections = view.sections
        return {
            "version": view.version,
            "standing": view.standing,
            "title": view.title,
            "ended": self.ended,
            "sections": sections,
        }

    def close(self) -> None:
        """Stop serving when the run ends, after an open page has fetched the end."""
        self.view.runs_here = False
        self.ended = True
        until = time.monotonic() + FAREWELL
        while time.monotonic() < until and self._is_watched():
            time.sleep(0.05)
        self.server.shutdown()
        self.server.server_close()

    def _is_watched(self) -> bool:
        """Whether a page is open that has not fetched the end."""
        return not self.end_was_fetched and time.monotonic() - self.last_request < FRESH


def handler(watch: Watch) -> type[BaseHTTPRequestHandler]:
    """Return the handler of this watch's requests; the standard library wants a class."""
    return type("Handler", (RequestHandler,), {"watch": watch})


class RequestHandler(BaseHTTPRequestHandler):
    watch: Watch
    timeout = 10  # seconds for a request to arrive

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        reason = refusal_reason(self.headers, self.watch.port)
        if reason is None:
            reason = wrong_token(url.path, self.watch.token)
        if reason is not None:
            self.send(403, "text/plain", reason + "\n")
            return
        place = url.path.split("/", 2)[2]
        version = parse_qs(url.query).get("version", [""])[0]
        try:
            self.answer(place, version)
        except Exception as error:  # the run was writing a file that was read: the page asks again
            self.send(503, "text/plain", f"not now: {type(error).__name__}\n")

    def answer(self, place: str, version: str) -> None:
        if place == "":
            self.send(200, "text/html", self.watch.view.document())
        elif place == "state":
            state = self.watch.state(version)
            self.send(200, "application/json", json.dumps(state))
            if state["ended"]:
                self.watch.end_was_fetched = True
        else:
            self.send(404, "text/plain", "there is nothing here\n")

    def send(self, code: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "fedloom"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a page asks every second."""


def refusal_reason(headers: Any, port: int) -> str | None:
    """Return why a request may not be answered, whatever it asks for, or None."""
    hosts = [f"{name}:{port}" for name in NAMES]
    if headers.get("Host") not in hosts:
        return "the host must be this machine's own"
    origin = headers.get("Origin")
    if origin is not None and origin not in [f"http://{host}" for host in hosts]:
        return "another origin may not ask"
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return "another site may not ask"
    return None


def wrong_token(path: str, token: str) -> str | None:
    """Return why the path's token is refused, or None if it is right."""
    parts = path.split("/", 2)
    if len(parts) == 3 and hmac.compare_digest(parts[1].encode(), token.encode()):
        return None
    return "the address must hold the token that fedloom printed"
