"""The private states of clients, on their own disk, in versions.

A version is named by the round and hop that wrote it. An order names the version to read, the
version to write, and those to which the server's checkpoints may still return. A version that no
order names counts as never written.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from fedloom.federation.protocol.packing import WireError
from fedloom.federation.protocol.wire import checked_state_chunks, read_state
from fedloom.files import remove_leftovers, write_whole
from fedloom.types import State


class LostState(Exception):
    """The server asked for a version of a client's state that is missing or damaged."""

    def __init__(self, client: int, version: str, damage: str | None = None) -> None:
        if damage is None:
            super().__init__(f"client {client} no longer has version {version} of its state")
        else:
            super().__init__(
                f"version {version} of the state of client {client} cannot be read ({damage})",
            )


class ClientStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, client: int, version: str) -> State:
        try:
            return read_state(self._path(client, version).read_bytes())
        except FileNotFoundError:
            raise LostState(client, version) from None
        except (WireError, OSError) as error:
            raise LostState(client, version, str(error)) from None

    def write(self, client: int, version: str, state: State, keep: tuple[str, ...] = ()) -> None:
        """Save a version, then delete older ones that are not in `keep`, but never newer ones."""
        path = self._path(client, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent)  # first: they may be what fills the disk
        write_whole(path, checked_state_chunks(state), durable=True)
        for other in self.versions(client):
            if age(other) < age(version) and other not in keep:
                self._path(client, other).unlink(missing_ok=True)

    def versions(self, client: int) -> list[str]:
        """The versions of a client's state, oldest first."""
        return sorted(
            (path.stem for path in (self.folder / str(client)).glob("[0-9]*.state")),
            key=age,
        )

    def cut_after(self, number: int) -> None:
        """Delete the versions that later rounds wrote, when a run is taken back to this round."""
        for folder in self._clients():
            client = int(folder.name)
            for version in self.versions(client):
                if age(version)[0] > number:
                    self._path(client, version).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete the unfinished files of processes that were killed."""
        for folder in [self.folder, *self._clients()]:
            remove_leftovers(folder)

    def _clients(self) -> list[Path]:
        """The folders of clients that keep a state here."""
        if not self.folder.is_dir():
            return []
        return [path for path in self.folder.iterdir() if path.name.isdecimal() and path.is_dir()]

    def secret(self) -> bytes:
        """A random secret of this site, for noise that the server must not be able to subtract."""
        path = self.folder / "secret"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            draft = self.folder / f".secret.{os.getpid()}.tmp"
            write_whole(draft, [secrets.token_bytes(32)], durable=True)
            with suppress(FileExistsError):
                # Unlike a rename, this keeps the first secret if two processes create one.
                os.link(draft, path)
            draft.unlink()
        return path.read_bytes()

    def _path(self, client: int, version: str) -> Path:
        number, hop = age(version)  # the text comes from outside, so it must not become a path
        return self.folder / str(client) / f"{number}.{hop}.state"


def age(version: str) -> tuple[int, int]:
    """The round and hop of a version such as "12.0", which sort by time."""
    number, hop = version.split(".")
    return int(number), int(hop)
