"""What programs are told while they run: which of their calls fail, and how wrong their clocks are.

The programs have disk.c preloaded and a role each, and share the file of the orders; an order is for all
programs of a role, and for those that begin later, too.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.chaos import power

_ROLES: Final = 16


class _Order(ctypes.Structure):
    """`struct order` of disk.c."""

    _fields_ = (
        ("role", ctypes.c_char * 16),
        ("kinds", ctypes.c_char * 16),
        ("at", ctypes.c_int64),
        ("calls", ctypes.c_int64),
        ("failed", ctypes.c_int64),
        ("ahead_ms", ctypes.c_int64),
        ("slow_ms", ctypes.c_int64),
        ("error", ctypes.c_int32),
        ("for_good", ctypes.c_int32),
        ("armed", ctypes.c_int32),
        ("met", ctypes.c_int32),
    )


class Orders:
    """Writes the orders, and reads how many calls there were."""

    def __init__(self, path: Path, roles: tuple[str, ...]) -> None:
        self._path = path
        path.write_bytes(bytes(_ROLES * ctypes.sizeof(_Order)))
        with path.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        self._orders = dict(zip(roles, (_Order * _ROLES).from_buffer(memory), strict=False))
        for role, order in self._orders.items():
            order.role = role.encode()

    def environment(
        self, role: str, library: Path, folder: Path, base: Mapping[str, str] = os.environ
    ) -> dict[str, str]:
        """For a program of this role whose files in `folder` can be made to fail."""
        return {
            **base,
            **power.preloaded(library, folder),
            "EOSDB_DISK_ORDERS": str(self._path),
            "EOSDB_DISK_ROLE": role,
        }

    def fail(
        self, role: str, kinds: str, at: int = 0, error: int = errno.EIO, *, for_good: bool = False
    ) -> None:
        """Have the call of this number, of these kinds (disk.c names them), fail; or all from it on."""
        order = self._orders[role]
        order.armed = 0
        order.kinds, order.at, order.error, order.for_good = kinds.encode(), at, error, for_good
        order.calls = order.failed = 0
        order.armed = 1

    def clock(self, role: str, ahead_ms: int) -> None:
        """Set the wall clock of a role forward or back; 0 sets it right."""
        self._orders[role].ahead_ms = ahead_ms

    def slow(self, role: str, ms: int) -> None:
        """Have each sync take so much longer; 0 ends it."""
        self._orders[role].slow_ms = ms

    def clear(self) -> None:
        """End what was ordered; what was counted stays until the next order."""
        for order in self._orders.values():
            order.armed = order.ahead_ms = order.slow_ms = 0

    def calls(self, role: str) -> int:
        """How many calls of the kinds there were while the order held."""
        return int(self._orders[role].calls)

    def failed(self, role: str) -> int:
        """How many of them have failed."""
        return int(self._orders[role].failed)

    def met(self, role: str) -> int:
        """How many calls the system itself has refused for want of memory or descriptors so far, and how
        many have read a wall clock that is wrong, or met a slow sync."""
        return int(self._orders[role].met)
