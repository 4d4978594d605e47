"""A disk that fails at its k-th operation: the process is killed, or there is no room left."""

from __future__ import annotations

import builtins
import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from fedloom import files
from fedloom.federation.server import archive, spool
from fedloom.federation.server.archive import SPARE

Fail = Callable[[], None]


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Disk:
    """Counts writes, renames, syncs, deletions and truncations.

    Fails at number `at` (and, if full, ever after).
    """

    def __init__(self, at: int | None = None, fail: Fail = killed, *, half: bool = False) -> None:
        self.at = at
        self.fail = fail
        self.half = half
        self.log: list[str] = []  # what each operation was: the kind and the file's kind

    def step(self, kind: str, path: Any, partly: Callable[[], None] = lambda: None) -> None:
        self.log.append(f"{kind} {sort_of(path)}")
        grows = (
            kind in ("write", "rename") or self.fail is killed
        )  # on a full disk one can delete and cut
        if self.at is not None and len(self.log) >= self.at and grows:
            if self.half:
                partly()
            self.fail()

    def open(self, path: Any, mode: str = "r", **more: Any) -> Any:
        file = builtins.open(path, mode, **more)  # noqa: SIM115 - whoever opened it closes it
        if mode == "rb":
            return file
        return Handle(file, path, self)

    def wrapped(self, kind: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(path: Any, *arguments: Any, **named: Any) -> None:
            written = path
            if kind == "rename":
                written = arguments[0]
            self.step(kind, written)
            real(path, *arguments, **named)

        return call

    @contextmanager
    def mounted(self) -> Iterator[Disk]:
        with (
            mock.patch.object(files, "open", self.open, create=True),
            mock.patch.object(archive, "open", self.open, create=True),
            mock.patch.object(spool, "open", self.open, create=True),
            mock.patch.object(os, "replace", self.wrapped("rename", os.replace)),
            mock.patch.object(os, "fsync", self.wrapped("sync", os.fsync)),
            mock.patch.object(os, "unlink", self.wrapped("delete", os.unlink)),
            mock.patch.object(os, "truncate", self.wrapped("cut", os.truncate)),
        ):
            yield self


class Handle:
    """An open file whose writes and cuts are counted; a write may be half done when it fails."""

    def __init__(self, file: Any, path: Any, disk: Disk) -> None:
        self.file = file
        self.path = path
        self.disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> int:
        def partly() -> None:
            self.file.write(memoryview(data)[: len(data) // 2])
            self.file.flush()

        self.disk.step("write", self.path, partly)
        return int(self.file.write(data))

    def truncate(self, size: int) -> int:
        self.disk.step("cut", self.path)
        return int(self.file.truncate(size))


def sort_of(path: Any) -> str:
    """The kind of an operation's place: `checkpoints/000003.state` → "checkpoints .state".

    Operations at places of the same kind are counted together.
    """
    if isinstance(path, int):
        return "descriptor"
    path = Path(path)
    name = path.name
    if name.endswith(".tmp") and name != SPARE:  # beside: .NAME.PID.tmp
        name = name.rsplit(".", 2)[0]
    parent = path.parent.name
    if parent.isdecimal():
        parent = "client"
    if parent not in ("client", "checkpoints", "spool", "data"):
        parent = "run"
    return f"{parent} {name.split('.')[-1]}"
