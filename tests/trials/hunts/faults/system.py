"""The system refuses: writes, syncs, descriptors, memory, threads; and its wall clock is wrong.

What has the file open is concerned: the server, or else the client. An order that no call has met has not
happened (tests/chaos/orders.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import time
from itertools import count
from typing import Final

from tests.trials.hunts.actors.actor import Actor, Need
from tests.trials.hunts.faults.fault import Fault
from tests.trials.hunts.world import Role, World

_PATIENCE_S: Final = 8.0
_TO_BITE_S: Final = 2.0
_LESS: Final = (0.15, 0.25, 0.4, 0.6)
_HOUR_MS: Final = 3_600_000
_EITHER: Final = frozenset({"client", "server"})


class FailingCall(Fault):
    """The n-th call of some kinds fails, or all from it on for up to a second."""

    def __init__(
        self, name: str, kinds: str, error: int, summary: str, *, for_good: bool = False
    ) -> None:
        self.name, self.summary = name, summary
        self._kinds, self._error, self._for_good = kinds, error, for_good
        # A program that is not prepared for MemoryError ends by it.
        self.ends = frozenset({"client"} if error == errno.ENOMEM else ())

    def strike(self, world: World, actor: Actor) -> bool:
        role, orders = actor.file_of(world), world.orders
        number = world.rng.randrange(40)
        orders.fail(role, self._kinds, number, self._error, for_good=self._for_good)
        deadline = time.monotonic() + _PATIENCE_S
        while not orders.failed(role) and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._for_good:
            time.sleep(world.rng.random())
        orders.clear()
        return orders.failed(role) > 0


class AtTheBeginning(Fault):
    """The process begins anew, and meets the failing calls where it begins or works on."""

    ends = _EITHER

    def __init__(
        self, name: str, kinds: str, error: int, summary: str, calls: int, *needs: Need
    ) -> None:
        self.name, self.summary, self.needs = name, summary, frozenset(needs)
        self._kinds, self._error, self._calls = kinds, error, calls

    def strike(self, world: World, actor: Actor) -> bool:
        role = "server" if Need.SERVER in self.needs else actor.file_of(world)
        process, orders = world.roles[role], world.orders
        process.kill()
        at = world.rng.randrange(self._calls)
        orders.fail(role, self._kinds, at, self._error, for_good=True)
        process.start()
        deadline = time.monotonic() + _PATIENCE_S
        while process.is_up and not orders.failed(role) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(world.rng.random() * 0.5)
        orders.clear()
        return orders.failed(role) > 0


class Limit(Fault):
    """A limit is what a running process uses already, until a call was refused for it and a moment longer.
    What needs no more than it has begins anew, with less than it needs."""

    ends = _EITHER

    def __init__(self, name: str, limit: int, summary: str) -> None:
        self.name, self.summary, self._limit = name, summary, limit

    def strike(self, world: World, actor: Actor) -> bool:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            return self._limited(world, actor.file_of(world))
        return False  # A fault at the same time has ended the process.

    def _limited(self, world: World, role: str) -> bool:
        process, is_memory = world.roles[role], self._limit == resource.RLIMIT_AS
        used = _address_space(process.pid) if is_memory else _first_free(process.pid)
        with socket.socket() as another:
            another.setblocking(False)  # It is accepted, or not, at any time.
            if role == "server":
                another.connect_ex(world.server)
            if self._bites(world, process, used):
                return True
        process.kill()
        process.start()
        less = int(used * world.rng.choice(_LESS)) if is_memory else world.rng.randrange(5, 20)
        return self._bites(world, process, less)

    def _bites(self, world: World, process: Role, most: int) -> bool:
        met, before = world.orders.met(process.role), resource.prlimit(process.pid, self._limit)
        resource.prlimit(process.pid, self._limit, (most, before[1]))
        deadline = time.monotonic() + _TO_BITE_S
        while process.is_up and world.orders.met(process.role) == met:
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        else:
            time.sleep(world.rng.random())
        if not process.is_up:
            return True
        resource.prlimit(process.pid, self._limit, before)
        return world.orders.met(process.role) > met


def _first_free(pid: int) -> int:
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return next(number for number in count() if number not in used)


def _address_space(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


class Clock(Fault):
    """The wall clock jumps, and jumps back. Transactions and sessions may end by it, as in Kafka."""

    def __init__(self, name: str, sign: int) -> None:
        self.name = name
        self.summary = (
            f"the wall clock goes {'forward' if sign > 0 else 'back'}: minutes to six days"
        )
        self._sign = sign

    def strike(self, world: World, actor: Actor) -> bool:
        # Offsets of groups live for seven days, as in Kafka.
        hours = world.rng.choice((0.05, 2, 24, 144))
        role, orders = actor.file_of(world), world.orders
        met = orders.met(role)
        orders.clock(role, int(self._sign * hours * _HOUR_MS))
        time.sleep(0.3 + world.rng.random())
        orders.clock(role, 0)
        return orders.met(role) > met


class SlowDisk(Fault):
    name = "slow-disk"
    summary = "each sync takes 20 ms to 2 s longer"

    def strike(self, world: World, actor: Actor) -> bool:
        role, orders = actor.file_of(world), world.orders
        met = orders.met(role)
        orders.slow(role, world.rng.choice((20, 200, 2_000)))
        time.sleep(0.5 + world.rng.random())
        orders.slow(role, 0)
        return orders.met(role) > met


FAULTS: Final[list[Fault]] = [
    FailingCall("disk-full", "wta", errno.ENOSPC, "the disk is full from the n-th write on", for_good=True),
    FailingCall("disk-full-once", "wta", errno.ENOSPC, "the n-th write finds the disk full"),
    FailingCall("write-fails", "wt", errno.EIO, "the n-th write fails (EIO)"),
    FailingCall("sync-fails", "s", errno.EIO, "the n-th sync fails (EIO)"),
    FailingCall("syncs-fail", "s", errno.EIO, "all syncs fail from the n-th on", for_good=True),
    FailingCall("memory-once", "q", errno.ENOMEM, "SQLite gets no memory once"),
    FailingCall("memory", "q", errno.ENOMEM, "SQLite gets no memory for up to a second", for_good=True),
    AtTheBeginning("no-open", "o", errno.EMFILE, "a process that begins cannot open its files (EMFILE)", 6),
    AtTheBeginning("no-thread", "p", errno.EAGAIN, "a server that begins gets no thread", 2, Need.SERVER),
    AtTheBeginning("no-inotify", "i", errno.EMFILE, "a server begins without inotify", 1, Need.SERVER),
    Limit("descriptors", resource.RLIMIT_NOFILE, "no file descriptor is left (RLIMIT_NOFILE)"),
    Limit("address-space", resource.RLIMIT_AS, "no memory is left (RLIMIT_AS)"),
    SlowDisk(),
    Clock("clock-forward", 1),
    Clock("clock-back", -1),
]  # fmt: skip
