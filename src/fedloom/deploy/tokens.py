"""Tokens: who may call the server's control interface, as what, and until when.

Whoever reaches the port of a Flower server could otherwise submit runs, which are programs. The
guard in front of it (guard.py) asks every caller for a token.

DIR/tokens.json    the federation's id, and every token's name, role, expiry and SHA-256
DIR/owner.token    the token of whoever owns the folder; commands use it by themselves
FILE.token         a token that the owner gave to somebody else: `fedloom federation token`

The server keeps no token itself, only its SHA-256. All of these files have mode 600.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from fedloom.deploy.kit_file import ServerAddress
from fedloom.deploy.private_files import check_private, write_private
from fedloom.errors import FedloomError
from fedloom.reading import Unreadable, read_json

BOOK = "tokens.json"
LOCK = ".tokens.lock"
OWNER = "owner.token"
OWNER_NAME = "owner"
DAYS = 30  # for which a token is valid, unless its owner says otherwise
MOST_DAYS = 366
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
SECRET = re.compile(r"fedloom_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")

Model = TypeVar("Model", bound=BaseModel)
Role = Literal["viewer", "submitter", "admin"]
# What each role may call. Everything else that Flower's control interface offers is closed to all.
VIEWER = frozenset({"list-nodes", "list-runs"})
SUBMITTER = VIEWER | {"start-run", "stop-run"}
ADMIN = SUBMITTER | {"register-node", "unregister-node"}
CALLS: dict[Role, frozenset[str]] = {"viewer": VIEWER, "submitter": SUBMITTER, "admin": ADMIN}


class Entry(BaseModel):
    """What the server knows of a token."""

    model_config = ConfigDict(frozen=True)

    name: str
    role: Role
    expires: AwareDatetime
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")  # SHA-256 of the token

    def has_expired(self, now: datetime.datetime) -> bool:
        return now >= self.expires


class TokenBook(BaseModel):
    """The content of tokens.json."""

    model_config = ConfigDict(frozen=True)

    format: int = 1
    federation: str = Field(pattern=r"^[0-9a-f]{16}$")
    tokens: tuple[Entry, ...] = ()

    @classmethod
    def create(cls) -> TokenBook:
        return cls(federation=secrets.token_hex(8))

    @classmethod
    def read(cls, folder: Path) -> TokenBook:
        path = folder / BOOK
        check_private(path)
        return parsed(cls, path, "restore it, or delete it: then all tokens must be made again")

    def write(self, folder: Path) -> None:
        write_private(folder / BOOK, self.model_dump_json(indent=1).encode())

    def entry_of(self, secret: str) -> Entry | None:
        digest = hashlib.sha256(secret.encode()).hexdigest()
        for entry in self.tokens:
            if secrets.compare_digest(entry.digest, digest):
                return entry
        return None

    def without(self, name: str) -> TokenBook:
        kept = tuple(entry for entry in self.tokens if entry.name != name)
        return self.model_copy(update={"tokens": kept})

    def with_new(self, name: str, role: Role, days: int) -> tuple[TokenBook, Entry, str]:
        """The book with a new token, which replaces one of the same name, and the token itself."""
        secret = f"fedloom_{self.federation}_{secrets.token_urlsafe(32)}"
        expires = now_in_seconds() + datetime.timedelta(days=days)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        entry = Entry(name=name, role=role, expires=expires, digest=digest)
        kept = self.without(name).tokens
        return self.model_copy(update={"tokens": (*kept, entry)}), entry, secret


class TokenFile(BaseModel):
    """A token, and how to reach the server that takes it."""

    model_config = ConfigDict(frozen=True)

    format: int = 1
    federation: str
    name: str
    role: Role
    expires: AwareDatetime
    server: ServerAddress  # on the server's own machine
    authority: str  # PEM of the certificate that the server's own must be signed by
    secret: str = Field(pattern=rf"^{SECRET.pattern}$")

    @classmethod
    def read(cls, path: Path) -> TokenFile:
        """Read a token. Raises an error if others can read it, or if it can no longer be used."""
        check_private(path)
        token = parsed(cls, path, "ask the federation's owner for a new one")
        if now_in_seconds() >= token.expires:
            raise FedloomError(
                f"the token {path} must be valid now",
                f"it expired at {token.expires:%Y-%m-%d %H:%M} UTC",
                "ask the federation's owner for a new one, and check this machine's clock",
            )
        return token

    def write(self, path: Path) -> None:
        write_private(path, self.model_dump_json(indent=1).encode())


def parsed(model: type[Model], path: Path, advice: str) -> Model:
    rule = f"{path} must be as fedloom wrote it"
    try:
        return model.model_validate(read_json(path))
    except Unreadable as error:
        raise FedloomError(rule, f"{error}", advice) from None
    except ValidationError:
        raise FedloomError(rule, "it is damaged", advice) from None


def now_in_seconds() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def book_of(folder: Path) -> TokenBook:
    """A federation's tokens. A federation of an earlier version gets its first ones here."""
    if (folder / BOOK).exists():
        return TokenBook.read(folder)
    book = TokenBook.create()
    book.write(folder)
    return book


def issue(folder: Path, name: str, role: Role, days: int, server: str, authority: str) -> TokenFile:
    """Make a token and enter it into the book."""
    if not NAME.fullmatch(name):
        rule = "a token's name must consist of lower-case letters, digits and hyphens"
        raise FedloomError(rule, f"got {name!r}", "try --name anna")
    if not 0 < days <= MOST_DAYS:
        rule = f"--days must be a number from 1 to {MOST_DAYS}"
        raise FedloomError(rule, f"got {days}", f"try {DAYS}")
    with locked(folder):
        book, entry, secret = book_of(folder).with_new(name, role, days)
        book.write(folder)
    return TokenFile(
        federation=book.federation,
        name=name,
        role=role,
        expires=entry.expires,
        server=server,
        authority=authority,
        secret=secret,
    )


def withdraw(folder: Path, name: str) -> None:
    """Make a token unusable. The guard reads the book again at the next call."""
    with locked(folder):
        book = book_of(folder)
        names = sorted(entry.name for entry in book.tokens)
        if name not in names:
            known = ", ".join(names) or "none"
            raise FedloomError("--withdraw must name a token", f"got {name!r}", f"known: {known}")
        book.without(name).write(folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let no other command change the tokens: one that is withdrawn would come back."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def owners_token(folder: Path, server: str, authority: str) -> TokenFile:
    """The token of whoever owns the federation's folder, made or renewed when it is needed."""
    path = folder / OWNER
    if path.exists():
        check_private(path)
        token = parsed(TokenFile, path, "delete it: it is made again")
        entry = book_of(folder).entry_of(token.secret)
        if entry is not None and not entry.has_expired(now_in_seconds()):
            return token.model_copy(update={"server": server, "authority": authority})
    token = issue(folder, OWNER_NAME, "admin", DAYS, server, authority)
    token.write(path)
    return token


def refusal_of(book: TokenBook, header: str | None, call: str) -> tuple[int, str] | None:
    """Why a call with this Authorization header is refused, as HTTP status and sentence.

    None: it is allowed.
    """
    if not header:
        return 401, "the call has no token"
    scheme, _, secret = header.partition(" ")
    shape = SECRET.fullmatch(secret)
    if scheme.lower() != "bearer" or shape is None:
        return 401, "the token is malformed"
    if shape.group(1) != book.federation:
        return 401, "the token is of another federation"
    entry = book.entry_of(secret)
    if entry is None:
        return 401, "the token is unknown here, or was withdrawn"
    if entry.has_expired(now_in_seconds()):
        return 401, f"the token expired at {entry.expires:%Y-%m-%d %H:%M} UTC"
    if call not in ADMIN:
        return 403, f"{call} is closed to everybody"
    if call not in CALLS[entry.role]:
        return 403, f"a {entry.role}'s token does not allow {call}"
    return None
