"""Folders whose files live in memory, where the system supports that."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable

from eosdb.system.road import road


def folder_in_memory(owner: object) -> tuple[str, Callable[[], object]]:
    """Create a folder. Returns it and its finalizer, which also runs when `owner` is garbage-collected,
    at the latest at the end of the process."""
    folder, process = tempfile.mkdtemp(prefix="eosdb-", dir=memory_folder()), os.getpid()
    finalizer = weakref.finalize(owner, _remove, folder, process)

    def remove() -> None:
        _remove(folder, process)
        finalizer.detach()

    return folder, remove


def memory_folder() -> str | None:
    """The folder for files in memory; None for `tempfile`'s default."""
    return road.memory_folder()


def _remove(folder: str, owner: int) -> None:
    """Remove the folder, but not in a forked child: the parent still uses it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
