"""The live page: a run's report on this machine's own address, for whoever has the link, while the run goes on.

It only reads files, so it cannot disturb the run, and what fails here is not the run's. Every path begins with a
random token; a request must name a loopback host, so that no page of another origin can reach it by a name that
was pointed here, and must not come from another origin.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedloom.errors import FedloomError
from fedloom.folder import RunFolder
from fedloom.report import page
from fedloom.report.sections import methods
from fedloom.report.story import Reader, Standing, Story, mark_of
from fedloom.report.style import LIVE, PAGES, policy
from fedloom.report.versus import Comparing, versus_page
from fedloom.report.versus import sections as sections_of
from fedloom.types import Json

HERE = "127.0.0.1"
NAMES = (HERE, "localhost")
HEADERS = {
    "Content-Security-Policy": policy(PAGES + LIVE, live=True) + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}  # fmt: skip
FRESH = 5.0  # seconds since a page asked, within which somebody is taken to be looking
FAREWELL = 3.0  # seconds that a page has to fetch how the run ended


@dataclass
class View:
    """What is shown, made anew only when a file of the run has changed. One thread at a time reads."""

    folder: RunFolder
    version: str = ""
    sections: dict[str, str] = field(default_factory=dict)
    title: str = ""
    standing: Standing = "running"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.reader: Reader | Comparing = (
            Comparing(self.folder) if self.folder.kind == "compare" else Reader(self.folder)
        )

    def look(self) -> None:
        with self.lock:
            mark = self._mark()
            if mark == self.version and self.standing != "running":
                return
            told = self.reader.read()
            self.standing = told.standing
            if mark != self.version or told.standing != "running":
                parts = page.sections(told) if isinstance(told, Story) else sections_of(told, self.folder.path)
                self.title = page.title(told) if isinstance(told, Story) else methods.title(told)
                self.sections, self.version = dict(parts), mark

    def _mark(self) -> str:
        """Of all files that a page is made of."""
        names = ("result.json", "metrics.jsonl", "gain.json", "config.toml", "split.json")
        folders = [self.folder.path, *sorted(path.parent for path in self.folder.path.glob("*/config.toml"))]
        return str(hash(tuple(mark_of(folder / name) for folder in folders for name in names)))

    def document(self) -> str:
        with self.lock:
            told = self.reader.read()
        if isinstance(told, Story):
            return page.run_page(told, live=True)
        return versus_page(told, self.folder.path, live=True)


class Watch:
    """A server of one run's page, from its making to `close`."""

    def __init__(self, folder: RunFolder, port: int = 0) -> None:
        self.view, self.token = View(folder), secrets.token_urlsafe(16)
        self.asked, self.told, self.ended = 0.0, "", False
        try:
            self.server = ThreadingHTTPServer((HERE, port), handler(self))
        except OSError as error:
            found = f"{error.strerror or error}"
            raise FedloomError(f"--port {port} must be free", found, "name another, or leave --port out") from None
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.1,), daemon=True, name="watch")
        self.thread.start()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{HERE}:{self.port}/{self.token}/"

    def state(self, known: str) -> Json:
        """What a page asks for about every second: all sections if anything changed."""
        self.view.look()
        self.asked, self.told = time.monotonic(), known if known == self.view.version else ""
        same = known == self.view.version
        return {
            "version": self.view.version, "standing": self.view.standing, "title": self.view.title, "ended": self.ended,
            "sections": {} if same else self.view.sections,
        }  # fmt: skip

    def close(self) -> None:
        """With the run; somebody who looks on gets its end to see first."""
        self.ended = True
        until = time.monotonic() + FAREWELL
        while time.monotonic() < until and time.monotonic() - self.asked < FRESH and self.told != self.view.version:
            time.sleep(0.05)
        self.server.shutdown()
        self.server.server_close()


def handler(watch: Watch) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds for a request to arrive

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            reason = refuse(self.headers, watch.port) or wrong_token(url.path, watch.token)
            if reason is not None:
                return self.send(403, "text/plain", reason + "\n")
            place = url.path.split("/", 2)[2]
            try:
                if place == "":
                    return self.send(200, "text/html", watch.view.document())
                if place == "state":
                    known = parse_qs(url.query).get("version", [""])[0]
                    return self.send(200, "application/json", json.dumps(watch.state(known)))
            except Exception as error:  # of reading files that a run is writing: the page asks again
                return self.send(503, "text/plain", f"not now: {type(error).__name__}\n")
            return self.send(404, "text/plain", "there is nothing here\n")

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
            """A page asks every second: that is no news."""

    return Handler


def refuse(headers: Any, port: int) -> str | None:
    """Why a request may not be answered whatever it asks for, or None."""
    if headers.get("Host") not in [f"{name}:{port}" for name in NAMES]:
        return "the host must be this machine's own"
    origin = headers.get("Origin")
    if origin is not None and origin not in [f"http://{name}:{port}" for name in NAMES]:
        return "another origin may not ask"
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return "another site may not ask"
    return None


def wrong_token(path: str, token: str) -> str | None:
    parts = path.split("/", 2)
    right = len(parts) == 3 and hmac.compare_digest(parts[1].encode(), token.encode())
    return None if right else "the address must hold the token that fedloom printed"
