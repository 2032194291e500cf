"""What an error says of that which its call was to store (`error.outcome`)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition, errors
from eosdb.store.file.failures import translate, translate_system
from tests.readers import committed_values

TP = TopicPartition("t", 0)
BATCH = eosdb.RecordBatch([eosdb.Record(value=b"v")])
NOT_KNOWN = {"RequestTimedOutError", "NetworkExceptionError"}


def test_every_error_has_one() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        expected = "not written"
        if name in NOT_KNOWN:
            expected = "unknown"
        elif name == "DuplicateSequenceNumberError":
            expected = "written"
        assert kind.outcome == expected, name


@pytest.mark.parametrize(
    ("code", "kind", "outcome"),
    [
        (sqlite3.SQLITE_BUSY, eosdb.DatabaseLockedError, "not written"),
        (sqlite3.SQLITE_FULL, eosdb.DatabaseFullError, "not written"),
        (sqlite3.SQLITE_IOERR_WRITE, eosdb.DatabaseFullError, "not written"),
        (sqlite3.SQLITE_READONLY, eosdb.ReadOnlyDatabaseError, "not written"),
        (sqlite3.SQLITE_CORRUPT, eosdb.CorruptDatabaseError, "not written"),
        (sqlite3.SQLITE_IOERR_FSYNC, eosdb.StorageError, "unknown"),
        (sqlite3.SQLITE_IOERR_SHMSIZE, eosdb.DatabaseFullError, "unknown"),
        (sqlite3.SQLITE_IOERR_SHMMAP, eosdb.StorageError, "unknown"),
    ],
)
def test_what_sqlite_reports_is_undone_or_in_doubt_where_the_commit_may_stand_in_the_wal(
    code: int, kind: type[eosdb.EosdbError], outcome: str
) -> None:
    error = sqlite3.OperationalError("said so")
    error.sqlite_errorcode = code
    found = translate(error, "shop.db")
    assert (type(found), found.outcome) == (kind, outcome)
    assert ("nothing was written" in str(found)) <= (outcome == "not written")


def test_a_system_call_that_is_refused_is_an_error_of_eosdbs() -> None:
    for number, kind in (
        (28, "DatabaseFullError"),
        (30, "ReadOnlyDatabaseError"),
        (24, "StorageError"),
    ):
        found = translate_system(OSError(number, "said so"), "shop.db-lock")
        assert (type(found).__name__, found.outcome) == (kind, "not written")


def test_what_is_refused_is_not_written(db: eosdb.Database) -> None:
    db.admin.create_topic("t", config={"max.message.bytes": 100})
    with pytest.raises(eosdb.MessageTooLargeError) as raised:
        db.producer().send("t", b"v" * 1_000).result()
    assert raised.value.outcome == "not written"
    with pytest.raises(eosdb.MessageTooLargeError) as raised:
        db.producer().send_many("t", [b"small", b"v" * 1_000])
    assert raised.value.outcome == "unknown", "the one is stored and the other is not"


def test_a_file_that_another_program_holds_is_not_written(db_path: Path) -> None:
    config = eosdb.BrokerConfig(lock_timeout_ms=10)
    with eosdb.connect(db_path) as holder, eosdb.connect(db_path, config=config) as db:
        holder.admin.create_topic("t")
        with holder.begin(), pytest.raises(eosdb.DatabaseLockedError) as raised:
            db.broker.append(TP, BATCH)
        assert raised.value.outcome == "not written"
        assert committed_values(db, TP) == []
