"""Finds the processes that hold a lock on a file, as far as the system shows: for the error after a lock
time-out.

`/proc/locks` names the holder of each of SQLite's locks. It names none for an open-file-description lock,
as the writer mutex is, but `/proc/PID/fdinfo` lists the locks of each open file of a process, though not
of other users' processes. Both are read without opening the file itself, because closing that would drop
SQLite's locks.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Final

from eosdb.errors import DatabaseLockedError

_PROCESSES: Final = "/proc"
_STOPPED: Final = ("T", "t")
_SQLITES: Final = (("-shm", (120,)), ("", (0x40000000, 0x40000001)))
"""The bytes that SQLite locks to write: in the WAL's index, or in a file without one, or that is locked by
`locking_mode=EXCLUSIVE`."""
UNSEEN: Final = "a process that cannot be seen from here, such as another user's"


def locked_error(path: str, holder: str, waited_ms: int | None = None) -> DatabaseLockedError:
    """Return the error of a write to the database at `path` that has waited for its write lock in vain;
    `holder` is empty if it is unknown."""
    since = "" if waited_ms is None else f" for {waited_ms} ms"
    return DatabaseLockedError(
        f"{path}: not written, because the write lock has been held{since} by {holder or UNSEEN}. Try "
        "again when that transaction has ended, end it, or wait for longer (lock_timeout_ms)"
    )


def describe_sqlites(path: str) -> str:
    """Describe who holds SQLite's write lock of the database at `path`, as `describe_holders`."""
    places = (describe_holders(path + suffix, locked) for suffix, locked in _SQLITES)
    return next(filter(None, places), "")


def describe_holders(path: str, locked: Collection[int]) -> str:
    """Describe the processes that have locked any of these bytes of the file at `path`, such as `process
    4711 (python app.py)`; empty if none is found."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    holders = _listed(status, locked) or [
        pid for pid in _numbers(_PROCESSES) if _holds(pid, status, locked)
    ]
    return " and ".join(map(_described, holders))


def _listed(status: os.stat_result, locked: Collection[int]) -> list[int]:
    """The processes that `/proc/locks` names, in lines such as `1: POSIX ADVISORY WRITE 4711 08:01:131 120
    120`; it names none (-1) for other kinds of locks, and others wait (`->`)."""
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    lines = [line.split() for line in _read(f"{_PROCESSES}/locks").splitlines()]
    return sorted({
        int(line[4])
        for line in lines
        if len(line) == 8 and line[5] == file and int(line[4]) > 0 and _covers(line, locked)
    })  # fmt: skip


def _holds(pid: int, status: os.stat_result, locked: Collection[int]) -> bool:
    process = f"{_PROCESSES}/{pid}"
    return any(
        _is_same(f"{process}/fd/{descriptor}", status)
        and _has_lock(f"{process}/fdinfo/{descriptor}", locked)
        for descriptor in _numbers(f"{process}/fd")
    )


def _numbers(folder: str) -> Iterator[int]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    yield from (int(name) for name in names if name.isdigit())


def _is_same(path: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), status)
    except OSError:
        return False


def _has_lock(path: str, locked: Collection[int]) -> bool:
    """Whether the `fdinfo` file at `path` lists a lock of one of these bytes: a line such as `lock: 1:
    OFDLCK ADVISORY WRITE 0 08:01:131 1 1`, which ends with the first and last byte."""
    lines = [line.split() for line in _read(path).splitlines() if line.startswith("lock:")]
    return any(_covers(line, locked) for line in lines)


def _covers(line: list[str], locked: Collection[int]) -> bool:
    *_, first, last = line
    return any(int(first) <= byte and (last == "EOF" or byte <= int(last)) for byte in locked)


def _described(pid: int) -> str:
    command = " ".join(_read(f"{_PROCESSES}/{pid}/cmdline").replace("\0", " ").split())
    state = _read(f"{_PROCESSES}/{pid}/stat").rpartition(")")[2].split()
    named = "this process" if pid == os.getpid() else "process"
    stopped = (
        ", which is stopped: let it go on (kill -CONT) or end it"
        if state and state[0] in _STOPPED
        else ""
    )
    return f"{named} {pid} ({command[:100]}){stopped}"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
