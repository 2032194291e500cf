"""How tests read a database back, as a read_committed reader and as bare tables; and how they copy one."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import eosdb
from eosdb import TopicPartition
from eosdb.store.schema import file_id
from eosdb.system import birth


def committed_values(db: eosdb.Database, tp: TopicPartition) -> list[bytes | None]:
    """Values a read_committed reader gets by Kafka's consumer-side filter."""
    values: list[bytes | None] = []
    offset = db.broker.offsets(tp).log_start_offset
    while True:
        fetched = db.broker.fetch(tp, offset, isolation_level="read_committed", max_records=7)
        if not fetched.records:
            return values
        queue = sorted(fetched.aborted_transactions, key=lambda a: a.first_offset)
        aborted: set[int] = set()
        for record in fetched.records:
            while queue and queue[0].first_offset <= record.offset:
                aborted.add(queue.pop(0).producer_id)
            if record.control == "ABORT":
                aborted.discard(record.producer_id)
            elif record.control is None and not (
                record.is_transactional and record.producer_id in aborted
            ):
                values.append(record.value)
        offset = fetched.next_offset


def newest_position(db: eosdb.Database) -> int:
    """Of the journal; `info` looks for who holds the file, too."""
    ((position,),) = db.query("SELECT max(position) FROM journal").rows
    assert isinstance(position, int)
    return position


_SHARED = {"eosdb_file": "file_id"}


def dump_state(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, in an order that does not depend on how it was written. Of the file, only
    the id: a copy has another place."""
    connection = sqlite3.connect(path)
    try:
        names = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {
            name: sorted(
                connection.execute(f'SELECT {_SHARED.get(name, "*")} FROM "{name}"'), key=repr
            )
            for name in names
        }
    finally:
        connection.close()


def copy_as_original(source: Path, target: Path) -> None:
    """Copy a closed database, without the new life that a copy begins (decisions/0094)."""
    shutil.copy(source, target)
    with closing(sqlite3.connect(target)) as connection, connection:
        file_id.settle(connection, birth.identity(str(target)))
