"""What strangers may cost a server: sizes, times, and the memory that all connections share.

Every bound ends in an error of Kafka's or in a closed connection (docs/wire.md, "Limits"; decisions/0031).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from eosdb.errors import MessageTooLargeError

_MIB: Final = 1_048_576
DECOMPRESSED_BYTES: Final = 104_857_600
"""The most that the batches of one request may have when they are decompressed: as many as a request."""
RECORDS: Final = 1_000_000
"""The most records in the batches of one request."""
_READING: Final = 4
"""Kafka's num.io.threads is 8; beside the interpreter's lock more than these only cost memory."""
_RECORD_BYTES: Final = 256
"""About what a record costs beside its bytes while its batch is read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one server. The defaults are Kafka's where Kafka has them."""

    frame_bytes: int = 104_857_600
    """socket.request.max.bytes."""
    frame_bytes_before_login: int = _MIB
    connections: int = 1_000
    buffered_bytes: int = 134_217_728
    """Requests and answers in memory, of all connections (Kafka: queued.max.request.bytes). A byte of a
    request costs four at most while it is answered."""
    answer_bytes: int = 57_671_680
    """fetch.max.bytes of the broker."""
    idle_s: float = 600.0
    """connections.max.idle.ms."""
    transfer_s: float = 30.0
    """For a frame that has begun, in either direction, and one second more for each MiB."""
    close_s: float = 5.0
    """How long closing waits for requests that are being answered."""

    def seconds_for(self, size: int) -> float:
        """How long a frame of so many bytes may take."""
        return self.transfer_s + size / _MIB


class Memory:
    """The bytes that requests and answers may take, all connections together.

    Who finds no room waits. One of those who wait may always go on, so that it never comes to a stop: the
    bound is `size` and one request more.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._changed = threading.Condition()
        self.reading: Final = threading.BoundedSemaphore(_READING)
        """Held while the records of an answer are read: so many connections to the file there are at most,
        and so many answers that are not measured yet."""
        self._beyond: Lease | None = None
        """Who goes on without room."""

    @property
    def used(self) -> int:
        return self._used

    def lease(self) -> Lease:
        """The share of one connection, empty."""
        return Lease(self)

    def take(self, lease: Lease, size: int, timeout_s: float) -> None:
        """Raises TimeoutError."""
        with self._changed:
            if self._used + size > self._size:
                if not self._changed.wait_for(
                    lambda: self._used + size <= self._size or self._beyond in (None, lease),
                    timeout_s,
                ):
                    raise TimeoutError(
                        f"{self._used} bytes of requests and answers are in memory, no room for {size} more"
                    )
                if self._used + size > self._size:
                    self._beyond = lease
            self._used += size
            lease.size += size

    def share(self, lease: Lease, wanted: int, least: int) -> int:
        """Take what is wanted, but of what is left no more than an eighth, and `least` in any case."""
        with self._changed:
            size = min(wanted, max(least, (self._size - self._used) // 8))
            self._used += size
            lease.size += size
            return size

    def give_back(self, lease: Lease, size: int) -> None:
        """So much of a lease is free again."""
        with self._changed:
            lease.size -= size
            self._used -= size
            if self._beyond is lease and lease.size == 0:
                self._beyond = None
            self._changed.notify_all()


class Lease:
    """What one connection has of the memory for the request that it answers."""

    __slots__ = ("memory", "size")

    def __init__(self, memory: Memory) -> None:
        self.memory: Final = memory
        self.size = 0

    def take(self, size: int, timeout_s: float) -> None:
        """More of it, waiting for room. Raises TimeoutError."""
        self.memory.take(self, size, timeout_s)

    def share(self, wanted: int, least: int) -> int:
        """A part of what is wanted, without waiting: how much it is."""
        return self.memory.share(self, wanted, least)

    def shrink_to(self, size: int) -> None:
        """The rest is free again."""
        if size < self.size:
            self.memory.give_back(self, self.size - size)


class Allowance:
    """What one request may still make of its bytes: decompressed ones, and records."""

    def __init__(self, lease: Lease, timeout_s: float) -> None:
        self._lease, self._timeout_s = lease, timeout_s
        self.bytes_left = DECOMPRESSED_BYTES
        self._records_left = RECORDS

    @contextlib.contextmanager
    def buffer(self, size: int) -> Iterator[bytearray]:
        """So many bytes to decompress into, for a while. Raises TimeoutError."""
        self._lease.take(size, self._timeout_s)
        try:
            yield bytearray(size)
        finally:
            self._lease.shrink_to(self._lease.size - size)

    def decompressed(self, size: int) -> None:
        """So many bytes have come out. Raises MessageTooLargeError and TimeoutError."""
        if size > self.bytes_left:
            raise MessageTooLargeError(
                f"the batches of the request have more than {DECOMPRESSED_BYTES} bytes when they are "
                "decompressed; send fewer or smaller records at once"
            )
        self.bytes_left -= size
        self._lease.take(size, self._timeout_s)

    def records(self, count: int) -> None:
        """So many records are going to be read. Raises MessageTooLargeError and TimeoutError."""
        if count > self._records_left:
            raise MessageTooLargeError(
                f"the batches of the request have more than {RECORDS} records; send fewer at once"
            )
        self._records_left -= count
        self._lease.take(count * _RECORD_BYTES, self._timeout_s)
