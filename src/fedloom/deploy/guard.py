"""Flower's SuperLink and SuperNode with two locks that they come without.

A SuperLink takes runs, which are programs, from whoever reaches its port: here only from its own machine; everybody
else gets no further than the sites' door, where keys are asked for. A SuperNode runs whatever program a run brings:
here only the one that points at the installed fedloom, so that a site's policy stands between its data and any server.

    python -m fedloom.flower.guard superlink|supernode OPTIONS-OF-FLOWERS
"""

from __future__ import annotations

import io
import logging
import sys
import tomllib
import zipfile
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

log = logging.getLogger("flwr")

HERE = ("127.0.0.1", "::1")
SITES = "/v1/fleet/"  # where SuperNodes call
MOST_PROGRAM = 1 << 16  # bytes of a file in a program; ours has one, of a few lines
COMPONENTS = {"serverapp": "fedloom.flower.server:app", "clientapp": "fedloom.flower.site:app"}
FILES = [".info/CONTENT", "pyproject.toml"]  # all that travels: no code

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]


class Door:
    """Before everything else of a SuperLink: from another machine only sites' calls pass."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or passes(scope):
            await self.app(scope, receive, send)
            return
        log.warning("refused %s from %s: it may only be called from this machine", scope["path"], scope.get("client"))
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"only from the server's own machine\n"})
        else:
            await send({"type": "websocket.close"})


def passes(scope: Scope) -> bool:
    host = (scope.get("client") or ("",))[0]
    return host in HERE or (scope["type"] == "http" and str(scope["path"]).startswith(SITES))


def is_ours(program: bytes) -> bool:
    """Whether a program that a server sent holds no code and points at the installed fedloom."""
    try:
        with zipfile.ZipFile(io.BytesIO(program)) as archive:
            files = archive.infolist()
            if sorted(file.filename for file in files) != FILES or max(f.file_size for f in files) > MOST_PROGRAM:
                return False
            project = tomllib.loads(archive.read("pyproject.toml").decode())
        components, needs = project["tool"]["flwr"]["app"]["components"], project["project"]["dependencies"]
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, NotImplementedError, RuntimeError, EOFError):
        return False
    return bool(components == COMPONENTS and needs == [])


def superlink() -> None:
    from flwr.superlink import extensions
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    extensions.get_middleware = lambda: (Middleware(Door),)
    flower_superlink()


def supernode() -> None:
    """Flower can refuse programs that nobody it trusts has signed; here that is our own check."""
    from flwr.supercore.fab import Fab
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    node: Any = start_client_internal  # its inside: if another version has another one, nothing starts
    pull, _ = node._pull_and_store_message, node._verify_fab

    def guarded(*, get_fab: Callable[[str, int], Fab], trusted_entities: object, **rest: Any) -> int | None:
        def licensed(fab_hash: str, run_id: int) -> Fab:
            return Fab(fab_hash, get_fab(fab_hash, run_id).content, {"valid_license": "checked here"})

        found: int | None = pull(get_fab=licensed, trusted_entities={"fedloom": ""}, **rest)
        return found

    node._pull_and_store_message, node._verify_fab = guarded, lambda fab, _: is_ours(fab.content)
    flower_supernode()


def main() -> None:
    """One of Flower's two programs, which the first word of the command line names."""
    start = {"superlink": superlink, "supernode": supernode}[sys.argv.pop(1)]
    sys.argv[0] = f"flower-{start.__name__}"
    start()
