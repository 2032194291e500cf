"""What some tests reach for inside a database that is open for writing."""

from __future__ import annotations

import eosdb
from eosdb.store.file.locks import WriterMutex
from eosdb.store.writing.writer import Writer


def writer(db: eosdb.Database) -> Writer:
    made = db._store._writer
    assert made is not None
    return made


def mutex(db: eosdb.Database) -> WriterMutex:
    made = db._store._mutex
    assert made is not None
    return made


class Commits:
    """How many units, and how many synced ones, a block takes."""

    def __init__(self, db: eosdb.Database) -> None:
        self._db = db

    def __enter__(self) -> Commits:
        self._before = self._db.metrics()
        return self

    def __exit__(self, *_: object) -> None:
        after = self._db.metrics()
        self.all, self.synced = (
            after[name] - self._before[name] for name in ("commit-total", "fsync-total")
        )
