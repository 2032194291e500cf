"""Frames over a socket: a size, then so many bytes, within the limits of time and memory."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Final

from eosdb.wire.limits import Lease, Limits
from eosdb.wire.messages import MalformedMessageError
from eosdb.wire.parking import REAL_TIME

_SIZE: Final = struct.Struct(">i")
_PIECE: Final = 65_536
"""The most that one call reads; memory for a frame grows with what has arrived."""
_UNCOUNTED: Final = 65_536
"""What every connection may have without asking for room."""
_STALL_MS: Final = 2_000
"""A client that has room for which others wait may pause for so long."""
_LOOK_S: Final = 0.5
"""How often it is looked whether others wait."""


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
        TimeoutError for a frame that has begun and does not end, or pauses while others wait for its room.
        """
        self.lease.release()
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
        if (more := len(answer) - _UNCOUNTED - self.lease.size) > 0:
            self.lease.take(more)
        patience = _Patience(self._limits.seconds_for(len(answer)), self.lease)
        left = memoryview(answer)
        while left:
            self._socket.settimeout(
                patience.seconds(f"{len(left)} bytes of an answer are not read")
            )
            with contextlib.suppress(TimeoutError):
                left = left[self._socket.send(left[:_PIECE]) :]
                patience.renew()

    def _fill(self, data: bytearray, size: int) -> bool:
        """Read on until there are so many bytes; False when the client goes away before."""
        patience = _Patience(self._limits.seconds_for(size), self.lease)
        while (left := size - len(data)) > 0:
            self._socket.settimeout(
                patience.seconds(f"of a frame of {size} bytes {len(data)} have come")
            )
            try:
                received = self._socket.recv(min(left, _PIECE))
            except TimeoutError:
                continue
            if not received:
                return False
            if len(data) + len(received) > _UNCOUNTED:
                with patience.paused():
                    self.lease.take_for_request(len(received), size)
            data += received
            patience.renew()
        return True


class _Patience:
    """How long a client may take for a frame."""

    def __init__(self, seconds: float, lease: Lease) -> None:
        self._seconds, self._lease = seconds, lease
        self._renewed = REAL_TIME.monotonic_ms()
        self._deadline = self._renewed + int(seconds * 1000)

    def seconds(self, found: str) -> float:
        """The longest time until the next look. Raises TimeoutError, with what was found, when the time is
        over, or when the client pauses and others wait for its room."""
        now = REAL_TIME.monotonic_ms()
        if (left := self._deadline - now) <= 0:
            raise TimeoutError(f"{found} in {self._seconds:.0f} s")
        if self._lease.keeps_others and now - self._renewed >= _STALL_MS:
            raise TimeoutError(f"{found}, and others wait for the room")
        return min(left / 1000, _LOOK_S)

    def renew(self) -> None:
        """Something has moved."""
        self._renewed = REAL_TIME.monotonic_ms()

    # decisions/0031: it is not the client's fault that there is no room.
    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time that does not count: the client waits for room."""
        began = REAL_TIME.monotonic_ms()
        yield
        self._deadline += REAL_TIME.monotonic_ms() - began
