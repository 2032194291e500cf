"""Checks that the file system can hold a writable file: all who open the file must share one kernel.

The WAL's index is shared memory. On a network file system every host has its own, so two hosts would
overwrite each other's pages unnoticed. A file that is itself a mount point has one WAL and set of locks
there, and others under its original name.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection
from typing import Final

from eosdb.errors import StorageError
from eosdb.system.lock_file import LOCK
from eosdb.system.road import road

ALLOW: Final = "EOSDB_ALLOW_NETWORK_FILE_SYSTEM"
"""Environment variable; `1` asserts that only this host has the file open."""
LOCKS: Final = (LOCK, *(LOCK + suffix for suffix in road.LOCK_FILES))
"""Suffixes of the lock files."""
BESIDE: Final = ("-wal", "-shm", *LOCKS)
"""Suffixes of the files beside an open database."""


def mounted_name(path: str) -> str | None:
    """Return the name of the database file, or of a file beside it, if it is a mount point; else None."""
    return _mounted_name(path, road.mounts(os.path.dirname(path) or ".")[0])


def _mounted_name(path: str, points: Collection[str]) -> str | None:
    real = os.path.realpath(path)
    return next((path + suffix for suffix in ("", *BESIDE) if real + suffix in points), None)


def mounted_error(name: str, path: str) -> StorageError:
    folder, file = os.path.split(path)
    return StorageError(
        f"{name} is a mount point (`docker run -v FILE:{name}`, `mount --bind`). So the files that SQLite "
        f"keeps beside {file} ({', '.join(file + suffix for suffix in BESIDE)}) are not those of its "
        "original folder, and commits made here would be lost there. Mount the folder that holds the file "
        f"instead, such as `-v FOLDER:{folder}`"
    )


def check_local(path: str) -> None:
    """Raises StorageError if the file may be open under other locks: on another host or, if it is a mount
    point, under its original name."""
    points, mount = road.mounts(os.path.dirname(path) or ".")
    if (name := _mounted_name(path, points)) is not None:
        raise mounted_error(name, path)
    # decisions/0053: locks do not show that another host uses the file, so only the user can allow this.
    if os.environ.get(ALLOW) == "1":
        return
    if mount is not None and mount.is_shared:
        raise StorageError(
            f"{path} is on a network file system ({mount.type}, from {mount.source}), where SQLite's "
            "write-ahead log cannot be shared between hosts. Put it on a disk of this host, and let others "
            f"use `eosdb serve`, or a copy by `eosdb publish`; where only this host opens it, set {ALLOW}=1"
        )


def folder_in_memory(owner: object) -> tuple[str, Callable[[], object]]:
    """Create a folder in memory. Returns its path and a function that removes it. It is also removed when
    `owner` is garbage-collected, and at the end of the process."""
    folder, process = tempfile.mkdtemp(prefix="eosdb-", dir=road.memory_folder()), os.getpid()
    finalizer = weakref.finalize(owner, _remove, folder, process)

    def remove() -> None:
        _remove(folder, process)
        finalizer.detach()

    return folder, remove


def _remove(folder: str, owner: int) -> None:
    """Remove the folder, but not in a forked child: the parent still uses it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
