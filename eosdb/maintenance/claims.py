"""Claims on files that are being made, so that what a killed process has left of one is told from what a
living one writes.

A claim is the kernel's (`flock`): it ends with the process, whatever number it has and in whichever
container it runs. On NFS the server keeps it for all hosts, unless the folder is mounted with `nolock` or
`local_lock`; then a copy that another host makes looks abandoned.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from typing import Final

from eosdb.store.file.file_system import LOCKS
from eosdb.system.lock_file import LOCK

_PARTS: Final = ("", "-wal", "-shm", "-journal", *reversed(LOCKS))
"""The files of an attempt; the lock goes last, and whatever is there has one."""
_LOCK_NAME: Final = re.compile(rf".+\.unfinished-[0-9a-f]{{8}}{LOCK}", re.DOTALL)


def claim(path: str) -> int:
    """Open the file at `path`, creating it if necessary, and claim it: no other program can claim it
    before this process has closed it or died. Raises OSError, also for a link: what it leads to would be
    overwritten."""
    while (descriptor := _claimed(path, os.O_CREAT, fcntl.LOCK_EX)) is None:
        pass  # It was removed or renamed by whoever had it.
    return descriptor


@contextlib.contextmanager
def unfinished(target: str) -> Iterator[str]:
    """Return a free path beside `target` at which the file for it is prepared; nothing is left there.
    What killed processes have left in the folder, for whichever file, is removed. Raises OSError."""
    _remove_abandoned(os.path.dirname(os.path.abspath(target)))
    path = f"{target}.unfinished-{secrets.token_hex(4)}"
    descriptor = -1
    try:
        # Not the file itself: closing it would drop SQLite's locks, and on NFS the two kinds meet.
        descriptor = claim(path + LOCK)
        yield path
    finally:  # Also of a claim that was interrupted: nobody else has this name.
        try:
            _remove(path)
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def _remove_abandoned(folder: str) -> None:
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = [entry.path for entry in entries if _LOCK_NAME.fullmatch(entry.name)]
    for name in names:
        with contextlib.suppress(OSError):  # It is claimed, another user's, or gone.
            descriptor = _claimed(name, 0, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if descriptor is not None:
                try:
                    _remove(name.removesuffix(LOCK))
                finally:
                    os.close(descriptor)


def _remove(path: str) -> None:
    for part in _PARTS:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + part)


def _claimed(path: str, flags: int, operation: int) -> int | None:
    """Return a descriptor with the claim; None if `path` does not lead to what was claimed any more."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    try:
        fcntl.flock(descriptor, operation)
        if os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
