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
from sqlalchemy import text

import eosdb
from eosdb import TopicPartition
from eosdb.model.requests import WaitForChange
from eosdb.store.file.file_system import LOCKS
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


def write_through_the_engine(db: eosdb.Database) -> None:
    with db.engine.begin() as connection:
        connection.execute(text("CREATE TABLE mine (x)"))


WRITES: list[Callable[[eosdb.Database], object]] = [
    lambda db: db.broker.append(TP, BATCH),
    lambda db: db.producer().send("t", b"lost").result(),
    write_in_a_block,
    write_in_a_transaction,
]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", *LOCKS])
@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
@pytest.mark.parametrize("write", WRITES)
def test_no_write_is_acknowledged_behind_a_file_that_was_taken_away(
    db_path: Path, suffix: str, replaced: bool, write: Callable[[eosdb.Database], object]
) -> None:
    db = eosdb.connect(db_path)
    db.admin.create_topic("t")
    db.broker.append(TP, BATCH)
    taken = Path(f"{db_path}{suffix}")
    content = taken.read_bytes() if suffix not in LOCKS else b""
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


# -- a folder above them, or a link to them -----------------------------------------------------------

READS: list[Callable[[eosdb.Database], object]] = [
    lambda db: db.broker.fetch(TP, 0),
    lambda db: db.query("SELECT 1").all(),
    lambda db: db.consumer().partitions_for("t"),
    lambda db: db.engine.connect().execute(text("SELECT 1")),
    lambda db: db.broker.ask(WaitForChange(-1, 0)),
]


def rename_the_folder(folder: Path) -> None:
    """As a deployment does: the folder goes away, and a copy of it takes its place."""
    copied = folder.with_name("copied")
    shutil.copytree(folder, copied)
    folder.rename(folder.with_name("before"))
    copied.rename(folder)


def turn_the_link(folder: Path) -> None:
    """`current` leads to another release, which has a copy."""
    shutil.copytree(folder.resolve(), folder.with_name("copied"))
    turned = folder.with_name("turned")
    turned.symlink_to("copied")
    turned.rename(folder)


def remove_the_folder(folder: Path) -> None:
    folder.rename(folder.with_name("before"))


TAKEN = [rename_the_folder, turn_the_link, remove_the_folder]


@pytest.fixture(params=TAKEN)
def taken(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Callable[[Path], None]]:
    folder = tmp_path / "data"
    if request.param is turn_the_link:
        (tmp_path / "release").mkdir()
        folder.symlink_to("release")
    else:
        folder.mkdir()
    return folder, request.param


def test_a_folder_that_is_renamed_under_an_open_file_is_noticed_by_whoever_writes_or_reads(
    taken: tuple[Path, Callable[[Path], None]],
) -> None:
    """Two programs each went on with a history of their own, under one file id."""
    folder, take = taken
    with eosdb.connect(folder / "shop.db") as db, eosdb.connect(folder / "shop.db") as second:
        db.admin.create_topic("t")
        second.broker.append(TP, BATCH)
        take(folder)
        for work in (*WRITES, write_through_the_engine, *READS):
            for opened in (db, second):
                with pytest.raises(eosdb.StorageError, match=r"has been (removed|replaced)"):
                    work(opened)
    where = folder.parent / "before" if take is not turn_the_link else folder.parent / "release"
    with eosdb.connect(where / "shop.db") as db:
        assert committed_values(db, TP) == [b"v"], "closing has saved what was acknowledged"
        assert db.verify().ok


@pytest.mark.parametrize("take", [rename_the_folder, turn_the_link])
def test_closing_the_old_file_leaves_the_one_in_its_place_alone(
    tmp_path: Path, take: Callable[[Path], None]
) -> None:
    (tmp_path / "release").mkdir()
    folder = tmp_path / "data"
    folder.symlink_to("release") if take is turn_the_link else folder.mkdir()
    old = eosdb.connect(folder / "shop.db")
    old.admin.create_topic("t")
    take(folder)
    new = eosdb.connect(folder / "shop.db")
    new.broker.append(TP, BATCH)
    wal = Path(f"{folder}/shop.db-wal").read_bytes()
    old.close()
    assert Path(f"{folder}/shop.db-wal").read_bytes() == wal
    new.abandon()
    with eosdb.connect(folder / "shop.db") as db:
        assert committed_values(db, TP) == [b"v"]


def test_a_reader_of_a_file_that_is_written_is_told_too(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with (
        eosdb.connect(folder / "shop.db") as db,
        eosdb.connect(folder / "shop.db", read_only=True) as reader,
    ):
        db.admin.create_topic("t")
        assert reader.broker.fetch(TP, 0)
        rename_the_folder(folder)
        for read in READS:
            with pytest.raises(eosdb.StorageError, match="replaced"):
                read(reader)


def test_a_reader_of_a_published_copy_goes_on_with_it_when_the_next_is_published(
    db: eosdb.Database, tmp_path: Path
) -> None:
    db.admin.create_topic("t")
    db.publish_copy(tmp_path / "copy.db")
    with eosdb.connect(tmp_path / "copy.db", read_only=True) as reader:
        db.broker.append(TP, BATCH)
        db.publish_copy(tmp_path / "copy.db")
        assert reader.broker.fetch(TP, 0).records == []


def test_neither_another_working_folder_nor_memory_is_a_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with eosdb.connect("shop.db") as db, eosdb.connect(":memory:") as in_memory:
        for opened in (db, in_memory):
            opened.admin.create_topic("t")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        for opened in (db, in_memory):
            assert opened.broker.append(TP, BATCH).base_offset == 0
            assert committed_values(opened, TP) == [b"v"]


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
