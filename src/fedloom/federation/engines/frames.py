"""Messages between the server and a worker process, each preceded by its length.

Small messages arrive faster than they are processed, so a reader takes all that have arrived with
one system call.
"""

from __future__ import annotations

import os
import struct
from collections import deque

LENGTH = struct.Struct("!I")
AT_ONCE = 1 << 16  # bytes that one system call reads at most


def framed(message: bytes) -> bytes:
    return LENGTH.pack(len(message)) + message


def write_all(handle: int, data: bytes) -> None:
    unwritten = memoryview(data)
    while unwritten:
        written = os.write(handle, unwritten)
        unwritten = unwritten[written:]


class Inbox:
    """Reads messages from a socket."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.messages: deque[bytes] = deque()  # those that have arrived
        self._begun = bytearray()  # the first bytes of the next one

    def take(self) -> bytes:
        """Wait for the next message. Raises EOFError if the other side is gone."""
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
