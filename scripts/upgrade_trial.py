"""Run with a wheel's Python by `make release`: files of earlier versions are upgraded, verified, read and
written. The arguments are the files, which are changed."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence

import eosdb


def committed(db: eosdb.Database) -> list[bytes]:
    consumer = db.consumer(group_id=None, auto_offset_reset="earliest")
    with consumer:
        consumer.assign([eosdb.TopicPartition("orders", 0)])
        consumer.seek_to_beginning()
        values = []
        while records := consumer.poll():
            values += [record.value for record in records]
    return values


def committed_before(path: str) -> list[bytes]:
    """What the file's own view shows, before this version has opened the file."""
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT CAST(value AS BLOB) FROM committed_records WHERE topic = 'orders' AND partition = 0 "
        'ORDER BY "offset"'
    ).fetchall()
    connection.close()
    return [value for (value,) in rows]


def main(paths: Sequence[str]) -> None:
    for path in paths:
        before = committed_before(path)
        assert before, path
        with eosdb.connect(path) as db:
            version = db.info()["schema_version"]
            assert db.verify().ok, path
            assert committed(db) == before, path
            db.producer().send("orders", "sent after the upgrade", partition=0).result()
            assert committed(db) == [*before, b"sent after the upgrade"], path
            assert db.verify().ok, path
        print(f"{path}: upgraded to schema {version}, {len(before)} records and one more, verified")


if __name__ == "__main__":
    main(sys.argv[1:])
