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

    def __call__(self, client: int) -> ClientData:
        data = self.kept.pop(client, None)
        if data is None:
            data = self.read(client)
        self.kept[client] = data
        while len(self.kept) > 1 and self.size() > self.most_bytes:
            self.kept.pop(next(iter(self.kept)))
        return data

    def size(self) -> int:
        """A part is read when it is asked for, so this grows without anybody calling."""
        return sum(data.size for data in self.kept.values())
