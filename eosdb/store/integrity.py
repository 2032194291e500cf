"""What SQLite itself finds wrong with the file's structure, looked for in a thread of its own.

The check is one statement that runs for as long as a scan of everything, outside the interpreter's
lock: beside it another thread folds the events.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Final

_INTERRUPT_EVERY_S: Final = 0.05


@contextmanager
def beside(connection: sqlite3.Connection) -> Iterator[Callable[[], list[str]]]:
    """For the block, check the file of a connection that nobody else uses. What is yielded waits for the
    problems; it raises sqlite3.Error where the file cannot even be checked."""
    with ThreadPoolExecutor(1, "eosdb-integrity") as pool:
        found = pool.submit(_problems, connection)
        try:
            yield found.result
        finally:
            # An interrupt that comes before the statement has begun is lost.
            while not found.done():
                connection.interrupt()
                wait([found], _INTERRUPT_EVERY_S)


def _problems(connection: sqlite3.Connection) -> list[str]:
    found = [text for (text,) in connection.execute("PRAGMA integrity_check(20)")]
    return [] if found == ["ok"] else [f"file: {text}" for text in found]
