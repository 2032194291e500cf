"""What strangers may cost a server: sizes, times, and the memory that all connections share.

Every bound ends in an error of Kafka's or in a closed connection (docs/wire.md, "Limits"; decisions/0031).
"""

from __future__ import annotations

import threading
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
SMALL_REQUEST: Final = _MIB + 65_536
"""As much as clients send at once by default (max.request.size), with what is around it."""
_SMALL_SHARE: Final = 2 * SMALL_REQUEST
"""What one connection may have of the room for small requests."""
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
    """Requests and answers in memory, of all connections (Kafka: queued.max.request.bytes)."""
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


class Room:
    """Bytes that many share. Who finds no room waits, for as long as it takes; one of those who wait may
    always go on, so that it never comes to a stop: the bound is `size` and one request more."""

    def __init__(self, size: int) -> None:
        self.size: Final = size
        self.used = 0
        self._changed = threading.Condition()
        self._waiting = 0
        self._is_closed = False
        self._beyond: Lease | None = None
        """Who goes on without room."""

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for it."""
        return self._waiting > 0

    def take(self, lease: Lease, size: int) -> None:
        """Raises ConnectionAbortedError when the server ends meanwhile."""
        with self._changed:
            while self.used + size > self.size and self._beyond not in (None, lease):
                if self._is_closed:
                    raise ConnectionAbortedError("the server ends, and there is no room")
                self._waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._waiting -= 1
            if self.used + size > self.size:
                self._beyond = lease
            self.used += size

    def share(self, wanted: int, least: int) -> int:
        """Take what is wanted, but of what is left no more than an eighth, and `least` in any case."""
        with self._changed:
            size = min(wanted, max(least, (self.size - self.used) // 8))
            self.used += size
            return size

    def give_back(self, lease: Lease, size: int, *, is_all: bool) -> None:
        """So much is free again, and whether it is all that the lease had."""
        with self._changed:
            self.used -= size
            if self._beyond is lease and is_all:
                self._beyond = None
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class Memory:
    """What requests and answers may take, all connections together: a quarter is for small requests alone,
    so that large ones which do not come to an end keep nobody from being heard."""

    def __init__(self, size: int) -> None:
        self.small: Final = Room(size // 4)
        self.large: Final = Room(size - size // 4)
        self.reading: Final = threading.BoundedSemaphore(_READING)
        """Held while the records of an answer are read: so many connections to the file there are at most,
        and so many answers that are not measured yet."""

    @property
    def used(self) -> int:
        return self.small.used + self.large.used

    def lease(self) -> Lease:
        """The share of one connection, empty."""
        return Lease(self)

    def close(self) -> None:
        """Nobody waits any more."""
        self.small.close()
        self.large.close()


class Lease:
    """What one connection has of the memory for the request that it answers."""

    __slots__ = ("memory", "size", "small")

    def __init__(self, memory: Memory) -> None:
        self.memory: Final = memory
        self.size = 0
        """Of the room for whatever is large."""
        self.small = 0
        """Of the room for small requests."""

    @property
    def keeps_others(self) -> bool:
        """Whether others wait for what it has."""
        memory = self.memory
        return (self.size > 0 and memory.large.is_wanted) or (
            self.small > 0 and memory.small.is_wanted
        )

    def take(self, size: int) -> None:
        """More of it, waiting for room. Raises ConnectionAbortedError."""
        if self.small + size <= _SMALL_SHARE:
            self.memory.small.take(self, size)
            self.small += size
        else:
            self._take_large(size)

    def take_for_request(self, size: int, whole: int) -> None:
        """The same for what has come of a request of `whole` bytes."""
        if whole <= SMALL_REQUEST:
            self.take(size)
        else:
            self._take_large(size)

    def _take_large(self, size: int) -> None:
        self.memory.large.take(self, size)
        self.size += size

    def give_back(self, size: int) -> None:
        """So much of what was taken is free again."""
        large = min(size, self.size)
        self.shrink_to(self.size - large)
        if rest := size - large:
            self.small -= rest
            self.memory.small.give_back(self, rest, is_all=self.small == 0)

    def share(self, wanted: int, least: int) -> int:
        """A part of what is wanted, without waiting: how much it is."""
        size = self.memory.large.share(wanted, least)
        self.size += size
        return size

    def shrink_to(self, size: int) -> None:
        """Of what is large, the rest is free again."""
        if size < self.size:
            freed, self.size = self.size - size, size
            self.memory.large.give_back(self, freed, is_all=size == 0)

    def release(self) -> None:
        """All of it is free again."""
        self.give_back(self.size + self.small)


class Allowance:
    """What one request may still make of its bytes: decompressed ones, and records."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.bytes_left = DECOMPRESSED_BYTES
        self._records_left = RECORDS

    def buffer(self, size: int) -> None:
        """Before so many bytes are had to decompress into."""
        self._lease.take(size)

    def found(self, size: int, buffered: int) -> None:
        """Of the buffer so many bytes are kept. Raises MessageTooLargeError."""
        self._spend(size)
        self._lease.give_back(buffered - size)

    def no_use(self, buffered: int) -> None:
        """The buffer is free again."""
        self._lease.give_back(buffered)

    def decompressed(self, size: int) -> None:
        """So many bytes come out. Raises MessageTooLargeError."""
        self._spend(size)
        self._lease.take(size)

    def records(self, count: int) -> None:
        """So many records are going to be read. Raises MessageTooLargeError."""
        if count > self._records_left:
            raise MessageTooLargeError(
                f"the batches of the request have more than {RECORDS} records; send fewer at once"
            )
        self._records_left -= count
        self._lease.take(count * _RECORD_BYTES)

    def _spend(self, size: int) -> None:
        if size > self.bytes_left:
            raise MessageTooLargeError(
                f"the batches of the request have more than {DECOMPRESSED_BYTES} bytes when they are "
                "decompressed; send fewer or smaller records at once"
            )
        self.bytes_left -= size
