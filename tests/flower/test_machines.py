"""Server and sites on machines of their own: network namespaces, and a network that fails.

Nothing leaves the namespaces. They need root and `ip`.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
from deployment import FEDLOOM, Deployment, wait_for

pytestmark = pytest.mark.flower

PROXY = Path(__file__).with_name("proxy.py")
PORT = 9092
SERVER = "10.213.0.1"
SERVER_AFTER_MOVING = "10.213.0.9"
ROUTER = "10.214.0.1"  # which the sites take for the server
ROUNDS = 8


def ip(*words, inside=None):
    command = ["ip", *words]
    if inside is not None:
        command = ["ip", "netns", "exec", inside, *command]
    subprocess.run(command, check=True, capture_output=True, text=True)


def may_make_namespaces():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"fedloom-probe-{os.getpid()}"
    has_made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if has_made:
        ip("netns", "del", name)
    return has_made


class Machines(Deployment):
    """A deployment whose parts run in namespaces of their own."""

    def launch(self, name, *words, **env):
        if name == "proxy":
            raise ValueError("the proxy has its own")
        place = name if name in self.names else "server"
        return self._launch(name, [*self.inside(place), *FEDLOOM, *words], env)

    def fedloom(self, *words):
        command = [*self.inside("server"), *FEDLOOM, *words]
        if words[:2] == ("federation", "init"):
            command = [*FEDLOOM, *words]
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=600,
        )

    def inside(self, place):
        return ["ip", "netns", "exec", self.namespace(place)]

    def namespace(self, place):
        return f"fedloom-{os.getpid()}-{place}"


@pytest.fixture
def machines(tmp_path):
    """A server, a router and two sites, joined by veth. The router runs the proxy."""
    if not may_make_namespaces():
        pytest.skip("network namespaces need root and `ip`")
    machines_of_sites = Machines(tmp_path, names=("site-a", "site-b"))
    places = ("server", "router", *machines_of_sites.names)
    proxy = None
    try:
        for place in places:
            ip("netns", "add", machines_of_sites.namespace(place))
            ip("link", "set", "lo", "up", inside=machines_of_sites.namespace(place))
        join(machines_of_sites, "server", f"{SERVER}/24", "router", "10.213.0.2/24", 0)
        ip("addr", "add", f"{ROUTER}/32", "dev", "lo", inside=machines_of_sites.namespace("router"))
        for number, name in enumerate(machines_of_sites.names, 1):
            there = f"10.213.{number}.1/24"
            here = f"10.213.{number}.2/24"
            join(machines_of_sites, name, here, "router", there, number)
            gateway = there.removesuffix("/24")
            ip("route", "add", "default", "via", gateway, inside=machines_of_sites.namespace(name))
        command = [sys.executable, str(PROXY), ROUTER, str(PORT), SERVER]
        proxy = subprocess.Popen(
            [*machines_of_sites.inside("router"), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        machines_of_sites.proxy = proxy
        assert proxy.stdout.readline() == "listening\n"
        yield machines_of_sites
    finally:
        machines_of_sites.stop()
        if proxy is not None:
            proxy.kill()
            proxy.wait(10)
        for place in places:
            subprocess.run(
                ["ip", "netns", "del", machines_of_sites.namespace(place)], capture_output=True
            )


def join(made, one, address, other, its_address, number):
    """A cable between two namespaces."""
    ends = f"fl{os.getpid() % 100000}a{number}", f"fl{os.getpid() % 100000}b{number}"
    ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
    for end, place, its in ((ends[0], one, address), (ends[1], other, its_address)):
        ip("link", "set", end, "netns", made.namespace(place))
        ip("addr", "add", its, "dev", end, inside=made.namespace(place))
        ip("link", "set", end, "up", inside=made.namespace(place))


def tell(made, command):
    made.proxy.stdin.write(f"{command}\n")
    made.proxy.stdin.flush()
    assert made.proxy.stdout.readline() == f"done {command}\n"


def rounds(folder):
    file = folder / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def test_nothing_is_lost_on_a_network_that_fails(machines):
    """Delay, lost connections, a partition, and other addresses of the server and of a site."""
    made = machines
    from deployment import write_sites

    write_sites(made.folder / "sites", made.names)
    sites = []
    for name in made.names:
        sites += ["--site", name]
    words = ["--host", ROUTER, "--port", str(PORT)]
    done = made.fedloom("federation", "init", str(made.path), *sites, *words)
    assert done.returncode == 0, done.stderr
    made.serve()
    for name in made.names:
        made.attend(name)
    outside = [*made.inside("site-a"), sys.executable, "-c", called_from_outside(made)]
    refused = subprocess.run(outside, capture_output=True, text=True, timeout=60)
    assert refused.stdout.strip() == "403", refused.stderr
    options = ["--width", "0.125", "--batch", "8", "--evaluate-every", "100", "--deadline", "120"]
    federation = ["--federation", str(made.path), "--min-replies", "2"]
    words = ["--rounds", str(ROUNDS), *options, *federation, "--out", "failing"]
    process = made.launch("submitter", "run", "fedavg", *words)
    folder = made.folder / "failing"
    trouble = [
        lambda: tell(made, "delay 0.05"),
        lambda: tell(made, "drop"),
        lambda: partition(made),
        lambda: move_server(made),
        lambda: move_site(made),
    ]
    for number, happens in enumerate(trouble, 1):
        assert wait_for(lambda least=number: rounds(folder) >= least, 150), made.log(
            "server"
        ).read_text()[-3000:]
        happens()
    assert process.wait(300) == 0, made.log("submitter").read_text()
    rows = tiny.rows(folder)
    assert [row["round"] for row in rows] == list(range(1, ROUNDS + 1))
    assert [row["refused"] for row in rows] == [[]] * ROUNDS
    for row in rows:
        assert any(line[1] >= 0 for line in row["ledger"])
    result = json.loads((folder / "result.json").read_text())
    assert len(result["clients"]) == 2


def called_from_outside(made):
    """A program that asks for the control interface from a site's machine."""
    return f"""
import ssl, urllib.error, urllib.request
context = ssl.create_default_context(cafile={str(made.path / "ca.crt")!r})
request = urllib.request.Request(
    "https://{ROUTER}:{PORT}/v1/control/list-nodes", data=b"", method="POST"
)
try:
    print(urllib.request.urlopen(request, timeout=20, context=context).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def partition(made):
    tell(made, "cut")
    time.sleep(8)
    tell(made, "mend")


def move_server(made):
    """The server gets another address, and loses the one it had."""
    namespace = made.namespace("server")
    device = f"fl{os.getpid() % 100000}a0"
    ip("addr", "add", f"{SERVER_AFTER_MOVING}/24", "dev", device, inside=namespace)
    ip("addr", "del", f"{SERVER}/24", "dev", device, inside=namespace)
    if SERVER_AFTER_MOVING not in addresses(namespace):  # it went with the first of its subnet
        ip("addr", "add", f"{SERVER_AFTER_MOVING}/24", "dev", device, inside=namespace)
    tell(made, f"target {SERVER_AFTER_MOVING}")


def addresses(namespace):
    words = ["ip", "netns", "exec", namespace, "ip", "-o", "addr"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def move_site(made):
    """A site's provider gives it another address."""
    namespace = made.namespace("site-a")
    device = f"fl{os.getpid() % 100000}a1"
    ip("addr", "flush", "dev", device, inside=namespace)
    ip("addr", "add", "10.213.1.77/24", "dev", device, inside=namespace)
    ip("route", "add", "default", "via", "10.213.1.1", inside=namespace)


def test_the_proxys_namespaces_are_gone(tmp_path):
    """What these tests make does not outlive them."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need root and `ip`")
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert f"fedloom-{os.getpid()}-" not in listed
