"""Checkpoints are made by the one process that writes: beside another's, a commit could begin the WAL anew
while it is being copied.

Method: every unit is made to end with a checkpoint, and at the instant of each it is looked whether
somebody holds the writer mutex.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.system.lock_file import WRITER
from tests.concurrency.test_mutex import is_held
from tests.inside import mutex, writer

pytestmark = pytest.mark.crash

BATCH = RecordBatch([Record(value=b"v")])


def append(db: eosdb.Database) -> None:
    db.broker.append(TopicPartition("t", 0), BATCH)


def in_a_block(db: eosdb.Database) -> None:
    with db.begin() as tx:
        tx.publish("t", b"v")


def in_a_transaction(db: eosdb.Database) -> None:
    producer = db.producer(transactional_id="a")
    producer.init_transactions()
    with producer.transaction():
        producer.send("t", b"v")


def closing(db: eosdb.Database) -> None:
    db.close()


@pytest.mark.parametrize("work", [append, in_a_block, in_a_transaction, closing])
@pytest.mark.parametrize("mode", ["PASSIVE", "RESTART"])
def test_a_checkpoint_is_made_under_the_writer_mutex(
    db: eosdb.Database,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[eosdb.Database], None],
    mode: str,
) -> None:
    db.admin.create_topic("t")
    monkeypatch.setattr("eosdb.store.writing.writer._CHECKPOINT_BYTES", 1)
    if mode == "RESTART":
        monkeypatch.setattr("eosdb.store.writing.writer.WAL_LIMIT_BYTES", 0)
    modes: list[str] = []
    held: list[bool] = []

    def note(sql: str) -> None:
        if sql.startswith("PRAGMA wal_checkpoint"):
            modes.append(sql.removeprefix("PRAGMA wal_checkpoint(").removesuffix(")"))
            held.append(is_held(lock_file, WRITER))

    lock_file = mutex(db).path
    writer(db).connection.set_trace_callback(note)
    work(db)
    assert mode in modes or work is closing
    assert held
    assert all(held)


def test_the_wal_is_removed_under_the_writer_mutex(
    db: eosdb.Database, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing the last connection is a checkpoint, too, of which no statement tells."""
    db.admin.create_topic("t")
    wal = Path(f"{db_path}-wal")
    watched = mutex(db)
    take, let_go = watched.acquire, watched.release
    seen: list[tuple[str, bool]] = []

    def acquire(*patience: int) -> None:
        take(*patience)
        seen.append(("taken", wal.exists()))

    def release() -> object:
        seen.append(("let go", wal.exists()))
        return let_go()

    monkeypatch.setattr(watched, "acquire", acquire)
    monkeypatch.setattr(watched, "release", release)
    db.close()
    assert seen[-2:] == [("taken", True), ("let go", False)]
