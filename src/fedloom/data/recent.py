"""A cache of the samples of the clients that worked most recently.

Evaluating a client right after training it then need not read its samples again.
"""

from __future__ import annotations

from collections.abc import Callable

from fedloom.data.samples import ClientData

MOST_BYTES = 1 << 26  # of all kept samples; a single client with more is kept alone


class RecentClients:
    """Returns a client's samples: those that are still kept, or else newly read ones."""

    def __init__(self, read: Callable[[int], ClientData], most_bytes: int = MOST_BYTES) -> None:
        self.read = read
        self.most_bytes = most_bytes
        self.kept: dict[int, ClientData] = {}  # by client, the least recently used first
        self.sizes: dict[int, int] = {}  # bytes by client, as last measured
        self.size = 0  # the sum of all sizes
        self.latest: int | None = None  # the client of the latest call

    def __call__(self, client: int) -> ClientData:
        if self.latest is not None:
            # Parts are read on first use, so the latest client's data may have grown since.
            self._measure(self.latest)
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
