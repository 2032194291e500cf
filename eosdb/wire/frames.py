"""Frames over a socket: a size, then so many bytes, within the limits of time and memory."""

from __future__ import annotations

import socket
import struct
from typing import Final

from eosdb.wire.limits import Lease, Limits
from eosdb.wire.messages import MalformedMessageError
from eosdb.wire.parking import REAL_TIME

_SIZE: Final = struct.Struct(">i")
_PIECE: Final = 65_536
"""The most that one call reads; memory for a frame grows with what has arrived."""
_UNCOUNTED: Final = 65_536
"""What every connection may have without asking for room."""


class Frames:
    """Reads requests and writes answers. What a request takes of the common memory is in `lease`, until the
    next one is read."""

    def __init__(self, sock: socket.socket, limits: Limits, lease: Lease) -> None:
        self._socket = sock
        self._limits = limits
        self.lease: Final = lease

    def read(self, largest: int) -> bytearray | None:
        """The next request; None when the client has gone, or has sent nothing for too long.

        Raises MalformedMessageError for a size beyond `largest`, before anything is allocated for it, and
        TimeoutError for a frame that has begun and does not end.
        """
        self.lease.shrink_to(0)
        self._socket.settimeout(self._limits.idle_s)
        try:
            data = bytearray(self._socket.recv(_SIZE.size))
        except TimeoutError:
            return None
        if not data or not self._fill(data, _SIZE.size):
            return None
        (size,) = _SIZE.unpack(data)
        if not 0 <= size <= largest:
            raise MalformedMessageError(f"a frame of {size} bytes, at most {largest} are read")
        data.clear()
        return data if self._fill(data, size) else None

    def write(self, answer: bytes | bytearray) -> None:
        """Send an answer. Raises TimeoutError when the client does not read it."""
        seconds = self._limits.seconds_for(len(answer))
        if (more := len(answer) - _UNCOUNTED - self.lease.size) > 0:
            self.lease.take(more, seconds)
        self._socket.settimeout(seconds)
        self._socket.sendall(answer)

    def _fill(self, data: bytearray, size: int) -> bool:
        """Read on until there are so many bytes; False when the client goes away before."""
        seconds = self._limits.seconds_for(size)
        deadline = REAL_TIME.monotonic_ms() + int(seconds * 1000)
        while (left := size - len(data)) > 0:
            try:
                if (remaining_ms := deadline - REAL_TIME.monotonic_ms()) <= 0:
                    raise TimeoutError
                self._socket.settimeout(remaining_ms / 1000)
                received = self._socket.recv(min(left, _PIECE))
            except TimeoutError:
                raise TimeoutError(
                    f"of a frame of {size} bytes {len(data)} have come in {seconds:.0f} s"
                ) from None
            if not received:
                return False
            if len(data) + len(received) > _UNCOUNTED:
                self.lease.take(len(received), seconds)
            data += received
        return True
