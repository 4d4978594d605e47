"""Flower's SuperLink and SuperNode, with two additional locks.

By itself, a SuperLink accepts runs, which are programs, from anybody who can reach its port. Here
it accepts them only from its own machine. Callers from other machines reach only the sites'
interface, which requires a key. By itself, a SuperNode runs any program that a run brings. Here it
runs only the one that points at the installed fedloom, so that a site's policy always stands
between its data and a server.

    python -m fedloom.flower.guard superlink|supernode FLOWER-OPTIONS
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
SITES = "/v1/fleet/"  # the path of all calls that SuperNodes make
MOST_PROGRAM = 1 << 16  # bytes of a file in a program; ours has one with a few lines
COMPONENTS = {"serverapp": "fedloom.flower.server:app", "clientapp": "fedloom.flower.site:app"}
FILES = [".info/CONTENT", "pyproject.toml"]  # the files of our program, which has no code
NO_PROGRAM = (  # the errors that reading anything else can raise
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
    """The first middleware of a SuperLink: from other machines only sites' calls pass."""

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
    caller = scope.get("client")  # host and port, or None if unknown
    if caller and caller[0] in HERE:
        return True
    if scope["type"] != "http":
        return False
    return str(scope["path"]).startswith(SITES)


def is_ours(program: bytes) -> bool:
    """Whether a program from a server contains no code and points at the installed fedloom."""
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
        dependencies = project["project"]["dependencies"]
    except NO_PROGRAM:
        return False
    return bool(components == COMPONENTS and dependencies == [])


def superlink() -> None:
    from flwr.superlink import extensions
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    extensions.get_middleware = lambda: (Middleware(Door),)
    flower_superlink()


def supernode() -> None:
    """Start a SuperNode whose check of signed programs is replaced by `is_ours`.

    Flower can refuse programs that no trusted party has signed.
    """
    from flwr.supercore.fab import Fab
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    node: Any = start_client_internal
    pull = node._pull_and_store_message
    if not callable(node._verify_fab):  # it is internal to Flower; nothing starts without it
        raise TypeError("Flower's check of programs is not what it was")

    def guarded(
        *,
        get_fab: Callable[[str, int], Fab],
        trusted_entities: object,
        **options: Any,
    ) -> int | None:
        def licensed(fab_hash: str, run_id: int) -> Fab:
            content = get_fab(fab_hash, run_id).content
            return Fab(fab_hash, content, {"valid_license": "checked here"})

        run_id: int | None = pull(get_fab=licensed, trusted_entities={"fedloom": ""}, **options)
        return run_id

    def verify(fab: Fab, _: object) -> bool:
        return is_ours(fab.content)

    node._pull_and_store_message = guarded
    node._verify_fab = verify
    flower_supernode()


def main() -> None:
    """Start one of Flower's two programs, which the first argument names."""
    start = {"superlink": superlink, "supernode": supernode}[sys.argv.pop(1)]
    sys.argv[0] = f"flower-{start.__name__}"
    start()
