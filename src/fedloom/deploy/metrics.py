"""The server's health as Prometheus reads it: `fedloom federation server DIR --metrics PORT`.

It listens on the server's own machine alone, and is off by default. It tells names of sites, the
round and free space, and nothing of any site's data.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fedloom.deploy.health import ServerHealth, server_health
from fedloom.deploy.kits import Federation
from fedloom.errors import FedloomError
from fedloom.version import __version__

PATH = "/metrics"
TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(federation: Federation, found: ServerHealth) -> str:
    """The metrics in Prometheus's text format."""
    lines: list[str] = []

    def gauge(name: str, text: str, samples: list[tuple[str, float]]) -> None:
        lines.append(f"# HELP fedloom_{name} {text}")
        lines.append(f"# TYPE fedloom_{name} gauge")
        for labels, value in samples:
            lines.append(f"fedloom_{name}{labels} {value:g}")

    gauge("info", "The version that runs here.", [(f'{{version="{__version__}"}}', 1)])
    gauge("server_up", "Whether Flower's server answers.", [("", float(found.server == "up"))])
    online = []
    for site in found.sites:
        online.append((f'{{site="{label(site.site)}"}}', float(site.status == "online")))
    gauge("site_online", "Whether a site is connected.", online)
    now = datetime.datetime.now(datetime.UTC)
    left = []
    for name, record in federation.keys.items():
        if record.expires is not None:
            left.append((f'{{site="{label(name)}"}}', (record.expires - now).total_seconds()))
    gauge("site_key_expires_seconds", "Seconds until a site's key expires.", left)
    if found.run is not None:
        gauge("run_round", "The round of the last run.", [("", found.run.round)])
        gauge("run_rounds", "The rounds that the last run asks for.", [("", found.run.rounds)])
        is_running = float(found.run.state == "running")
        gauge("run_running", "Whether the last run is under way.", [("", is_running)])
    code = 0
    if found.last_error is not None:
        code = found.last_error.code
    gauge("last_error_code", "Why the last run stopped; 0: it did not.", [("", code)])
    gauge("disk_free_bytes", "Free space at the server.", [("", found.disk.free_bytes)])
    gauge("folder_bytes", "Size of the federation's folder.", [("", found.disk.folder_bytes)])
    gauge("warnings", "Number of warnings in `status`.", [("", len(found.warnings))])
    return "\n".join(lines) + "\n"


def label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


@contextmanager
def served(federation: Federation, port: int | None) -> Iterator[None]:
    """Serve the metrics on 127.0.0.1 as long as the context lasts. None: do not."""
    if port is None:
        yield
        return

    def content() -> str:
        current = Federation.open(federation.path)  # sites may have joined
        return exposition(current, server_health(current))

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), handler(content))
    except OSError as error:
        rule = f"the metrics' port {port} must be free"
        raise FedloomError(rule, error.strerror or "it is not", "choose another") from None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def handler(content: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != PATH:
                self.send_error(404)
                return
            try:
                body = content().encode()
            except (FedloomError, OSError):
                self.send_error(503)
                return
            self.send_response(200)
            self.send_header("Content-Type", TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:
            """Say nothing: a scraper calls every few seconds."""

    return Metrics
