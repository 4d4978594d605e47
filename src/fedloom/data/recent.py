"""The samples of the clients that worked last.

They are kept so that evaluating a client need not read again what training it has read.
"""

from __future__ import annotations

from collections.abc import Callable

from fedloom.data.samples import ClientData

MOST_BYTES = 1 << 26  # of all samples that are kept; one client may have more, and is kept alone


class RecentClients:
    """Reads a client's samples, or has them still."""

    def __init__(self, read: Callable[[int], ClientData], most_bytes: int = MOST_BYTES) -> None:
        self.read = read
        self.most_bytes = most_bytes
        self.kept: dict[int, ClientData] = {}  # the longest unused first
        self.sizes: dict[int, int] = {}  # in bytes, of each of them when it was last looked at
        self.size = 0  # of all of them
        self.latest: int | None = None  # whom the latest order was for

    def __call__(self, client: int) -> ClientData:
        if self.latest is not None:
            self._measure(self.latest)  # a part is read when it is asked for, so it may have grown
        data = self.kept.pop(client, None)
        if data is None:
            data = self.read(client)
        self.kept[client] = data
        self._measure(client)
        while len(self.kept) > 1 and self.size > self.most_bytes:
            self._drop(next(iter(self.kept)))
        self.latest = client
        return data

    def _measure(self, client: int) -> None:
        size = self.kept[client].size
        self.size += size - self.sizes.get(client, 0)
        self.sizes[client] = size

    def _drop(self, client: int) -> None:
        del self.kept[client]
        self.size -= self.sizes.pop(client)
