"""Names of a file that is open: a second one, one that is removed, one that is replaced.

SQLite goes on with what it has open; whoever opens the name anew works on other files. Both would
acknowledge what the other never sees.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from tests.readers import committed_values

TP = TopicPartition("t", 0)
BATCH = eosdb.RecordBatch([eosdb.Record(value=b"v")])


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_with_two_names_is_refused_under_either(db_path: Path, read_only: bool) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
    link = db_path.with_name("link.db")
    os.link(db_path, link)
    for path in (db_path, link):
        with pytest.raises(eosdb.StorageError, match=r"2 names.*backup"):
            eosdb.connect(path, read_only=read_only)
    link.unlink()
    with eosdb.connect(db_path, read_only=read_only) as db:
        assert db.verify().ok


def test_a_name_that_is_added_while_the_file_is_open_cannot_be_opened(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    link = Path(f"{db.path}.link")
    os.link(db.path, link)
    with pytest.raises(eosdb.StorageError, match="hard links"):
        eosdb.connect(link)
    assert db.broker.append(TP, BATCH).base_offset == 0


def test_a_file_that_was_killed_while_it_was_made_has_a_second_name_and_opens(
    db_path: Path,
) -> None:
    eosdb.connect(db_path).close()
    os.link(db_path, f"{db_path}.eosdb-unfinished")
    eosdb.connect(db_path, read_only=True).close()
    eosdb.connect(db_path).close()
    assert db_path.stat().st_nlink == 1


def write_in_a_block(db: eosdb.Database) -> None:
    with db.begin() as tx:
        tx.publish("t", b"lost")


def write_in_a_transaction(db: eosdb.Database) -> None:
    db.producer(transactional_id="a").init_transactions()


WRITES: list[Callable[[eosdb.Database], object]] = [
    lambda db: db.broker.append(TP, BATCH),
    lambda db: db.producer().send("t", b"lost").result(),
    write_in_a_block,
    write_in_a_transaction,
]


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-lock"])
@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
@pytest.mark.parametrize("write", WRITES)
def test_no_write_is_acknowledged_behind_a_file_that_was_taken_away(
    db_path: Path, suffix: str, replaced: bool, write: Callable[[eosdb.Database], object]
) -> None:
    db = eosdb.connect(db_path)
    db.admin.create_topic("t")
    db.broker.append(TP, BATCH)
    taken = Path(f"{db_path}{suffix}")
    content = taken.read_bytes() if suffix != "-lock" else b""
    taken.unlink()
    if replaced:
        taken.write_bytes(content)
    word = "replaced" if replaced else "removed"
    with pytest.raises(
        eosdb.StorageError, match=f"{taken.name} has been {word}.*nothing was written"
    ):
        write(db)
    db.abandon()


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_closing_saves_what_was_acknowledged_before_the_wal_was_deleted(
    db_path: Path, suffix: str
) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        db.broker.append(TP, BATCH)
        Path(f"{db_path}{suffix}").unlink()
        with pytest.raises(eosdb.StorageError, match="Close the database"):
            db.broker.append(TP, BATCH)
    with eosdb.connect(db_path) as db:
        assert committed_values(db, TP) == [b"v"]
        assert db.verify().ok


def test_a_copy_put_in_place_of_an_open_file_is_not_mixed_with_it(
    db_path: Path, tmp_path: Path
) -> None:
    """As `cp` and `mv` do in somebody's restore."""
    copy = tmp_path / "copy.db"
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        db.backup(copy)
        db.broker.append(TP, BATCH)
        shutil.move(copy, db_path)
        with pytest.raises(eosdb.StorageError, match="replaced"):
            db.broker.append(TP, BATCH)
        with pytest.raises(eosdb.StorageError, match="replaced"), db.begin():
            pass


@pytest.mark.parametrize("others", [0, 1])
def test_a_copy_put_in_place_of_an_open_file_is_not_given_its_wal(
    db_path: Path, tmp_path: Path, others: int
) -> None:
    """Which SQLite leaves behind, and takes for that of the next file of the name."""
    copy = tmp_path / "copy.db"
    db = eosdb.connect(db_path)
    also_open = [eosdb.connect(db_path) for _ in range(others)]
    db.admin.create_topic("t")
    db.broker.append(TP, BATCH)
    db.backup(copy)
    for count in (300, 30):
        db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"later")] * count))
        db._store.checkpoint()
    db.broker.append(TP, BATCH)
    shutil.move(copy, db_path)
    for opened in (db, *also_open):
        opened.close()
    with eosdb.connect(db_path) as db:
        assert committed_values(db, TP) == [b"v"]
        assert db.verify().ok


def test_the_wal_of_a_file_that_was_moved_is_kept_for_as_long_as_it_is_needed(
    db_path: Path, tmp_path: Path
) -> None:
    """A reader keeps it from being copied into the file, wherever that is now."""
    moved = tmp_path / "moved" / db_path.name
    moved.parent.mkdir()
    reader = sqlite3.connect(db_path, isolation_level=None)
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM records").fetchone()
        db.broker.append(TP, BATCH)
        shutil.move(db_path, moved)
    shutil.move(f"{db_path}-wal", f"{moved}-wal")
    reader.close()
    with eosdb.connect(moved) as db:
        assert committed_values(db, TP) == [b"v"]
        assert db.verify().ok
