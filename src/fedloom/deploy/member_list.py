"""The guard's view of a federation's folder: its tokens and the keys that it admits.

Both files are read again when they change, so that a token or key that was withdrawn a moment ago
no longer opens anything.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from fedloom.deploy.members import KeyRecord, RevokedKey, fingerprint_of, records_in, refusal_of
from fedloom.deploy.tokens import BOOK, TokenBook
from fedloom.errors import FedloomError
from fedloom.reading import Unreadable, read_json

Content = TypeVar("Content")


class Watched(Generic[Content]):
    """A file's content, which is read again when the file was replaced."""

    def __init__(self, path: Path, read: Callable[[], Content]) -> None:
        self.path = path
        self.read = read
        self.mark: tuple[int, ...] | None = None
        self.content: Content | None = None

    def current(self) -> Content | None:
        """The content. None: it cannot be read, so that nothing may be allowed by it."""
        try:
            state = os.stat(self.path)
            mark = (state.st_ino, state.st_mtime_ns, state.st_size, state.st_mode)
            if mark != self.mark:
                self.content = None
                self.content = self.read()
                self.mark = mark
        except (OSError, FedloomError, Unreadable, KeyError, ValueError, TypeError, AttributeError):
            self.mark = None
            return None
        return self.content


class Members:
    """Which keys the federation admits."""

    def __init__(
        self, sites: tuple[str, ...], keys: dict[str, KeyRecord], revoked: tuple[RevokedKey, ...]
    ) -> None:
        self.sites = sites
        self.keys = keys
        self.revoked = revoked

    @classmethod
    def read(cls, file: Path) -> Members:
        raw = read_json(file)
        keys = records_in(raw.get("keys", {}))
        revoked = tuple(map(RevokedKey.from_json, raw.get("revoked", [])))
        return cls(tuple(map(str, raw["sites"])), keys, revoked)

    def refusal_of(self, public_key: bytes) -> str | None:
        now = datetime.datetime.now(datetime.UTC)
        return refusal_of(public_key, self.keys, self.revoked, now)

    def site_of(self, public_key: bytes) -> str | None:
        fingerprint = fingerprint_of(public_key)
        for site, record in self.keys.items():
            if record.fingerprint == fingerprint:
                return site
        return None


class MemberList:
    """What the guard reads of a federation's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        file = folder / "federation.json"
        self.members = Watched(file, lambda: Members.read(file))
        self.tokens = Watched(folder / BOOK, lambda: TokenBook.read(folder))
