"""Frames on a socket: a size and as many bytes, within limits of time and memory."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Final

from eosdb.wire.fetch_answer import Pieces
from eosdb.wire.limits import UNCOUNTED, Lease, Limits
from eosdb.wire.messages import MalformedMessageError
from eosdb.wire.parking import REAL_TIME

_SIZE: Final = struct.Struct(">i")
_PIECE: Final = 65_536
"""The most that one call reads; the memory of a frame grows as its bytes arrive."""
_STALL_MS: Final = 2_000
"""How long a client may pause while it holds memory that other connections wait for."""
_LOOK_S: Final = 0.5
"""The interval of checking whether others wait for memory."""


class Frames:
    """Reads requests and writes responses of a connection. `lease` holds the shared memory of a request
    until the next request is read."""

    def __init__(self, sock: socket.socket, limits: Limits, lease: Lease) -> None:
        self._socket = sock
        self._limits = limits
        self.lease: Final = lease
        self._stranger_until_ms: int | None = REAL_TIME.monotonic_ms() + int(
            limits.stranger_s * 1000
        )

    def knows_its_client(self) -> None:
        """From now on the client may be idle for as long as clients may."""
        self._stranger_until_ms = None

    @property
    def patience_s(self) -> float:
        """How long the client may be silent."""
        if self._stranger_until_ms is None:
            return self._limits.idle_s
        left_ms = self._stranger_until_ms - REAL_TIME.monotonic_ms()
        return min(left_ms / 1000, self._limits.idle_s)

    def read(self, largest: int) -> bytearray | None:
        """Read the next request; None if the client has disconnected or was idle for too long.

        Raises MalformedMessageError for a size beyond `largest`, before allocating anything, and
        TimeoutError if a frame is not completed in time, or pauses while others wait for its memory, or if
        a stranger keeps talking.
        """
        self.lease.release()
        if (patience_s := self.patience_s) <= 0:
            raise TimeoutError(f"it has not logged in within {self._limits.stranger_s:.0f} s")
        self._socket.settimeout(patience_s)
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

    def write(self, answer: Pieces) -> None:
        """Send a response. Raises TimeoutError if the client does not read it."""
        size = sum(map(len, answer))
        if (more := size - UNCOUNTED - self.lease.size) > 0:
            self.lease.take(more)
        patience = _Patience(self._limits.seconds_for(size), self.lease)
        for piece in answer:
            left = memoryview(piece)
            while left:
                self._socket.settimeout(
                    patience.seconds(f"the client has not read {size} bytes of a response")
                )
                with contextlib.suppress(TimeoutError):
                    sent = self._socket.send(left[:_PIECE])
                    left, size = left[sent:], size - sent
                    patience.renew()

    def _fill(self, data: bytearray, size: int) -> bool:
        """Read until `data` has `size` bytes; False if the client disconnects before."""
        patience = _Patience(min(self._limits.seconds_for(size), self.patience_s), self.lease)
        while (left := size - len(data)) > 0:
            self._socket.settimeout(
                patience.seconds(f"received {len(data)} of the {size} bytes of a frame")
            )
            try:
                received = self._socket.recv(min(left, _PIECE))
            except TimeoutError:
                continue
            if not received:
                return False
            if len(data) + len(received) > UNCOUNTED:
                with patience.paused():
                    self.lease.take_for_request(len(received), size)
            data += received
            patience.renew()
        return True


class _Patience:
    """The deadline for transferring one frame."""

    def __init__(self, seconds: float, lease: Lease) -> None:
        self._seconds, self._lease = seconds, lease
        self._renewed = REAL_TIME.monotonic_ms()
        self._deadline = self._renewed + int(seconds * 1000)

    def seconds(self, progress: str) -> float:
        """The time until the next check. Raises TimeoutError, naming `progress`, if the deadline has passed
        or the client pauses while others wait for its memory."""
        now = REAL_TIME.monotonic_ms()
        if (left := self._deadline - now) <= 0:
            raise TimeoutError(f"{progress} in {self._seconds:.0f} s")
        if self._lease.keeps_others and now - self._renewed >= _STALL_MS:
            raise TimeoutError(f"{progress}, while others wait for its memory")
        return min(left / 1000, _LOOK_S)

    def renew(self) -> None:
        """Restart the time-out, because the peer has made progress."""
        self._renewed = REAL_TIME.monotonic_ms()

    # decisions/0031: it is not the client's fault that there is no room.
    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Extend the deadline by the time spent waiting for memory."""
        began = REAL_TIME.monotonic_ms()
        yield
        self._deadline += REAL_TIME.monotonic_ms() - began
