"""Bodies of orders as files, which the worker processes of a machine share."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fedloom.federation.protocol.parcels import is_small
from fedloom.federation.protocol.wire import Body
from fedloom.files import write_whole


class Bodies:
    """Bodies of orders as files, which the workers that need them map into memory.

    A body is written when an order with it is handed out. If clients get different tensors, there
    is one body per client, so at most `most` of them are on the disk. The one that was not needed
    for longest is deleted first, and written again if another order needs it.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder
        self.most = most
        self.paths: dict[int, Path] = {}  # by the id of the body, the latest used last
        self.count = 0  # the number of bodies written so far, which names the next file

    def has_room(self, body: Body, in_use: Collection[int]) -> bool:
        """Whether a body can be written now. Bodies in use cannot be deleted."""
        if is_small(body.size) or id(body) in self.paths or len(self.paths) < self.most:
            return True
        return any(key not in in_use for key in self.paths)

    def written(self, body: Body, in_use: Collection[int]) -> Path | None:
        """The file of a body, for which there must be room.

        None: the body is small and goes with its order.
        """
        if is_small(body.size):
            return None
        path = self.paths.pop(id(body), None)
        if path is None:
            self._make_room(in_use)
            self.count += 1
            path = self.folder / f"{self.count}.body"
            write_whole(path, body.chunks, durable=False)
        self.paths[id(body)] = path
        return path

    def _make_room(self, in_use: Collection[int]) -> None:
        for key in list(self.paths):
            if len(self.paths) < self.most:
                return
            if key not in in_use:
                self.paths.pop(key).unlink(missing_ok=True)

    def clear(self) -> None:
        while self.paths:
            _, path = self.paths.popitem()
            path.unlink(missing_ok=True)
