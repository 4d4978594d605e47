"""Flower's SuperLink and SuperNode with two locks that they come without.

A SuperLink takes runs, which are programs, from whoever reaches its port: here only from its own
machine; everybody else gets no further than the sites' door, where keys are asked for. A SuperNode
runs whatever program a run brings: here only the one that points at the installed fedloom, so that
a site's policy stands between its data and any server.

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
NO_PROGRAM = (  # what reading anything else raises
    zipfile.BadZipFile,
    ValueError,
    KeyError,
    TypeError,
    NotImplementedError,
    RuntimeError,
    EOFError,
)

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
        refusal = "refused %s from %s: it may only be called from this machine"
        log.warning(refusal, scope["path"], scope.get("client"))
        if scope["type"] == "http":
            text = b"only from the server's own machine\n"
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": text})
        else:
            await send({"type": "websocket.close"})


def passes(scope: Scope) -> bool:
    """Whether a call comes from this machine, or is one that sites make."""
    caller = scope.get("client")  # host and port; None: unknown
    if caller and caller[0] in HERE:
        return True
    if scope["type"] != "http":
        return False
    return str(scope["path"]).startswith(SITES)


def is_ours(program: bytes) -> bool:
    """Whether a program that a server sent holds no code and points at the installed fedloom."""
    try:
        with zipfile.ZipFile(io.BytesIO(program)) as archive:
            files = archive.infolist()
            names = sorted(file.filename for file in files)
            if names != FILES:
                return False
            if max(file.file_size for file in files) > MOST_PROGRAM:
                return False
            project = tomllib.loads(archive.read("pyproject.toml").decode())
        components = project["tool"]["flwr"]["app"]["components"]
        needs = project["project"]["dependencies"]
    except NO_PROGRAM:
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

    node: Any = start_client_internal
    pull = node._pull_and_store_message
    if not callable(node._verify_fab):  # of Flower's inside: without it, nothing starts
        raise TypeError("Flower's check of programs is not what it was")

    def guarded(
        *,
        get_fab: Callable[[str, int], Fab],
        trusted_entities: object,
        **rest: Any,
    ) -> int | None:
        def licensed(fab_hash: str, run_id: int) -> Fab:
            content = get_fab(fab_hash, run_id).content
            return Fab(fab_hash, content, {"valid_license": "checked here"})

        run_id: int | None = pull(get_fab=licensed, trusted_entities={"fedloom": ""}, **rest)
        return run_id

    def verify(fab: Fab, _: object) -> bool:
        return is_ours(fab.content)

    node._pull_and_store_message = guarded
    node._verify_fab = verify
    flower_supernode()


def main() -> None:
    """One of Flower's two programs, which the first word of the command line names."""
    start = {"superlink": superlink, "supernode": supernode}[sys.argv.pop(1)]
    sys.argv[0] = f"flower-{start.__name__}"
    start()
