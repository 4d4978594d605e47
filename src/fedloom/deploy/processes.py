"""Starts and calls Flower's own programs: the SuperLink, a SuperNode, and its command line.

Everything runs with TLS and node authentication, without telemetry, update checks or installation
of packages at run time. `insecure` turns TLS and authentication off, for tests on one machine, and
prints a loud warning.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import tomli_w

from fedloom.config.models import DataConfig
from fedloom.deploy.guard import COMPONENTS
from fedloom.deploy.kits import INSECURE, Federation, Kit
from fedloom.deploy.site_data import site_source, site_table, to_flags
from fedloom.errors import FedloomError, RunStopped
from fedloom.federation.engines.flower import QUIET
from fedloom.files import write_whole
from fedloom.records.folder import RunFolder
from fedloom.types import Json

# Seconds for which a site keeps trying: after a crash of the site, the server believes for a minute
# that it is still connected.
TURNED_AWAY = 90.0
AGAIN = 5.0  # seconds between two attempts
PR_SET_PDEATHSIG = 1  # from linux/prctl.h
UP = 60.0  # seconds that a SuperLink may take to start

# The app that Flower sends to sites. It only points at the installed package.
APP = {
    "project": {
        "name": "fedloom-app",
        "version": "1.0.0",
        "license": "Apache-2.0",
        "description": "Runs the installed fedloom",
        "dependencies": [],
    },
    "tool": {
        "flwr": {
            "app": {
                "publisher": "fedloom",
                "components": COMPONENTS,
                "config": {"run": "", "federation": ""},
            }
        }
    },
}


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's programs.

    Programs of this Python installation come first, and Flower's files go to the folder `home`.
    """
    home.mkdir(mode=0o700, exist_ok=True)
    programs = str(Path(sys.executable).parent)
    settings = {
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", "")]),
        "FLWR_HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "FORWARDED_ALLOW_IPS": "127.0.0.1",  # others must not claim a call's origin
    }
    return {**os.environ, **QUIET, **settings}


def as_words(values: Mapping[str, str]) -> str:
    """Values as Flower's command line takes them: quoted as in TOML, without quotes inside."""
    words = []
    for name, value in values.items():
        text = json.dumps(value, ensure_ascii=False)[1:-1]
        text = text.replace('\\"', "\\u0022")
        words.append(f'{name}="{text}"')
    return " ".join(words)


def guarded(program: str) -> list[str]:
    """The command that starts one of Flower's programs under our guard.

    With -P, Python never imports code from the folder that it runs in, which is a kit that somebody
    else has made.
    """
    return [sys.executable, "-P", "-m", "fedloom.flower.guard", program]


# The server


def serve(federation: Federation, *, insecure: bool = False) -> int:
    """Run the SuperLink until it is stopped."""
    check_free(federation)
    process = start_server(federation, insecure=insecure)
    try:
        wait_until_up(federation, process)
        if not insecure:
            register(federation)
        address = f"{federation.host}:{federation.port}"
        print(f"fedloom: serving {address} for {', '.join(federation.sites)}", flush=True)
        return wait(process)
    finally:
        stop(process)


def start_server(federation: Federation, *, insecure: bool) -> subprocess.Popen[bytes]:
    path = federation.path
    mark(federation, insecure=insecure)
    command = guarded("superlink")
    if insecure:
        command += ["--insecure"]
    else:
        command += ["--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key"]
        command += ["--ssl-ca-certfile", "ca.crt", "--enable-supernode-auth"]
    command += ["--database", "superlink.db", "--disable-runtime-dependency-installation"]
    command += ["--host", bound(federation), "--port", str(federation.port)]
    command += ["--log-file", "superlink.log"]
    return launch(command, path, environment(path / "flower"))


def bound(federation: Federation) -> str:
    """The address at which the server listens: only locally if the federation is on one machine."""
    if federation.host in ("127.0.0.1", "localhost"):
        return "127.0.0.1"
    return "0.0.0.0"


def mark(federation: Federation, *, insecure: bool) -> None:
    """Record how the server is started.

    The server's app and the process that submits a run must know whether sites are authenticated.
    """
    if insecure:
        warn()
        (federation.path / INSECURE).touch()
    else:
        (federation.path / INSECURE).unlink(missing_ok=True)


def warn() -> None:
    text = "fedloom: --insecure: NOBODY IS AUTHENTICATED AND NOTHING IS ENCRYPTED"
    print(text, file=sys.stderr, flush=True)


def write_connection(federation: Federation) -> None:
    """Write the file in which Flower's command line finds the server.

    Without this file, it would start a server of its own.
    """
    server: dict[str, Json] = {"address": f"127.0.0.1:{federation.port}"}
    if federation.insecure:
        server["insecure"] = True
    else:
        server["root-certificates"] = str(federation.path / "ca.crt")
    content = tomli_w.dumps({"superlink": {"default": "fedloom", "fedloom": server}})
    write_whole(federation.path / "flower" / "config.toml", [content.encode()], durable=False)


def check_free(federation: Federation) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bound(federation), federation.port))
        except OSError:
            raise FedloomError(
                f"port {federation.port} must be free",
                "another program uses it",
                "end that, or init with --port",
            ) from None


def wait_until_up(federation: Federation, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + UP
    while time.monotonic() < until:
        if process.poll() is not None:
            raise not_started(federation, f"it ended with {process.returncode}")
        if answers(federation):
            return
        time.sleep(0.2)
    raise not_started(federation, f"it did not in {UP:g} s")


def not_started(federation: Federation, reason: str) -> FedloomError:
    advice = f"see {federation.path}/superlink.log"
    return FedloomError("Flower's SuperLink must start", reason, advice)


def answers(federation: Federation) -> bool:
    """Whether something listens at the server's port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", federation.port)) == 0


def register(federation: Federation) -> Federation:
    """Register every site's public key with Flower. Its node id then identifies the site."""
    nodes = dict(federation.nodes)
    for site in federation.sites:
        if site in nodes:
            continue
        key = federation.path / "keys" / f"{site}.pub"
        answer = ask_flower(federation, "supernode", "register", str(key))
        nodes[site] = int(answer["node-id"])
        federation = replace(federation, nodes=nodes)
        federation.save()
    return federation


def ask_flower(federation: Federation, *words: str) -> Json:
    """Run one command of Flower's command line, and return its answer as JSON."""
    advice = "start it with `fedloom federation server`"
    if not answers(federation):
        silence = f"nothing answers at port {federation.port}"
        raise RunStopped("the federation's server must run here", silence, advice)
    env = environment(federation.path / "flower")
    write_connection(federation)
    command = ["flwr", *words, "--format", "json"]
    done = subprocess.run(command, cwd=federation.path, env=env, capture_output=True, text=True)
    answer = answer_in(done)
    if not answer.get("success"):
        reason = " ".join(str(answer.get("error-message", "")).split())
        raise RunStopped("Flower's server must answer", reason or "it did not", advice)
    return answer


def answer_in(done: subprocess.CompletedProcess[str]) -> Json:
    """The JSON that Flower's command printed. If there is none, its output is the error."""
    try:
        return json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        return {"success": False, "error-message": (done.stderr or done.stdout).strip()}


@dataclass(frozen=True)
class SiteStatus:
    """Whether a site is connected."""

    site: str
    status: str  # as Flower calls it, or "not registered"
    seen: str | None = None  # since when it is online, or when it last was; None: unknown

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


def status(federation: Federation) -> list[SiteStatus]:
    nodes = {}
    for node in ask_flower(federation, "supernode", "list")["nodes"]:
        nodes[int(node["node-id"])] = node
    sites = []
    if federation.insecure:  # it is unknown which site a node is
        for number, node in nodes.items():
            sites.append(SiteStatus(f"node {number}", node["status"]))
        return sites
    for site in federation.sites:
        node = nodes.get(federation.nodes.get(site, -1), {})
        state = node.get("status", "not registered")
        sites.append(SiteStatus(site, state, last_seen(node)))
    return sites


def last_seen(node: Mapping[str, Json]) -> str | None:
    """Since when a node is connected, or when it last was; None: it never was."""
    moment: str | None = node.get("offline-at")
    if node.get("status") == "online":
        moment = node.get("online-at")
    if moment == "N/A":
        return None
    return moment


# A site


def samples_of(data: DataConfig) -> int:
    """The number of a site's samples.

    Reading them also reports errors and skipped files early. Which column of a table is the label
    is decided by a run.
    """
    table = site_table(data)
    if table is not None:
        return len(table)
    source = site_source(data)
    for file in source.skipped:
        print(f"fedloom: skipped {file.file}: {file.reason}", file=sys.stderr, flush=True)
    return len(source.y)


def attend(
    kit: Kit,
    data: DataConfig,
    *,
    device: str,
    port: int,
    insecure: bool = False,
) -> int:
    """Run a site's SuperNode until it is stopped."""
    count = samples_of(data)
    check_server(kit, insecure=insecure)
    samples = f"{count} samples"
    print(f"fedloom: site {kit.site} serves {samples} to {kit.server}; they stay here", flush=True)
    until = time.monotonic() + TURNED_AWAY
    while True:
        process = start_site(kit, data, device=device, port=port, insecure=insecure)
        began = time.monotonic()
        try:
            code = wait(process)
        finally:
            stop(process)
        if code == 0 or time.monotonic() - began > TURNED_AWAY:
            return code  # it was connected
        if time.monotonic() > until:
            raise FedloomError(
                f"the server {kit.server} must let this site in",
                "it does not know its key, or another process is connected with it",
                "ask whoever runs the federation",
            )
        notice = f"fedloom: turned away; trying again in {AGAIN:g} s"
        print(notice, file=sys.stderr, flush=True)
        time.sleep(AGAIN)


def check_server(kit: Kit, *, insecure: bool) -> None:
    """Raise a short error if this site and its server cannot talk, before Flower raises many."""
    host, _, port = kit.server.rpartition(":")
    context = ssl.create_default_context(cafile=kit.path / "ca.crt")
    speaks_tls = True
    complaint = ""  # about the server's certificate
    try:
        with (
            socket.create_connection((host, int(port)), 5.0) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            pass
    except ssl.SSLCertVerificationError as error:
        complaint = error.verify_message
    except ssl.SSLError:
        speaks_tls = False
    except OSError:
        print(f"fedloom: {kit.server} does not answer yet; waiting", file=sys.stderr, flush=True)
        return
    if insecure:
        if speaks_tls:
            raise FedloomError(
                "with --insecure, the server must be started with --insecure too",
                "this one speaks TLS",
                "leave it out",
            )
        return
    if not speaks_tls:
        raise FedloomError(
            f"{kit.server} must speak TLS",
            "it does not",
            "start it without --insecure, or check the address",
        )
    if complaint:
        raise FedloomError(
            f"{kit.server} must show a valid certificate of this federation's authority",
            f"it does not ({complaint})",
            "ask whoever runs the federation",
        )


def start_site(
    kit: Kit, data: DataConfig, *, device: str, port: int, insecure: bool
) -> subprocess.Popen[bytes]:
    if insecure:
        warn()
    config = {"kit": str(kit.path), "device": device, **to_flags(data)}
    command = [*guarded("supernode"), "--superlink", kit.server]
    if insecure:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", "ca.crt", "--auth-supernode-private-key", "node.key"]
    command += ["--node-config", as_words(config), "--port", str(port)]
    return launch(command, kit.path, environment(kit.path / "flower"))


# A run


def submit(folder: RunFolder, federation: Federation) -> str:
    """Submit a run to Flower's server, and return the number that it gives the run."""
    app = folder.fresh("app")
    (app / "pyproject.toml").write_text(tomli_w.dumps(APP))
    config = as_words({"run": str(folder.path.resolve()), "federation": str(federation.path)})
    answer = ask_flower(federation, "run", str(app.resolve()), "--run-config", config)
    return str(answer["run-id"])


def withdraw(federation: Federation, number: str) -> None:
    ask_flower(federation, "stop", number)


# Processes


def launch(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so that it and its children can be ended together."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )


def end_with_parent() -> None:
    """Let a new process get SIGTERM when the process that started it ends, even if it is killed.

    Only Linux supports this.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end_without_parent(seconds: float = 1.0) -> None:
    """Let a process that Flower started end soon after its parent, even if that is killed.

    Otherwise it would wait forever for a server that is gone, and hold the lock of the run's
    folder.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(seconds)
        os._exit(3)  # saved files are complete: each is written under another name and renamed

    threading.Thread(target=watch, daemon=True).start()


def wait(process: subprocess.Popen[bytes]) -> int:
    """Wait until a process ends by itself, or until Ctrl-C or SIGTERM ends it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)


def stop(process: subprocess.Popen[bytes], seconds: float = 10.0) -> None:
    """End a process and its session, first with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(seconds)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
