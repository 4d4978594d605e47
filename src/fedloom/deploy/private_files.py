"""Files that only their owner may read: keys and tokens."""

from __future__ import annotations

import os
from pathlib import Path

from fedloom.errors import FedloomError


def check_private(path: Path) -> None:
    """Raise an error unless the owner of a key, and nobody else, can read it."""
    try:
        mode = path.stat().st_mode
        path.read_bytes()
    except OSError as error:
        rule = f"{path} must be readable by you"
        raise FedloomError(rule, error.strerror or "?", "restore it") from None
    if mode & 0o077:
        rule = f"{path} must be readable by its owner alone"
        raise FedloomError(rule, f"its mode is {mode & 0o777:o}", "chmod 600")


def write_private(path: Path, content: bytes) -> None:
    """Write a file that is never readable by others, and whole or absent at any moment."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
