"""What an error says of that which its call was to store (`error.outcome`)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition, errors
from eosdb.broker.core import STEPS
from eosdb.model.requests import Produce
from eosdb.store.file.failures import translate, translate_system
from eosdb.store.store import Store
from eosdb.store.writing.group_commit import UnitRequest
from eosdb.store.writing.writer import Writer

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
        (sqlite3.SQLITE_IOERR_SHMOPEN, eosdb.StorageError, "not written"),
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
    # An exclusive lock stops readers, too, and nobody is told that a read was not written.
    assert (code == sqlite3.SQLITE_BUSY) == ("neither read nor written" in str(found))


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


@pytest.mark.parametrize(
    ("together", "outcome"),
    [(sqlite3.SQLITE_IOERR_FSYNC, "unknown"), (sqlite3.SQLITE_FULL, "not written")],
)
def test_what_was_in_doubt_together_is_in_doubt_alone(
    db_path: Path, monkeypatch: pytest.MonkeyPatch, together: int, outcome: str
) -> None:
    """The commit that they shared may be in the WAL, whatever becomes of each afterwards."""

    def fails(_: Writer, batch: list[UnitRequest]) -> None:
        error = sqlite3.OperationalError("said so")
        error.sqlite_errorcode = together if len(batch) > 1 else sqlite3.SQLITE_FULL
        raise error

    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        monkeypatch.setattr(Writer, "run", fails)
        requests = [UnitRequest(lambda _: None, sync=True) for _ in range(2)]
        db._store._run_round(requests)
        monkeypatch.undo()
        for request in requests:
            assert isinstance(request.error, eosdb.DatabaseFullError)
            assert request.error.outcome == outcome


def test_batches_that_were_in_doubt_together_are_in_doubt_alone(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.admin.create_topic("t")
    producer = db.producer(batch_size=1_000)

    def fails(*_: object, **__: object) -> None:
        raise errors.in_doubt(eosdb.StorageError("the sync failed"))

    def refuses(*_: object, **__: object) -> None:
        raise eosdb.DatabaseFullError("no room")

    monkeypatch.setattr(db.broker, "turn", fails)
    monkeypatch.setitem(STEPS, Produce, refuses)
    with producer.gathering():
        futures = [producer.send("t", b"v" * 900, partition=0) for _ in range(3)]
    told = [future.exception() for future in futures]
    assert {type(error) for error in told} == {eosdb.DatabaseFullError}
    assert {getattr(error, "outcome", None) for error in told} == {"unknown"}


def test_what_closing_meets_does_not_replace_what_the_block_was_told(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Store) -> None:
        error = eosdb.StorageError("the disk does not sync")
        error.outcome = "written"
        raise error

    monkeypatch.setattr(Store, "_close_files", fails)
    with pytest.raises(eosdb.DatabaseFullError) as raised, eosdb.connect(db_path):
        raise eosdb.DatabaseFullError("no room")
    assert raised.value.outcome == "not written"
    assert raised.value.__notes__ == ["closing failed, too: StorageError: the disk does not sync"]
    with pytest.raises(eosdb.StorageError) as alone, eosdb.connect(db_path):
        pass
    assert alone.value.outcome == "written"
