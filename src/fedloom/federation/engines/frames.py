"""Messages between the server and a worker process: each goes with its length before it.

Small ones come faster than they are looked at, so whoever reads takes all that have arrived by one
call of the kernel.
"""

from __future__ import annotations

import os
import struct
from collections import deque

LENGTH = struct.Struct("!I")
AT_ONCE = 1 << 16  # bytes


def framed(message: bytes) -> bytes:
    return LENGTH.pack(len(message)) + message


def write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


class Inbox:
    """What comes out of a socket, message by message."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.messages: deque[bytes] = deque()  # that have arrived
        self._begun = bytearray()  # of the next one

    def take(self) -> bytes:
        """The next message; waits for it. Raises EOFError if the other side is gone."""
        while not self.messages:
            self._read()
        return self.messages.popleft()

    def _read(self) -> None:
        arrived = os.read(self.handle, AT_ONCE)
        if not arrived:
            raise EOFError
        self._begun += arrived
        begin = 0
        while begin + LENGTH.size <= len(self._begun):
            (length,) = LENGTH.unpack_from(self._begun, begin)
            end = begin + LENGTH.size + length
            if end > len(self._begun):
                break
            self.messages.append(bytes(self._begun[begin + LENGTH.size : end]))
            begin = end
        del self._begun[:begin]
