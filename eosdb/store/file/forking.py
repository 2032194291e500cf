"""Makes `fork` safe: a child process must not inherit SQLite's connections.

SQLite records its locks on a file in the process. A forked child inherits that record but not the locks,
so its own connections would lock nothing. Therefore every database closes its connections before a fork
and reopens them on demand; the child inherits none (decisions/0019).

If a database cannot close its connections (a transaction is running, the user holds a connection, or C code
forked), the child cannot open that file.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Final, Protocol

from eosdb.errors import IllegalStateError
from eosdb.store.file.open_files import identity_of
from eosdb.system.road import road

_PATIENCE_S: Final = 5.0
"""The longest a fork waits for running reads and writes."""
_LOOK_AGAIN_S: Final = 0.005
_pause: Final = threading.Lock()
"""A lock that is never released: acquiring it with a time-out is a sleep, so this module needs no clock."""
_pause.acquire()


class Resting(Protocol):
    """An object, such as a store, that can close its connections and reopen them later."""

    def pause(self, patience_s: float) -> bool:
        """Close every connection and open none until `go_on`. Returns False if that is not possible."""

    def go_on(self) -> None:
        """Allow connections to be opened again."""


class _Process:
    def __init__(self) -> None:
        self.id = os.getpid()
        self.open: weakref.WeakSet[Resting] = weakref.WeakSet()
        self.paused: list[Resting] = []
        self.at_work: dict[object, int] = {}
        """The thread of each running `at_work` block."""
        self.is_forking = False
        self.forking = threading.RLock()
        self.depth = 0
        """The number of forks in progress in one thread: a signal handler may fork during a fork."""
        self.inherited: frozenset[tuple[int, int]] = frozenset()
        """Device and inode of the database files that the parent had open in SQLite."""


_process = _Process()
_of_the_parent: Final[list[object]] = []
"""Inherited connections, kept for ever because they must not even be closed."""


def rests(database: Resting) -> None:
    _process.open.add(database)


@contextlib.contextmanager
def at_work() -> Iterator[None]:
    """Guard the use of a connection that no database owns. A fork waits for the end of the block, and the
    block begins after a running fork."""
    me, mine, process = threading.get_ident(), object(), _process
    try:
        # Add the block first and check for a fork second. A fork does the reverse, so at least one sees the
        # other.
        process.at_work[mine] = me
        while process.is_forking and list(process.at_work.values()).count(me) == 1:
            process.at_work.pop(mine)
            with process.forking:
                process.at_work[mine] = me
        yield
    finally:
        process.at_work.pop(mine, None)


def check_not_inherited(path: str) -> None:
    """Raises IllegalStateError for a file that the parent process had open when it forked this one."""
    if _process.id != os.getpid():
        begin_as_a_child()
    if _process.inherited and identity_of(path) in _process.inherited:
        raise IllegalStateError(
            f"{path} was in use when this process was forked: by a block of db.begin(), a query that was "
            "being read, a connection of your own, or a fork made outside Python. SQLite cannot "
            "lock it here. Start the process by `spawn` or `forkserver`, or end that use before the fork"
        )


def before() -> None:
    """Before a fork, close every connection (decisions/0019): a child would inherit SQLite's record of its
    locks, but not the locks."""
    process, me, waited = _process, threading.get_ident(), 0.0
    process.forking.acquire()
    process.depth += 1
    if process.depth > 1:
        return  # A signal handler forks during a fork: the child cannot use the open files.
    process.is_forking = True
    while waited < _PATIENCE_S and set(process.at_work.values()) - {me}:
        _pause.acquire(timeout=_LOOK_AGAIN_S)
        waited += _LOOK_AGAIN_S
    for database in list(process.open):
        # Add it before `pause`, so that `go_on` follows even if a signal interrupts `pause`.
        process.paused.append(database)
        if not database.pause(_PATIENCE_S):
            process.paused.remove(database)


def after_in_parent() -> None:
    """In the parent, after a fork: let the databases open connections again."""
    process = _process
    if process.depth <= 1:
        while process.paused:
            process.paused.pop().go_on()
        process.is_forking = False
    process.depth = max(process.depth - 1, 0)
    with contextlib.suppress(RuntimeError):  # A signal interrupted `before`, so no lock is held.
        process.forking.release()


def begin_as_a_child() -> None:
    """After a fork, in the child: keep the parent's databases alive, because closing them is unsafe."""
    global _process
    _of_the_parent.append(list(_process.open))
    _process = _Process()
    _process.inherited = road.inherited()
