"""A server's limits on the costs of its clients: sizes, times, and the memory that connections share.

A client that exceeds a limit gets one of Kafka's errors, or its connection is closed (docs/wire.md,
"Limits"; decisions/0031).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from eosdb.errors import MessageTooLargeError

_MIB: Final = 1_048_576
UNCOUNTED: Final = 65_536
"""The bytes that each connection may use in addition to the shared budget."""
DECOMPRESSED_BYTES: Final = 104_857_600
"""The most bytes of a request's batches after decompression: as many as an uncompressed request may
have."""
RECORDS: Final = 1_000_000
"""The most records in the batches of one request."""
_READING: Final = 4
"""How many responses may be read from the file at once. Kafka's num.io.threads is 8; here the interpreter's
lock makes more threads cost memory without a gain."""
SMALL_REQUEST: Final = _MIB + 65_536
"""The default max.request.size of clients, and some overhead."""
_SMALL_SHARE: Final = 2 * SMALL_REQUEST
"""The most that one connection may take of the budget for small requests."""
_RECORD_BYTES: Final = 256
"""The approximate overhead of a record while its batch is decoded."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server. The defaults are Kafka's where Kafka has them."""

    frame_bytes: int = 104_857_600
    """Kafka: socket.request.max.bytes."""
    frame_bytes_before_login: int = UNCOUNTED
    connections: int = 1_000
    """The most connections. Beyond it, the oldest one of an unknown client is closed, or else the new
    one."""
    stranger_s: float = 10.0
    """How long a client may stay unknown, in s: until its login or, without a required login, its first
    request."""
    buffered_bytes: int = 134_217_728
    """Memory for requests and responses of all connections (Kafka: queued.max.request.bytes)."""
    answer_bytes: int = 57_671_680
    """Kafka: fetch.max.bytes of the broker."""
    idle_s: float = 600.0
    """Kafka: connections.max.idle.ms."""
    transfer_s: float = 30.0
    """The time (s) to transfer a frame in either direction; each MiB adds a second."""
    close_s: float = 5.0
    """How long `close` waits for requests being handled."""

    def seconds_for(self, size: int) -> float:
        """The time (s) in which a frame of this size must be transferred."""
        return self.transfer_s + size / _MIB


class Room:
    """A byte budget shared by connections. A request that does not fit waits. To avoid deadlock, one
    waiting lease is always admitted, so usage is at most `size` plus one request."""

    def __init__(self, size: int) -> None:
        self.size: Final = size
        self.used = 0
        self._changed = threading.Condition()
        self._waiting = 0
        self._is_closed = False
        self._beyond: Lease | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether a lease waits for bytes."""
        return self._waiting > 0

    def take(self, lease: Lease, size: int) -> None:
        """Take bytes, waiting until they are available. Raises ConnectionAbortedError if the server
        closes meanwhile."""
        with self._changed:
            while self.used + size > self.size and self._beyond not in (None, lease):
                if self._is_closed:
                    raise ConnectionAbortedError("the server closes, and no memory has become free")
                self._waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._waiting -= 1
            if self.used + size > self.size:
                self._beyond = lease
            self.used += size

    def share(self, wanted: int, least: int) -> int:
        """Take up to `wanted` bytes without waiting: at most an eighth of the rest, but at least
        `least`."""
        with self._changed:
            size = min(wanted, max(least, (self.size - self.used) // 8))
            self.used += size
            return size

    def give_back(self, lease: Lease, size: int, *, is_all: bool) -> None:
        """Return bytes of a lease to the budget; `is_all` if the lease holds none any more."""
        with self._changed:
            self.used -= size
            if self._beyond is lease and is_all:
                self._beyond = None
            self._changed.notify_all()

    def close(self) -> None:
        """Abort all waiting calls of `take`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class Memory:
    """The memory for requests and responses of all connections. A quarter is reserved for small requests,
    so that unfinished large requests cannot starve them."""

    def __init__(self, size: int) -> None:
        self.small: Final = Room(size // 4)
        self.large: Final = Room(size - size // 4)
        self.reading: Final = threading.BoundedSemaphore(_READING)
        """Held while the records of a response are read. Limits open read connections, and responses of
        unknown size."""

    @property
    def used(self) -> int:
        return self.small.used + self.large.used

    def lease(self) -> Lease:
        return Lease(self)

    def close(self) -> None:
        self.small.close()
        self.large.close()


class Lease:
    """The memory that a connection holds for the request it handles."""

    __slots__ = ("memory", "size", "small")

    def __init__(self, memory: Memory) -> None:
        self.memory: Final = memory
        self.size = 0
        """Bytes of the budget for large requests."""
        self.small = 0
        """Bytes of the budget for small requests."""

    @property
    def keeps_others(self) -> bool:
        """Whether this lease holds bytes of a budget for which other leases wait."""
        memory = self.memory
        return (self.size > 0 and memory.large.is_wanted) or (
            self.small > 0 and memory.small.is_wanted
        )

    def take(self, size: int, of_request: int = 0) -> None:
        """Take more bytes, waiting until they are available. For received bytes, `of_request` is the size
        of the whole request. Raises ConnectionAbortedError."""
        if of_request <= SMALL_REQUEST and self.small + size <= _SMALL_SHARE:
            self.memory.small.take(self, size)
            self.small += size
        else:
            self.memory.large.take(self, size)
            self.size += size

    def give_back(self, size: int) -> None:
        large = min(size, self.size)
        self.shrink_to(self.size - large)
        if rest := size - large:
            self.small -= rest
            self.memory.small.give_back(self, rest, is_all=self.small == 0)

    def share(self, wanted: int, least: int) -> int:
        """Take a part of `wanted` without waiting, and return its size."""
        size = self.memory.large.share(wanted, least)
        self.size += size
        return size

    def shrink_to(self, size: int) -> None:
        """Keep at most `size` bytes of the budget for large requests."""
        if size < self.size:
            freed, self.size = self.size - size, size
            self.memory.large.give_back(self, freed, is_all=size == 0)

    def release(self) -> None:
        self.give_back(self.size + self.small)


class Allowance:
    """The limits for decoding the batches of one request: decompressed bytes, and records."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.bytes_left = DECOMPRESSED_BYTES
        self._records_left = RECORDS

    def buffer(self, size: int) -> None:
        """Take the memory of a buffer for decompression."""
        self._lease.take(size)

    def found(self, size: int, buffered: int) -> None:
        """Keep `size` bytes of a buffer, and return the rest of it. Raises MessageTooLargeError."""
        self._spend(size)
        self._lease.give_back(buffered - size)

    def decompressed(self, size: int) -> None:
        """Take the memory of decompressed bytes. Raises MessageTooLargeError."""
        self._spend(size)
        self._lease.take(size)

    def records(self, count: int) -> None:
        """Take the memory for decoding these records. Raises MessageTooLargeError."""
        if count > self._records_left:
            raise MessageTooLargeError(
                f"the batches of the request have more than {RECORDS} records; send fewer at once"
            )
        self._records_left -= count
        self._lease.take(count * _RECORD_BYTES)

    def _spend(self, size: int) -> None:
        if size > self.bytes_left:
            self.bytes_left = 0  # Later compressed batches of this request fail at once.
            raise MessageTooLargeError(
                f"the batches of the request have more than {DECOMPRESSED_BYTES} bytes when they are "
                "decompressed; send fewer or smaller records at once"
            )
        self.bytes_left -= size
