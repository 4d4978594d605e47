"""A server on the loopback interface that can also truncate, stall, corrupt, forget and lie."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Loopback:
    """Serves `files` by path.

    Each request uses up the first of `tricks`. If there is none, it is answered correctly.
    """

    def __init__(self):
        self.files = {}
        self.tricks = []
        self.requests = []
        self.validators = True
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self.server.daemon_threads = True
        self.released = threading.Event()
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self.thread.start()

    @property
    def root(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/"

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def handler_of(loopback):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            loopback.requests.append(dict(self.headers))
            trick = loopback.tricks.pop(0) if loopback.tricks else {}
            if "status" in trick:
                self.send_response(trick["status"])
                self.send_header("Content-Length", "0")
                return self.end_headers()
            body = loopback.files[self.path]
            etag = f'"{hashlib.md5(body).hexdigest()}"'
            start = self.start(etag, trick)
            if start is not None and start >= len(body):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(200 if start is None else 206)
            if start is not None:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            if loopback.validators:
                self.send_header("ETag", trick.get("etag", etag))
            rest = body[start or 0 :]
            if "no length" not in trick:
                self.send_header("Content-Length", str(trick.get("length", len(rest))))
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            return self.pour(rest, trick)

        def start(self, etag, trick):
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            fits = self.headers.get("If-Range", etag) == etag
            return int(asked[1]) if asked and fits and "ignore range" not in trick else None

        def pour(self, rest, trick):
            if "corrupt" in trick:
                rest = rest[:5] + bytes([rest[5] ^ 1]) + rest[6:]
            try:
                self.wfile.write(rest[: trick.get("truncate", trick.get("stall", len(rest)))])
                self.wfile.flush()
                if "stall" in trick:
                    loopback.released.wait(10)
            except OSError:
                pass  # the client has gone

    return Handler


@pytest.fixture
def loopback(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Loopback()
    yield server
    server.close()
