"""Finds the processes that hold a lock on a file, as far as the system shows: for the error after a lock
time-out.

The kernel names no process for an open-file-description lock, but `/proc` lists the locks of each open
file of a process. It is read without opening the file itself, because closing that would drop SQLite's
locks. Other users' processes stay unknown.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Final

_PROCESSES: Final = "/proc"
_STOPPED: Final = ("T", "t")


def describe_holders(path: str, locked: Collection[int]) -> str:
    """Describe the processes that have locked any of these bytes of the file at `path`, such as `process
    4711 (python app.py)`; empty if none is found."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return " and ".join(
        _described(pid) for pid in _numbers(_PROCESSES) if _holds(pid, status, locked)
    )


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
    return any(
        int(first) <= byte and (last == "EOF" or byte <= int(last))
        for *_, first, last in lines
        for byte in locked
    )


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
