"""A site's warm process: it has imported everything, and forks for every message.

Flower starts a new process for every message, which imports torch: seconds, every round. This
process takes the place of Flower's executor. It asks the site's own SuperNode for work, as
Flower's does, and signs that question with a secret that only the site's user can read. For every
message it forks a child, which answers as Flower's own program would and ends. So each message
still has a process of its own: nothing of one can reach the next.

It does not wait for a child before it asks for more work. A message of a run that has ended, such
as one that was on its way when the server was killed, never arrives whole, and its child would wait
for the rest forever.

Flower would unpack the program that a server sends, load what that names from a folder that the
server names too, and send the text of an error back. Here nothing of it is unpacked or loaded, and
no text leaves.

    python -m fedloom.deploy.executor ADDRESS SECRET-FILE PARENT
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fedloom.deploy.audit import AuditLog
from fedloom.deploy.processes import end_with_parent
from fedloom.errors import FedloomError, shortened

log = logging.getLogger("flwr")

POLL = 0.1  # seconds between two questions for work
MOST_CHILDREN = 8  # at a time; the oldest is ended for another one
# What a site does not leave to Flower when it answers a message.
FLOWERS = ("install_from_fab", "get_project_dir", "get_load_client_app_fn", "Error")
MOST_REASON = 2000  # characters of an error in the audit log
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


def serve(address: str, secret: bytes, parent: int) -> None:
    """Answer messages until the SuperNode ends."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import (
        RuntimeVersionHttpInterceptor,
        SuperExecAuthHttpInterceptor,
    )
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient

    interceptors: list[Any] = [
        RuntimeVersionHttpInterceptor(component_name="SuperExec"),
        SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=frozenset({ACQUIRE})),
    ]
    client = RuntimeHttpClient.from_server_address(
        address, True, None, interceptors, retry_invoker=make_simple_http_retry_invoker()
    )
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    children = Children()
    while os.getppid() == parent:
        children.reap()
        answer = client.AcquireTask(request)
        if answer.HasField("task") and answer.token:
            children.start(partial(answer_one, address, answer.token))
        else:
            time.sleep(POLL)


class Children:
    """The processes of the messages that are being answered."""

    def __init__(self) -> None:
        self.running: list[int] = []  # their ids, the oldest first

    def start(self, work: Callable[[], int]) -> None:
        """Fork, and do the work in the child, whose exit code it returns."""
        self.reap()
        if len(self.running) >= MOST_CHILDREN:
            self._end(self.running[0])
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            self.running.append(child)
            return
        code = 1
        try:
            end_with_parent()
            code = work()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # without what this process would do when the parent's imports end

    def reap(self) -> None:
        """Forget the children that have ended."""
        for child in list(self.running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended:
                continue
            self.running.remove(child)
            if status != 0:
                log.error("the process of a message ended with status %s", status)

    def _end(self, child: int) -> None:
        log.error("a message was not answered and is given up: %d others wait", MOST_CHILDREN - 1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        self.running.remove(child)


def answer_one(address: str, token: str) -> int:
    """What `flwr-clientapp` does, without starting Python again."""
    runtime = runtime_with_our_program()
    try:
        runtime.run_clientapp(
            runtime_api_address=address,
            token=token,
            insecure=True,
            certificates=None,
            parent_pid=os.getppid(),
            runtime_dependency_install=False,
        )
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def runtime_with_our_program() -> Any:
    """Flower's module that answers a message, where every program is the installed fedloom."""
    from fedloom.deploy.site import app

    runtime: Any = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    for name in FLOWERS:
        if not callable(getattr(runtime, name)):  # they are internal to Flower
            raise TypeError(f"Flower's {name} is not what it was")

    def not_installed(content: bytes, **options: Any) -> Path:
        return Path()

    def nowhere(*program: str) -> Path:
        return Path()

    def load_ours(**options: Any) -> Callable[..., Any]:
        return lambda *program: app

    runtime.install_from_fab = not_installed
    runtime.get_project_dir = nowhere
    runtime.get_load_client_app_fn = load_ours
    runtime.Error = error_without_text
    return runtime


def error_without_text(code: int, reason: str) -> Any:
    """Flower's own error reply. Its text, such as that of a full disk with a path, stays here."""
    from flwr.app import Error

    number = None
    try:
        line = {"order": None, "code": "method", "reason": shortened(reason, MOST_REASON)}
        number = AuditLog(Path.cwd()).append("refused", line)  # this process runs in the kit
    except (FedloomError, OSError) as error:
        log.error("%s", error)
    log.error("number %s: %s", number, reason)
    where = "the site's own log says why"
    if number is not None:
        where = f"number {number} in the site's audit log says why"
    return Error(code=code, reason=where)


def import_everything() -> None:
    """Import now what every message needs. No thread may start here: the process will fork."""

    runtime_with_our_program()


def main() -> None:
    address, secret_file, parent = sys.argv[1:]
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the SuperNode, which ends this
    import_everything()
    serve(address, Path(secret_file).read_bytes(), int(parent))


if __name__ == "__main__":
    main()
