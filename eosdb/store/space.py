"""Free pages of the file: SQLite reuses them, and housekeeping returns those beyond a reserve to the
operating system (decisions/0023)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final, NamedTuple

from eosdb.model.failpoints import Failpoint, reach
from eosdb.store.writing.unit import Unit

_RESERVE_PAGES: Final = 256
_RESERVE_SHARE: Final = 8
"""One page in this many stays free, since a file that is written would soon grow again."""
_PAGES_PER_UNIT: Final = 500
_INCREMENTAL: Final = 2
_LOCKS_AT: Final = 2**30


class Pages(NamedTuple):
    """The file's pages and free pages, and their size in bytes."""

    total: int
    free: int
    size: int


def pages(connection: sqlite3.Connection) -> Pages:
    return Pages(
        *(
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    )


def gives_back(connection: sqlite3.Connection) -> bool:
    """Whether the file can return pages; an adopted file may not."""
    (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    return bool(mode == _INCREMENTAL)


def unowned(connection: sqlite3.Connection, counts: Pages) -> int:
    """Return the number of pages outside of tables, indexes and the free list: SQLite's pointer maps, which
    take five bytes for each page after them, and the lock page at 1 GiB."""
    locks = int(counts.total > _LOCKS_AT // counts.size)
    (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    if not mode:
        return locks
    return locks + -(-(counts.total - 1) // (counts.size // 5 + 1))


def surplus(connection: sqlite3.Connection) -> int:
    """Return the number of free pages beyond the reserve; 0 for a file that cannot return pages."""
    if not gives_back(connection):
        return 0
    counts = pages(connection)
    return max(0, counts.free - max(_RESERVE_PAGES, counts.total // _RESERVE_SHARE))


def give_back(unit: Unit, is_over: Callable[[], bool]) -> int:
    """Move pages from the end of the file into free pages and drop the end, until the surplus is gone or
    `is_over()`. Returns the bytes freed. The file shrinks at the next checkpoint."""
    before = pages(unit.connection)
    for _ in range(min(surplus(unit.connection), _PAGES_PER_UNIT)):
        # One page per statement: Python's driver stops the pragma at its first row, after one page.
        unit.execute("PRAGMA incremental_vacuum(1)").fetchall()
        if is_over():
            break
    reach(Failpoint.PAGES_GIVEN_BACK)
    freed = (before.total - pages(unit.connection).total) * before.size
    assert freed >= 0, freed
    unit.written_bytes += freed
    return freed
