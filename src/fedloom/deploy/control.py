"""Calls to the control interface of a federation's own server, with a token.

The server runs Flower's SuperLink behind our guard (guard.py). Its control interface answers only
callers on its own machine that show a token (tokens.py).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedloom.deploy.tokens import TokenFile
from fedloom.errors import FedloomError, RunStopped

Answer = TypeVar("Answer")
START = "start it with `fedloom federation server`"
SECONDS = 60.0  # that the server may take to answer


@dataclass(frozen=True)
class Access:
    """What it takes to call a federation's server: its address, and a token."""

    path: Path  # the federation's folder, or the file of a token
    token: TokenFile
    insecure: bool = False  # the server was started with --insecure

    @classmethod
    def by_token(cls, path: Path) -> Access:
        return cls(path.resolve(), TokenFile.read(path))

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the sites that the server has registered."""
        return tuple(sorted(node.name for node in nodes(self) if node.is_registered))


@dataclass(frozen=True)
class Node:
    """A node as the server knows it."""

    number: int
    name: str  # of the site; nodes that an earlier version registered have none
    status: str  # as Flower calls it
    online_since: str | None
    offline_since: str | None
    public_key: bytes

    @property
    def is_registered(self) -> bool:
        return self.status != "unregistered"

    @classmethod
    def of(cls, info: Any) -> Node:
        return cls(
            number=int(info.node_id),
            name=str(info.name) or f"node {info.node_id}",
            status=str(info.status),
            online_since=readable_time(info.last_activated_at),
            offline_since=readable_time(info.last_deactivated_at),
            public_key=bytes(info.public_key),
        )


def nodes(access: Access) -> list[Node]:
    from flwr.proto.control_pb2 import ListNodesRequest

    answer = call(access, lambda control: control.ListNodes(ListNodesRequest()))
    return [Node.of(info) for info in answer.nodes_info]


def register(access: Access, name: str, public_key: bytes) -> int:
    """Register a site's public key (PEM). Returns the number that Flower gives the node."""
    from flwr.proto.control_pb2 import RegisterNodeRequest

    request = RegisterNodeRequest(public_key=public_key, name=name)
    return int(call(access, lambda control: control.RegisterNode(request)).node_id)


def unregister(access: Access, number: int) -> None:
    from flwr.proto.control_pb2 import UnregisterNodeRequest

    request = UnregisterNodeRequest(node_id=number)
    call(access, lambda control: control.UnregisterNode(request))


def start_run(access: Access, project: bytes, settings: Mapping[str, str]) -> str:
    """Submit the program with this pyproject.toml, and return the number of its run."""
    from flwr.cli.build import build_fab_from_files
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.supercore.fab import Fab

    content, _ = build_fab_from_files({"pyproject.toml": project})
    request = StartRunRequest(
        fab=fab_to_proto(Fab(digest_of(content), content, {})),
        override_config=user_config_to_proto(dict(settings)),
    )
    answer = call(access, lambda control: control.StartRun(request))
    if not answer.HasField("run_id"):
        raise RunStopped("Flower's server must start the run", "it did not", "see superlink.log")
    return str(answer.run_id)


def stop_run(access: Access, number: str) -> None:
    from flwr.proto.control_pb2 import StopRunRequest

    request = StopRunRequest(run_id=int(number))
    call(access, lambda control: control.StopRun(request))


def digest_of(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()


def call(access: Access, ask: Callable[[Any], Any]) -> Any:
    """Call the server, and turn its refusals into one sentence."""
    import httpx

    try:
        with client(access) as control:
            return ask(control)
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        text = sentence_in(error.response)
        if status in (401, 403):
            rule = "the federation's server must accept the token"
            raise FedloomError(rule, text, "ask the federation's owner for one that fits") from None
        raise RunStopped("Flower's server must answer", text, START) from None
    except httpx.TransportError as error:
        port = access.token.server.rpartition(":")[2]
        found = f"it does not at port {port} ({type(error).__name__})"
        raise RunStopped("Flower's server must answer", found, START) from None


@contextmanager
def client(access: Access) -> Iterator[Any]:
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    address = access.token.server
    if not listens(address):
        silence = f"nothing answers at port {address.rpartition(':')[2]}"
        raise RunStopped("the federation's server must run here", silence, START)
    authority = None
    if not access.insecure:
        authority = access.token.authority.encode()
    interceptors: Sequence[Any] = [
        RuntimeVersionHttpInterceptor(component_name="fedloom"),
        Bearer(access.token.secret),
    ]
    control = ControlHttpClient.from_server_address(
        address, access.insecure, authority, interceptors
    )
    control._client.timeout = SECONDS
    try:
        yield control
    except ssl.SSLError as error:
        rule = f"{address} must show a certificate of this federation's authority"
        raise RunStopped(rule, f"it does not ({error.reason})", START) from None
    finally:
        control.close()


class Bearer:
    """Adds the token to every call."""

    def __init__(self, secret: str) -> None:
        self.header = f"Bearer {secret}"

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        context.request.headers["Authorization"] = self.header
        return call_next(context)


def sentence_in(response: Any) -> str:
    """What the guard or Flower said."""
    text = " ".join(str(response.text).split())
    if text:
        return text
    return f"it answered {response.status_code}"


def listens(address: str) -> bool:
    """Whether something listens at an address of this machine."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(1.0)
        try:
            return probe.connect_ex((host, int(port))) == 0
        except (OSError, ValueError, OverflowError):  # no such name, no such port
            return False


def readable_time(text: str) -> str | None:
    """A moment as Flower tells it, for people; None: there was none."""
    import datetime

    if not text:
        return None
    moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"
