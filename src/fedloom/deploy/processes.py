"""Starts and calls Flower's own programs: the SuperLink, a SuperNode, and its command line.

Everything runs with TLS and node authentication, without telemetry, update checks or installation
of packages at run time. `insecure` turns TLS and authentication off, for tests on one machine, and
prints a loud warning.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import tomli_w

from fedloom.config.models import DataConfig
from fedloom.deploy import control, hello
from fedloom.deploy.control import Access
from fedloom.deploy.guard import COMPONENTS, PROGRAM, PUBLISHER, SECRET
from fedloom.deploy.kits import Federation, Kit, changing
from fedloom.deploy.members import INSECURE, fingerprint_of
from fedloom.deploy.private_files import write_private
from fedloom.deploy.site_data import site_source, site_table, to_flags
from fedloom.errors import FedloomError
from fedloom.federation.engines.flower import QUIET
from fedloom.records.folder import RunFolder
from fedloom.version import __version__

# Seconds for which a site keeps trying: after a crash of the site, the server believes for a minute
# that it is still connected.
TURNED_AWAY = 90.0
AGAIN = 5.0  # seconds between two attempts
CHECK = 10.0  # seconds between two checks whether the server still admits this site
PR_SET_PDEATHSIG = 1  # from linux/prctl.h
UP = 60.0  # seconds that a SuperLink may take to start
FEDERATION = "FEDLOOM_FEDERATION"  # tells the server's programs which federation they serve

# The app that Flower sends to sites. It only points at the installed package.
APP = {
    "project": {
        "name": PROGRAM,
        "version": __version__,
        "license": "Apache-2.0",
        "description": "Runs the installed fedloom",
        "dependencies": [],
    },
    "tool": {
        "flwr": {
            "app": {
                "publisher": PUBLISHER,
                "components": COMPONENTS,
                "config": {"run": "", "federation": ""},
            }
        },
        "fedloom": {"protocol": hello.PROTOCOL},
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


def executor_secret(home: Path) -> str:
    """A new secret for the processes that do Flower's work, in a file that only we can read."""
    home.mkdir(mode=0o700, exist_ok=True)
    path = home / "executor.secret"
    write_private(path, secrets.token_hex(32).encode())
    return str(path)


# The server


def serve(federation: Federation, *, insecure: bool = False) -> int:
    """Run the SuperLink until it is stopped."""
    check_free(federation)
    with changing(federation.path) as current:
        federation = with_recorded_keys(current)
    process = start_server(federation, insecure=insecure)
    try:
        wait_until_up(federation, process)
        with changing(federation.path) as current:
            federation = register(current, insecure=insecure)
        address = f"{federation.host}:{federation.port}"
        sites = ", ".join(federation.sites) or "sites that will join"
        print(f"fedloom: serving {address} for {sites}", flush=True)
        return wait(process)
    finally:
        stop(process)


def with_recorded_keys(federation: Federation) -> Federation:
    """A federation of an earlier version gets its record of keys when its server first starts."""
    sites = federation.unrecorded_sites
    if not sites:
        return federation
    federation = federation.with_all_keys()
    federation.save()
    names = ", ".join(sites)
    notice = f"the keys of {names} are of an earlier version and never expire; rotate them"
    print(f"fedloom: {notice}", file=sys.stderr, flush=True)
    return federation


def start_server(federation: Federation, *, insecure: bool) -> subprocess.Popen[bytes]:
    path = federation.path
    mark(federation, insecure=insecure)
    federation.owners_token()
    home = path / "flower"
    secret = executor_secret(home)
    host, port = federation.address
    command = guarded("superlink")
    if insecure:
        command += ["--insecure"]
    else:
        own = own_certificate(federation)
        command += ["--ssl-certfile", f"{own}.crt", "--ssl-keyfile", f"{own}.key"]
        command += ["--ssl-ca-certfile", federation.authority_file.name, "--enable-supernode-auth"]
    command += ["--database", "superlink.db", "--disable-runtime-dependency-installation"]
    command += ["--isolation", "process", "--superexec-auth-secret-file", secret]
    command += ["--host", host, "--port", str(port)]
    command += ["--log-file", "superlink.log"]
    env = {**environment(home), FEDERATION: str(path), SECRET: secret}
    return launch(command, path, env)


def own_certificate(federation: Federation) -> str:
    """Which certificate callers on this machine see, without its ending."""
    if (federation.path / "local.crt").exists():
        return "local"
    return "server"


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


def check_free(federation: Federation) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(federation.address)
        except OSError:
            raise FedloomError(
                f"port {federation.local_port} must be free",
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
    return control.listens(f"127.0.0.1:{federation.local_port}")


def access_of(federation: Federation) -> Access:
    """How whoever owns a federation's folder calls its server."""
    return Access(federation.path, federation.owners_token(), federation.insecure)


def register(federation: Federation, *, insecure: bool = False) -> Federation:
    """Register every site's public key with Flower. Its node id then identifies the site.

    Keys that were revoked or replaced while the server did not run are taken out.
    """
    if insecure:
        return federation
    access = access_of(federation)
    wanted = {federation.fingerprint(site): site for site in federation.sites}
    for node in control.nodes(access):
        if node.is_registered and fingerprint_of(node.public_key) not in wanted:
            control.unregister(access, node.number)
    for site in federation.sites:
        if site in federation.nodes:
            continue
        number = control.register(access, site, federation.public_key(site))
        federation = replace(federation, nodes={**federation.nodes, site: number})
        federation.save()
    return federation


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
    port: int | None,
    insecure: bool = False,
) -> int:
    """Run a site's SuperNode until it is stopped. Its port is any free one, or the one given."""
    if port is not None:
        check_own_port(port)
    count = samples_of(data)
    check_server(kit, insecure=insecure)
    say_hello(kit, insecure=insecure)
    samples = f"{count} samples"
    print(f"fedloom: site {kit.site} serves {samples} to {kit.server}; they stay here", flush=True)
    until = time.monotonic() + TURNED_AWAY
    while True:
        process = start_site(kit, data, device=device, port=port or free_port(), insecure=insecure)
        began = time.monotonic()
        try:
            code = wait(process, lambda: check_admitted(kit, insecure=insecure))
        finally:
            stop(process)
        say_hello(kit, insecure=insecure)
        if code == 0:
            return code
        if time.monotonic() - began > TURNED_AWAY:  # it was connected, and may be so again
            until = time.monotonic() + TURNED_AWAY
        if time.monotonic() > until:
            raise FedloomError(
                f"the server {kit.server} must let this site in",
                "it does not know its key, or another process is connected with it",
                "ask whoever runs the federation",
            )
        notice = f"fedloom: turned away or cut off; trying again in {AGAIN:g} s"
        print(notice, file=sys.stderr, flush=True)
        time.sleep(AGAIN)


def check_own_port(port: int) -> None:
    """Raise an error if another program of this machine listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            rule = f"port {port} must be free on this machine"
            advice = "leave --port out, and any free one is taken"
            raise FedloomError(rule, "another program uses it", advice) from None


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def say_hello(kit: Kit, *, insecure: bool) -> None:
    """Raise an error if the server turns this site away, and tell if versions differ."""
    greeting = greeting_for(kit, insecure=insecure)
    if greeting is None:
        return
    notice = hello.check_greeting(greeting, kit.site)
    if notice is not None:
        print(f"fedloom: {notice}", file=sys.stderr, flush=True)


def check_admitted(kit: Kit, *, insecure: bool) -> None:
    """Raise an error if the server no longer admits this site's key."""
    greeting = greeting_for(kit, insecure=insecure)
    if greeting is not None and greeting.refusal is not None:
        hello.check_greeting(greeting, kit.site)


def greeting_for(kit: Kit, *, insecure: bool) -> hello.Greeting | None:
    authority: Path | None = kit.path / "ca.crt"
    if insecure:
        authority = None
    return hello.greet(kit.server, authority, kit.path / "node.key")


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
    home = kit.path / "flower"
    secret = executor_secret(home)
    command += ["--isolation", "process", "--superexec-auth-secret-file", secret]
    command += ["--node-config", as_words(config), "--host", "127.0.0.1", "--port", str(port)]
    return launch(command, kit.path, {**environment(home), SECRET: secret})


# A run


def submit(folder: RunFolder, access: Access) -> str:
    """Submit a run to Flower's server, and return the number that it gives the run."""
    settings = {"run": str(folder.path.resolve()), "federation": str(access.path)}
    return control.start_run(access, tomli_w.dumps(APP).encode(), settings)


def withdraw(access: Access, number: str) -> None:
    control.stop_run(access, number)


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


def wait(process: subprocess.Popen[bytes], check: Callable[[], None] | None = None) -> int:
    """Wait until a process ends by itself, or until Ctrl-C or SIGTERM ends it.

    `check` is called now and then, and raises an error if the process should end.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while check is not None:
            try:
                return process.wait(CHECK)
            except subprocess.TimeoutExpired:
                check()
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
