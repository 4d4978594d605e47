"""Flower's SuperLink and SuperNode, with additional locks.

By itself, a SuperLink accepts runs, which are programs, from anybody who can reach its port. Here
callers from other machines reach only the sites' interface, which requires a key. Callers on the
server's own machine need a token (tokens.py), and even with one they can submit only the program
that points at the installed fedloom. By itself, a SuperNode runs any program that a run brings.
Here it runs only that one, so that a site's policy always stands between its data and a server.
The processes that do Flower's work must show a secret that only their owner can read; a site keeps
one warm (executor.py).

    python -m fedloom.flower.guard superlink|supernode FLOWER-OPTIONS
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import importlib
import io
import json
import logging
import os
import re
import ssl
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from fedloom.deploy import hello, tokens
from fedloom.deploy.audit import AuditLog
from fedloom.deploy.member_list import MemberList
from fedloom.deploy.members import INSECURE
from fedloom.deploy.redelivery import Redelivery
from fedloom.deploy.versions import note_versions
from fedloom.errors import FedloomError
from fedloom.version import __version__

log = logging.getLogger("flwr")

HERE = ("127.0.0.1", "::1")
SITES = "/v1/fleet/"  # the path of all calls that SuperNodes make
CONTROL = "/v1/control/"  # of all calls that submit runs and manage nodes
RUNTIME = "/v1/runtime/"  # of calls by processes of this machine, which show a task's token
START_RUN = "start-run"
SITE_KEY = "flwr-public-key"  # the header in which a SuperNode shows its key
SITE_MOMENT = "flwr-timestamp"  # the moment of the call
SITE_SIGNATURE = "flwr-signature"  # of that moment
MOST_PROGRAM = 1 << 16  # bytes of a file in a program; ours has one with a few lines
MOST_CALL = 1 << 20  # bytes of a call that submits a run
SETTINGS = {"run", "federation"}  # what a run may be told
COMPONENTS = {"serverapp": "fedloom.flower.server:app", "clientapp": "fedloom.flower.site:app"}
PUBLISHER, PROGRAM = "fedloom", "fedloom-app"
VERSION = re.compile("[0-9A-Za-z.+-]{1,40}")
FILES = [".info/CONTENT", "pyproject.toml"]  # the files of our program, which has no code
SECRET = "FEDLOOM_EXECUTOR_SECRET"  # names the file with which executors identify themselves
BUSY = 60.0  # seconds after a message in which a site asks often for the next one
OFTEN, SELDOM = 0.25, 2.0  # seconds between two questions

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Refusal = tuple[int, str]  # an HTTP status and a sentence


class Door:
    """The first middleware of a SuperLink: it decides who may call what."""

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        folder: Path | None = None,
    ) -> None:
        self.app = app
        self.folder = folder or Path.cwd()
        self.members = MemberList(self.folder)
        self.redelivery = Redelivery(app)
        self.is_insecure = (self.folder / INSECURE).exists()  # then any key will do
        self.versions: dict[str, str] = {}  # of the sites that said hello

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if not passes(scope):
            await self.refuse(scope, send, (403, "only from the server's own machine"))
            return
        if scope["type"] != "http":
            await self.refuse(scope, send, (403, "nothing here is open to it"))
            return
        path = str(scope["path"])
        headers = headers_of(scope)
        if path == hello.PATH:
            await answer(send, 200, self.greeting(headers))
            return
        refusal = self.refusal_of(path, headers)
        if refusal is None and path == CONTROL + START_RUN:
            content = await whole(receive, MOST_CALL)
            refusal = refusal_of_run(content)
            receive = replayed(content, receive)
        if refusal is not None:
            await self.refuse(scope, send, refusal)
        elif path.startswith(SITES) and SITE_KEY in headers:
            await self.redelivery(scope, receive, send, headers[SITE_KEY])
        else:
            await self.app(scope, receive, send)

    def refusal_of(self, path: str, headers: dict[str, str]) -> Refusal | None:
        """Why a call is refused, before its content is looked at. None: it is not."""
        if path.startswith(SITES):
            return self.refusal_of_site(headers)
        if path.startswith(CONTROL):
            book = self.members.tokens.current()
            if book is None:
                return 403, "the server cannot read its tokens.json"
            call = path.removeprefix(CONTROL)
            return tokens.refusal_of(book, headers.get("authorization"), call)
        if path.startswith(RUNTIME):
            return None  # Flower itself asks for an executor's signature or a task's token
        return 403, "nothing here is open to it"

    def refusal_of_site(self, headers: dict[str, str]) -> Refusal | None:
        """Why a site's call is refused. None: it is signed by a key that is admitted.

        Flower checks the signature too, but only after it has read the call: strangers could fill
        the server's memory.
        """
        if self.is_insecure:
            return None
        if SITE_KEY not in headers:
            return 401, "the call has no key of a site"
        members = self.members.members.current()
        if members is None:
            return 403, "the server cannot read its federation.json"
        try:
            public_key = base64.b64decode(headers[SITE_KEY], validate=True)
        except (binascii.Error, ValueError):
            return 401, "the site's key is malformed"
        reason = members.refusal_of(public_key)
        if reason is not None:
            return 401, reason  # at which a SuperNode ends, where it would go on after 403
        moment = headers.get(SITE_MOMENT, "")
        if not hello.is_signed(moment, headers.get(SITE_SIGNATURE, ""), public_key):
            return 401, "the call is not signed by the site's key"
        return None

    def greeting(self, headers: dict[str, str]) -> bytes:
        """The answer to a site's hello."""
        now = datetime.datetime.now(datetime.UTC)
        question = hello.question_in(headers)
        members = self.members.members.current()
        refusal: str | None = None
        if question is None or members is None:
            refusal = "its key or signature is malformed"
        else:
            if not self.is_insecure:
                refusal = members.refusal_of(question.public_key)
            site = members.site_of(question.public_key)
            if site is not None and refusal is None:
                self.note_version(site, question.version)
        greeting = hello.Greeting(__version__, hello.PROTOCOL, now, refusal)
        return json.dumps(greeting.to_json()).encode()

    def note_version(self, site: str, version: str) -> None:
        """Remember which version of fedloom a site runs, for `fedloom federation status`."""
        if self.versions.get(site) != version:
            self.versions[site] = version
            note_versions(self.folder, {site: version})

    async def refuse(self, scope: Scope, send: Send, refusal: Refusal) -> None:
        status, reason = refusal
        log.warning("refused %s from %s: %s", scope["path"], scope.get("client"), reason)
        if scope["type"] == "http":
            await answer(send, status, f"{reason}\n".encode())
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


def headers_of(scope: Scope) -> dict[str, str]:
    """The headers of a call. One that is given twice is taken for malformed."""
    headers: dict[str, str] = {}
    for name, value in scope.get("headers", []):
        key = name.decode("latin-1").lower()
        if key in headers:
            headers[key] = "given twice"
        else:
            headers[key] = value.decode("latin-1")
    return headers


async def answer(send: Send, status: int, content: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def whole(receive: Receive, most: int) -> bytes | None:
    """The content of a call. None: it is larger than any of ours, or was broken off."""
    content = b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        content += bytes(event.get("body", b""))
        if len(content) > most:
            return None
        if not event.get("more_body", False):
            return content


def replayed(content: bytes | None, receive: Receive) -> Receive:
    """A `receive` that gives a content once more which was read before."""
    events: list[Scope] = [{"type": "http.request", "body": content or b"", "more_body": False}]

    async def again() -> Scope:
        if events:
            return events.pop()
        return await receive()

    return again


def refusal_of_run(content: bytes | None) -> Refusal | None:
    """Why a run may not be submitted: it must be of our program, and tell it nothing else."""
    from flwr.proto.control_pb2 import StartRunRequest

    if content is None:
        return 403, "a run's program must be small"
    request = StartRunRequest()
    try:
        request.ParseFromString(content)
    except Exception:  # protobuf's own errors have no common public base
        return 403, "the call is malformed"
    given = {field.name for field, _ in request.ListFields()}
    if given - {"fab", "override_config"}:
        return 403, "a run may only bring our program and its settings"
    program = request.fab.content
    if hashlib.sha256(program).hexdigest() != request.fab.hash_str or not is_ours(program):
        return 403, "only the program that points at the installed fedloom may be submitted"
    if not set(request.override_config) <= SETTINGS:
        return 403, "a run may only be told its folder and its federation"
    return None


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
        protocol = project["tool"].get("fedloom", {}).get("protocol", hello.PROTOCOL)
        is_named_ours = has_our_name(project["project"], project["tool"]["flwr"]["app"])
    except Exception:  # whatever is wrong with it, it is not ours
        return False
    if protocol != hello.PROTOCOL:
        log.error("the server speaks protocol %s, this site %s", protocol, hello.PROTOCOL)
        return False
    return bool(is_named_ours and components == COMPONENTS and dependencies == [])


def has_our_name(project: dict[str, Any], app: dict[str, Any]) -> bool:
    """Whether a program has our name and a plain version, of which Flower makes a folder's name."""
    name = (app.get("publisher", PUBLISHER), project.get("name", PROGRAM))
    version = VERSION.fullmatch(project.get("version", "0"))
    return name == (PUBLISHER, PROGRAM) and version is not None


def superlink() -> None:
    """Start a SuperLink behind the door, and the process that starts the programs of runs."""
    from flwr.superlink import extensions
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    extensions.get_middleware = lambda: (Middleware(Door),)
    logging.getLogger("uvicorn.access").addFilter(is_worth_a_line)
    if Path("server.crt").exists() and Path("local.crt").exists():
        show_given_certificate()
    if SECRET in os.environ:
        start_executor(os.environ[SECRET])
    flower_superlink()


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether the server's log should have a line about a call.

    Sites ask several times a second whether there is work.
    """
    text = record.getMessage()
    return not ("/pull-messages" in text and text.endswith(" 200"))


def show_given_certificate() -> None:
    """Let the server show the certificate of an existing PKI to all who call it by name.

    Callers on its own machine use 127.0.0.1, which such a certificate rarely names. They get the
    one of the federation's own authority.
    """
    config: Any = importlib.import_module("uvicorn.config")
    create = config.create_ssl_context

    def with_both(*given: Any, **options: Any) -> ssl.SSLContext:
        context: ssl.SSLContext = create(*given, **options)
        named = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        named.load_cert_chain("server.crt", "server.key")

        def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            if name is not None:
                connection.context = named

        context.sni_callback = choose
        return context

    config.create_ssl_context = with_both


def start_executor(secret: str) -> None:
    """Start Flower's own executor of programs, which signs its calls with a secret."""
    options = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    command = ["flower-superexec", "--runtime-api-address", f"127.0.0.1:{options['--port']}"]
    command += ["--superexec-auth-secret-file", secret, "--parent-pid", str(os.getpid())]
    if "--insecure" in sys.argv:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", options["--ssl-ca-certfile"]]
    subprocess.Popen(command)


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
    pace = Pace()

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
        if run_id is not None:
            pace.note_message()
        return run_id

    def verify(fab: Fab, _: object) -> bool:
        if is_ours(fab.content):
            return True
        note_foreign_program(fab.content)
        return False

    node._pull_and_store_message = guarded
    node._verify_fab = verify
    node.time = pace
    connect_again_after_broken_handshakes()
    if SECRET in os.environ:
        start_warm_executor(os.environ[SECRET])
    flower_supernode()


def note_foreign_program(content: bytes) -> None:
    """Write to the site's audit log that its server has sent another program than ours."""
    digest = hashlib.sha256(content).hexdigest()
    reason = "the server sent a program that is not the installed fedloom"
    line = {"order": None, "code": "refused", "reason": reason, "digest": digest}
    try:
        AuditLog(Path.cwd()).append("refused", line)  # this process runs in the site's kit
    except (FedloomError, OSError) as error:
        log.error("%s", error)


def connect_again_after_broken_handshakes() -> None:
    """Let a SuperNode try again if a connection broke while TLS was agreed on.

    Flower takes every error that mentions TLS for a wrong certificate, and drops what it was about
    to send. Only a certificate that is wrong stays so.
    """
    connection: Any = importlib.import_module("flwr.supernode.fleet_http_connection")
    make = connection.make_simple_http_retry_invoker

    def patient() -> Any:
        invoker = make()
        gives_up = invoker.should_giveup

        def should_give_up(error: Exception) -> bool:
            if is_broken_handshake(error):
                return False
            return bool(gives_up(error))

        invoker.should_giveup = should_give_up
        return invoker

    connection.make_simple_http_retry_invoker = patient


def is_broken_handshake(error: Exception) -> bool:
    """Whether the other side went away while TLS was agreed on, instead of being refused."""
    text = str(error).lower()
    return "unexpected_eof" in text or "eof occurred" in text or "connection reset" in text


class Pace:
    """Stands for the module `time` in Flower's loop, which only sleeps.

    Flower asks for work every three seconds and looks for a reply every half. During a run that
    would be most of a short round; between runs, seldom is enough.
    """

    def __init__(self) -> None:
        self.busy_until = 0.0

    def note_message(self) -> None:
        self.busy_until = time.monotonic() + BUSY

    def sleep(self, seconds: float) -> None:
        longest = SELDOM
        if time.monotonic() < self.busy_until:
            longest = OFTEN
        time.sleep(min(seconds, longest))


def start_warm_executor(secret: str) -> None:
    options = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    address = f"127.0.0.1:{options['--port']}"
    module = "fedloom.deploy.executor"
    subprocess.Popen([sys.executable, "-P", "-m", module, address, secret, str(os.getpid())])


def main() -> None:
    """Start one of Flower's two programs, which the first argument names."""
    start = {"superlink": superlink, "supernode": supernode}[sys.argv.pop(1)]
    sys.argv[0] = f"flower-{start.__name__}"
    start()
