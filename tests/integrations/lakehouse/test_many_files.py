"""A pass over many files loads the table once, opens what has changed, and commits what they all have."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.errors import (
    ConfigError,
    CorruptRecordError,
    EosdbError,
    IllegalStateError,
    InvalidTimestampError,
    NotAnEosdbFileError,
    StorageError,
)
from eosdb.integrations.lakehouse import Exported, exporting
from tests.integrations.lakehouse.tables import Table, append, committed

pytestmark = pytest.mark.slow

NOTHING = Exported(0, 0)


@pytest.fixture
def fleet(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{name}.db" for name in "abcd"]
    for path in paths:
        with eosdb.connect(path) as db:
            db.admin.create_topic("orders", partitions=2)
            append(db, 2)
            append(db, 1, partition=1)
    return paths


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that passes open; unchanged files are known at once."""
    names: list[str] = []

    def connect(path: str, **options: Any) -> eosdb.Database:
        names.append(Path(path).name)
        return eosdb.connect(path, **options)

    monkeypatch.setattr(exporting, "connect", connect)
    monkeypatch.setattr(exporting, "_TICK_NS", 0)
    return names


def grow(path: Path, count: int = 1) -> None:
    with eosdb.connect(path) as db:
        append(db, count)


def in_files(paths: Sequence[Path]) -> list[tuple[str, str, int, int]]:
    found = []
    for path in paths:
        with eosdb.connect(path, read_only=True) as db:
            found += [(str(path), *place) for place in committed(db)]
    return sorted(found)


def in_table(table: Table) -> list[tuple[str, str, int, int]]:
    rows = table.rows()
    return sorted((it["source_file"], it["topic"], it["partition"], it["offset"]) for it in rows)


def test_a_pass_is_one_commit_with_a_data_file_for_each_topic_and_day(
    fleet: list[Path], table: Table
) -> None:
    assert table.export_files(fleet) == {path.name: Exported(3, 1) for path in fleet}
    assert in_table(table) == in_files(fleet)
    assert (table.commits(), len(table.data_files())) == (1, 1)
    assert table.export_files(fleet) == {path.name: NOTHING for path in fleet}
    assert len(table.data_files()) == 1
    grow(fleet[2], 5)
    assert table.export_files(fleet)["c.db"] == Exported(5, 1)
    assert in_table(table) == in_files(fleet)


def test_passes_and_exports_of_one_file_go_on_from_each_other(
    fleet: list[Path], table: Table
) -> None:
    with eosdb.connect(fleet[0]) as db:
        assert table.export(db).records == 3
        table.export_files(fleet)
        append(db, 1)
        assert table.export(db).records == 1
    assert in_table(table) == in_files(fleet)


def test_a_file_is_opened_again_after_every_kind_of_change(
    fleet: list[Path], opened: list[str], table: Table
) -> None:
    first, path = fleet[:2]

    def opened_by(topics: list[str] | None = None) -> tuple[bool, int]:
        opened.clear()
        done = table.export_files([first, path], topics)[path.name]
        assert isinstance(done, Exported)
        return path.name in opened, done.records

    assert opened_by() == (True, 3)
    assert opened_by() == (False, 0)
    before = path.stat()
    grow(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert opened_by() == (True, 1), "its times were put back"
    assert opened_by() == (False, 0)
    assert opened_by(["orders"]) == (True, 0), "another selection of topics"
    with eosdb.connect(path) as db:
        append(db, 1)
        assert opened_by() == (True, 1)
        assert opened_by() == (True, 0), "it has a WAL, in which another commit may be"
        append(db, 1)
        assert opened_by() == (True, 1)
    grow(path)
    shutil.copy(path, path.with_suffix(".copy"))
    os.replace(path.with_suffix(".copy"), path)
    assert opened_by() == (True, 1)
    assert opened_by() == (False, 0)
    shutil.copy2(path, path.with_suffix(".copy"))
    os.replace(path.with_suffix(".copy"), path)
    assert opened_by() == (True, 0), "another file, even with the same content"


def test_a_file_that_was_just_written_is_opened_again(
    fleet: list[Path], opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table("parquet", tmp_path)
    monkeypatch.setattr(exporting, "_TICK_NS", 3_600_000_000_000)
    for _ in range(2):
        opened.clear()
        table.export_files(fleet)
        assert opened == [path.name for path in fleet], "its times could be those of a later write"


def test_a_file_that_is_exchanged_while_it_is_opened_is_opened_again(
    fleet: list[Path], opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, (first, path) = Table("delta", tmp_path), fleet[:2]
    aside = tmp_path / "aside"

    def exchanged(name: str, **options: Any) -> eosdb.Database:
        if name == str(path):
            os.rename(path, aside)
            shutil.copy(fleet[3], path)
        return eosdb.connect(name, **options)

    with monkeypatch.context() as patched:
        patched.setattr(exporting, "connect", exchanged)
        assert table.export_files([first, path])["b.db"] == Exported(3, 1)
    os.rename(aside, path)
    assert isinstance(table.export_files([first, path])["b.db"], IllegalStateError)


def test_files_that_cannot_be_read_are_left_out_whole(fleet: list[Path], table: Table) -> None:
    a, b, c, d = fleet
    grow(b, 3)
    with contextlib.closing(sqlite3.connect(b)) as connection, connection:
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for (name,) in names:
            connection.execute(f'DROP TRIGGER "{name}"')
        connection.execute("UPDATE records SET value = x'00' WHERE \"offset\" = 4")
    c.write_bytes(b"no database")
    with eosdb.connect(d) as db:
        far = eosdb.RecordBatch([eosdb.Record(b"v", timestamp=10**15)])
        db.broker.append(TopicPartition("orders", 0), far)
    done = table.export_files(fleet)
    assert done.pop("a.db") == Exported(3, 1)
    kinds = [CorruptRecordError, NotAnEosdbFileError, InvalidTimestampError]
    assert [type(it) for it in done.values()] == kinds
    assert in_table(table) == in_files([a])
    assert len(table.data_files()) == 1


def test_nothing_is_left_behind_if_no_file_can_be_read(fleet: list[Path], table: Table) -> None:
    done = table.export_files(fleet, ["nosuch"])
    assert [type(it) for it in done.values()] == [ConfigError] * len(fleet)
    with eosdb.connect(fleet[0]) as db, pytest.raises(ConfigError, match="no topic nosuch"):
        table.export(db, ["nosuch"])
    assert not [*table.folder.iterdir()]


def test_an_error_of_the_target_ends_the_pass(fleet: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for format in ("parquet", "delta"):
        with pytest.raises(StorageError):
            Table(format, tmp_path / "file").export_files(fleet)


def test_copies_of_a_file_are_exported_once(fleet: list[Path], table: Table) -> None:
    copy = fleet[0].with_name("copy.db")
    shutil.copy(fleet[0], copy)
    grow(copy)
    done = table.export_files([fleet[0], copy])
    assert done == {"a.db": Exported(3, 1), "copy.db": Exported(1, 1)}
    done = table.export_files([copy, fleet[0]])
    assert done["copy.db"] == NOTHING
    assert isinstance(done["a.db"], IllegalStateError)


def test_a_large_file_has_data_files_of_its_own_until_it_is_read(
    fleet: list[Path], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "_WAITING_BYTES", 50_000)
    grow(fleet[1], 20_000)
    done = table.export_files(fleet)
    assert done["a.db"] == done["c.db"] == Exported(3, 1)
    assert done["b.db"] == Exported(20_003, 1)
    assert len(table.data_files()) == 2
    assert table.commits() == 1
    assert in_table(table) == in_files(fleet)


def test_much_is_several_commits(
    fleet: list[Path], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the fingerprints that an older file has, which are numbers, too.
    monkeypatch.setattr(exporting, "_TICK_NS", 3_600_000_000_000)
    monkeypatch.setattr(exporting, "_COMMIT_NUMBERS", 6)
    table.export_files(fleet)
    assert len(table.data_files()) == 2
    monkeypatch.setattr(exporting, "_COMMIT_BYTES", 1)
    for path in fleet:
        grow(path)
    table.export_files(fleet)
    assert len(table.data_files()) == 2 + len(fleet)
    assert in_table(table) == in_files(fleet)


def test_a_topic_made_anew_while_it_is_read_is_read_anew(
    fleet: list[Path], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = eosdb.Database.scan_arrow
    grow(fleet[1], 5_000)

    def between_parts(
        db: eosdb.Database, tp: TopicPartition, *rest: Any, **more: Any
    ) -> Iterator[Any]:
        for number, rows in enumerate(scan(db, tp, *rest, **more)):
            yield rows
            if number == 0 and db.path == str(fleet[1]):
                monkeypatch.setattr(eosdb.Database, "scan_arrow", scan)
                with eosdb.connect(fleet[1]) as other:
                    other.admin.delete_topic("orders")
                    other.admin.create_topic("orders")
                    append(other, 7)

    monkeypatch.setattr(eosdb.Database, "scan_arrow", between_parts)
    assert table.export_files(fleet)["b.db"] == Exported(7, 1)
    assert in_table(table) == in_files(fleet)


def test_passes_at_the_same_time_add_each_record_once(fleet: list[Path], table: Table) -> None:
    errors: list[BaseException] = []

    def work(paths: list[Path]) -> None:
        try:
            for _ in range(3):
                for path in paths[:2]:
                    grow(path)
                try:
                    done = table.export_files(paths)
                    assert not [it for it in done.values() if isinstance(it, EosdbError)]
                except IllegalStateError as error:
                    assert table.format == "parquet"
                    assert "another export" in str(error)
        except BaseException as error:
            errors.append(error)

    table.export_files(fleet)  # SqlCatalog cannot be made twice at once
    threads = [threading.Thread(target=work, args=(it,)) for it in (fleet, fleet[::-1], fleet[1:3])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    table.export_files(fleet)
    assert in_table(table) == in_files(fleet)


@pytest.mark.parametrize("parts", [1, 2])
def test_progress_is_found_in_delta_s_checkpoints(
    fleet: list[Path], tmp_path: Path, parts: int
) -> None:
    table = Table("delta", tmp_path)
    table.export_files(fleet[:3])
    table.delta().create_checkpoint()
    log = Path(table.target) / "_delta_log"
    for commit in sorted(log.glob("*.json"))[:-1]:
        commit.unlink()
    (name,) = log.glob("*.checkpoint.parquet")
    if parts == 2:  # as Spark writes large ones
        rows = pq.read_table(name)
        for part in (1, 2):
            piece = rows.slice(0, 3) if part == 1 else rows.slice(3)
            pq.write_table(piece, log / f"{name.name[:20]}.checkpoint.{part:010}.{2:010}.parquet")
        name.unlink()
        last = {"version": int(name.name[:20]), "size": rows.num_rows, "parts": 2}
        (log / "_last_checkpoint").write_text(json.dumps(last))
    (log / f"{0:020}.checkpoint.{1:010}.{9:010}.parquet").write_bytes(b"not all are there")
    assert {*table.export_files(fleet[:3]).values()} == {NOTHING}
    assert table.export_files(fleet)["d.db"] == Exported(3, 1)
    assert {*table.export_files(fleet).values()} == {NOTHING}
