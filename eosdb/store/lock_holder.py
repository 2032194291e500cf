"""Who holds a lock on a file, as far as the system tells: for the error of whoever waits in vain.

The kernel names no process for an open-file-description lock, but each process's list of open files says
which locks they hold. Processes of other users show nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

_PROCESSES: Final = "/proc"
_STOPPED: Final = ("T", "t")


def told(path: str, byte: int) -> str:
    """Something like `, held by process 4711 (python app.py)`; nothing where nobody is found."""
    found = [_described(pid) for pid in holders(path, byte)]
    return f", held by {' and '.join(found)}" if found else ""


def holders(path: str, byte: int) -> list[int]:
    """The processes that hold a write lock on the byte of the file at `path`."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [
        pid
        for pid in _numbers(_PROCESSES)
        if any(
            _is_same(f"{_PROCESSES}/{pid}/fd/{descriptor}", status)
            and _has_lock(f"{_PROCESSES}/{pid}/fdinfo/{descriptor}", byte)
            for descriptor in _numbers(f"{_PROCESSES}/{pid}/fd")
        )
    ]


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


def _has_lock(path: str, byte: int) -> bool:
    """A line like `lock: 1: OFDLCK ADVISORY WRITE 0 08:01:131 1 1`; it ends with first and last byte."""
    words = [line.split() for line in _read(path).splitlines() if line.startswith("lock:")]
    return any("WRITE" in line and line[-2:] == [str(byte)] * 2 for line in words)


def _described(pid: int) -> str:
    command = _read(f"{_PROCESSES}/{pid}/cmdline").replace("\0", " ").strip()
    state = _read(f"{_PROCESSES}/{pid}/stat").rpartition(")")[2].split()
    stopped = (
        ", which is stopped: let it go on (kill -CONT) or end it"
        if state and state[0] in _STOPPED
        else ""
    )
    return f"process {pid} ({command[:100]}){stopped}"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
