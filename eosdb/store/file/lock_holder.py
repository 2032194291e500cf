"""Names the processes that hold a lock on a file, for the error after a lock time-out."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from eosdb.errors import DatabaseLockedError
from eosdb.system.road import road

_SQLITES: Final = (("-shm", (120,)), ("", (0x40000000, 0x40000001)))
"""The bytes that SQLite locks to write: in the WAL's index or, without one or with
`locking_mode=EXCLUSIVE`, in the file."""
UNSEEN: Final = "a process that cannot be seen from here, such as another user's"
_THIS: Final = "this process"
_OF_ITS_OWN: Final = (
    " on a connection that is perhaps of this very thread (eosdb.join publishes in its transaction)"
)


def locked_error(path: str, holder: str, waited_ms: int | None = None) -> DatabaseLockedError:
    """Return the error of a write that waited in vain for the write lock; `holder` is empty if unknown."""
    since = "" if waited_ms is None else f" for {waited_ms} ms"
    return DatabaseLockedError(
        f"{path}: not written, because the write lock has been held{since} by {holder or UNSEEN}. Try "
        "again when that transaction has ended, end it, or wait for longer (BrokerConfig.lock_timeout_ms)"
    )


def describe_sqlites(path: str) -> str:
    """Describe the holders of SQLite's write lock, as `describe_holders`."""
    places = (describe_holders(path + suffix, locked) for suffix, locked in _SQLITES)
    who = next(filter(None, places), "")
    return f"{who}{_OF_ITS_OWN if who.startswith(_THIS) else ''}"


def describe_holders(path: str, locked: Collection[int]) -> str:
    """Describe the processes with a lock on any of these bytes of the file, or on these locks of a lock
    file: `process 4711 (python app.py)`. Empty if none is found."""
    return " and ".join(map(_described, road.holders(path, locked)))


def _described(pid: int) -> str:
    command, is_stopped = road.process(pid)
    named = _THIS if pid == os.getpid() else "process"
    stopped = ", which is stopped: let it go on (kill -CONT) or end it" if is_stopped else ""
    command = f" ({command[:100]})" if command else ""
    return f"{named} {pid}{command}{stopped}"
