"""What some tests reach for inside a database that is open for writing."""

from __future__ import annotations

import eosdb
from eosdb.store.file.mutex import WriterMutex
from eosdb.store.writing.writer import Writer


def writer(db: eosdb.Database) -> Writer:
    made = db._store._writer
    assert made is not None
    return made


def mutex(db: eosdb.Database) -> WriterMutex:
    made = db._store._mutex
    assert made is not None
    return made
