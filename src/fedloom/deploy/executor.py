"""A site's warm process: it has imported everything, and forks for every message.

Flower starts a new process for every message, which imports torch: seconds, every round. This
process takes the place of Flower's executor. It asks the site's own SuperNode for work, as
Flower's does, and signs that question with a secret that only the site's user can read. For every
message it forks a child, which answers as Flower's own program would and ends. So each message
still has a process of its own: nothing of one can reach the next.

It does not wait for a child before it asks for more work. A message of a run that has ended, such
as one that was on its way when the server was killed, never arrives whole, and its child would wait
for the rest forever.

    python -m fedloom.deploy.executor ADDRESS SECRET-FILE PARENT
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fedloom.deploy.processes import end_with_parent

log = logging.getLogger("flwr")

POLL = 0.1  # seconds between two questions for work
MOST_CHILDREN = 8  # at a time; the oldest is ended for another one
CLIENT_APP = "flwr-clientapp"
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
    from flwr.supernode.runtime.run_clientapp import run_clientapp

    try:
        run_clientapp(
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


def import_everything() -> None:
    """Import now what every message needs. No thread may start here: the process will fork."""

    import fedloom.deploy.site  # noqa: F401


def main() -> None:
    address, secret_file, parent = sys.argv[1:]
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the SuperNode, which ends this
    import_everything()
    serve(address, Path(secret_file).read_bytes(), int(parent))


if __name__ == "__main__":
    main()
