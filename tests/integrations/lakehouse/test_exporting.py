"""Every committed record becomes one row, in every format, whatever was exported before."""

from __future__ import annotations

import json
import os
import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.errors import (
    ConfigError,
    IllegalStateError,
    InvalidTimestampError,
    OffsetOutOfRangeError,
    StorageError,
)  # fmt: skip
from eosdb.integrations.lakehouse import Exported, export, exporting
from tests.integrations.lakehouse.tables import Table, append, committed

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000


def test_the_rows_are_the_committed_records_column_by_column(
    db: eosdb.Database, table: Table
) -> None:
    db.admin.create_topic("orders", partitions=2)
    headers = (("h", b"\x00"), ("n", None))
    early = Record(b"k", b"v", timestamp=5 * DAY_MS, headers=headers)
    db.broker.append(TopicPartition("orders", 1), RecordBatch([early, Record(timestamp=7)]))
    assert table.export(db) == Exported(records=2, files=2)
    first, second = table.rows()
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 1,
        "offset": 0,
        "timestamp": datetime(1970, 1, 6, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"\x00"}, {"key": "n", "value": None}],
        "source_file": db.path,
    }
    assert (second["key"], second["value"]) == (None, None)
    assert not second["headers"]  # pyiceberg hands out an empty list for a null one


def test_what_is_open_or_aborted_stays_out_until_it_is_committed(
    db: eosdb.Database, table: Table
) -> None:
    db.admin.create_topic("orders")
    with db.producer(transactional_id="a") as producer:
        producer.init_transactions()
        for value in (b"committed", b"aborted", b"open"):
            producer.begin_transaction()
            producer.send("orders", value)
            producer.flush()
            if value == b"open":
                append(db, 1)
                assert table.export(db).records == 1
            if value == b"aborted":
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    assert table.export(db).records == 2
    assert [row["value"] for row in table.rows()] == [b"committed", b"open", b"v"]
    assert table.places() == committed(db)


def test_another_export_adds_what_is_new_and_nothing_else(db: eosdb.Database, table: Table) -> None:
    db.admin.create_topic("orders", partitions=2)
    for count in (3, 1):
        append(db, count)
        assert table.export(db).records == count
        files = table.data_files()
        assert table.export(db) == Exported(records=0, files=0)
        assert table.data_files() == files
    db.admin.create_topic("more")
    append(db, 2, topic="more")
    assert table.export(db, ["orders"]).records == 0
    assert table.export(db, ["more"]).records == 2
    assert table.places() == committed(db)


def test_a_topic_made_anew_is_exported_from_its_beginning(db: eosdb.Database, table: Table) -> None:
    for _ in range(2):
        db.admin.create_topic("orders")
        append(db, 2)
        table.export(db)
        db.admin.delete_topic("orders")
    assert table.places() == [
        ("orders", 0, 0),
        ("orders", 0, 0),
        ("orders", 0, 1),
        ("orders", 0, 1),
    ]


def test_a_large_export_makes_many_files_and_many_days_few_open_ones(
    db: eosdb.Database, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "_WAITING_BYTES", 2_000)
    monkeypatch.setattr(exporting, "_FILE_BYTES", 1_000)
    monkeypatch.setattr(exporting, "_OPEN_FILES", 2)
    db.admin.create_topic("orders")
    records = [Record(value=b"%d" % i, timestamp=i % 3 * DAY_MS) for i in range(5_000)]
    db.broker.append(TopicPartition("orders", 0), RecordBatch(records))
    done = table.export(db)
    assert done.files > 3
    assert [int(row["value"]) for row in table.rows()] == list(range(5_000))
    sizes = [pq.ParquetFile(path).metadata.num_rows for path in table.data_files()]
    assert max(sizes) < 5_000 // 3
    assert sum(sizes) == 5_000


@pytest.mark.parametrize("timestamp", [253_402_300_800_000, 10**15, 2**63 - 1])
def test_a_record_from_the_year_10000_is_named(
    db: eosdb.Database, tmp_path: Path, timestamp: int
) -> None:
    table = Table("delta", tmp_path)
    db.admin.create_topic("orders")
    append(db, 1)
    table.export(db)
    latest = Record(b"v", timestamp=253_402_300_799_999)
    db.broker.append(TopicPartition("orders", 0), RecordBatch([latest]))
    assert table.export(db).records == 1
    records = RecordBatch([Record(b"v", timestamp=timestamp)])
    db.broker.append(TopicPartition("orders", 0), records)
    with pytest.raises(InvalidTimestampError, match="orders-0: a record from offset 2 on"):
        table.export(db)
    assert len(table.rows()) == 2
    assert len(table.data_files()) == 2


def test_a_transaction_over_two_partitions_comes_whole(db: eosdb.Database, table: Table) -> None:
    db.admin.create_topic("orders", partitions=2)
    append(db, 1)
    with db.producer(transactional_id="a") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"0", partition=0)
        producer.send("orders", b"1", partition=1)
        producer.flush()
        assert table.export(db).records == 1
        producer.commit_transaction()
    assert table.export(db).records == 2


def test_several_files_share_a_table(tmp_path: Path, table: Table) -> None:
    for name in ("a.db", "b.db", "a.db"):
        with eosdb.connect(tmp_path / name) as db:
            if "orders" not in db.admin.list_topics():
                db.admin.create_topic("orders")
            append(db, 1)
            assert table.export(db).records == 1
    found = [(Path(row["source_file"]).name, row["offset"]) for row in table.rows()]
    assert sorted(found) == [("a.db", 0), ("a.db", 1), ("b.db", 0)]


def test_a_file_that_was_moved_goes_on(tmp_path: Path, table: Table) -> None:
    with eosdb.connect(tmp_path / "a.db") as db:
        db.admin.create_topic("orders")
        append(db, 2)
        table.export(db)
    shutil.move(tmp_path / "a.db", tmp_path / "b.db")
    with eosdb.connect(tmp_path / "b.db") as db:
        assert table.export(db).records == 0


def test_an_older_copy_put_back_is_an_error_even_when_it_has_grown(
    tmp_path: Path, table: Table
) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    with eosdb.connect(path) as db:
        db.admin.create_topic("orders")
        append(db, 1)
        db.backup(copy)
        append(db, 3)
        table.export(db)
    shutil.move(copy, path)
    for allowed in (False, True):
        with eosdb.connect(path) as db:
            append(db, 5)
            with pytest.raises(IllegalStateError, match=r"older copy.*new target"):
                table.export(db, allow_data_loss=allowed)
    assert len(table.rows()) == 4


def test_another_file_in_the_same_place_is_an_error_unless_loss_is_allowed(
    tmp_path: Path, table: Table
) -> None:
    path = tmp_path / "a.db"
    for turn in range(2):
        with eosdb.connect(path) as db:
            db.admin.create_topic("orders")
            append(db, 2)
            if turn == 1:
                with pytest.raises(IllegalStateError, match="was replaced"):
                    table.export(db)
                assert table.export(db, allow_data_loss=True).records == 2
            assert table.export(db).records == 2 * (turn == 0)
        path.unlink()
    assert len(table.rows()) == 4


def test_records_that_are_gone_before_they_were_exported_are_an_error_unless_loss_is_allowed(
    db: eosdb.Database, table: Table
) -> None:
    tp = TopicPartition("orders", 0)
    db.admin.create_topic("orders")
    append(db, 4)
    db.broker.delete_records(tp, 2)
    assert table.export(db).records == 2, "what was gone before the first export was not lost"
    append(db, 4)
    db.broker.delete_records(tp, 6)
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 4 is the next.*begins at 6"):
        table.export(db)
    assert table.export(db, allow_data_loss=True).records == 2
    assert [row["offset"] for row in table.rows()] == [2, 3, 6, 7]


def test_many_exports_at_the_same_time_add_each_record_once(db_path: Path, table: Table) -> None:
    errors: list[BaseException] = []

    def work(partition: int) -> None:
        try:
            with eosdb.connect(db_path) as db:
                for _ in range(4):
                    append(db, 3, partition)
                    try:
                        table.export(db)
                    except IllegalStateError as error:
                        assert table.format == "parquet"
                        assert "another export" in str(error)
        except BaseException as error:
            errors.append(error)

    with eosdb.connect(db_path) as db:
        db.admin.create_topic("orders", partitions=3)
        table.export(db)  # SqlCatalog cannot be made twice at once
        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        table.export(db)
        assert table.places() == committed(db)
        assert len(table.places()) == 36


def test_whoever_loses_against_another_export_leaves_no_files(
    db: eosdb.Database, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    if table.format == "parquet":
        return  # only one at a time gets so far
    db.admin.create_topic("orders")
    append(db, 2)

    def meanwhile(_: object) -> None:
        monkeypatch.setattr(exporting, "reach", lambda _: None)
        assert table.export(db).records == 2

    monkeypatch.setattr(exporting, "reach", meanwhile)
    assert table.export(db) == Exported(records=0, files=0)
    assert len(table.rows()) == 2
    assert len(table.data_files()) == 1


def test_the_commit_of_somebody_else_is_no_hindrance(
    db: eosdb.Database, table: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if table.format == "parquet":
        return  # only one at a time gets so far

    db.admin.create_topic("orders")
    append(db, 2)
    table.export(db)
    append(db, 2)

    def meanwhile(_: object) -> None:
        monkeypatch.setattr(exporting, "reach", lambda _: None)
        with eosdb.connect(tmp_path / "other.db") as other:
            other.admin.create_topic("orders")
            append(other, 1)
            assert table.export(other).records == 1

    monkeypatch.setattr(exporting, "reach", meanwhile)
    assert table.export(db).records == 2
    assert len(table.rows()) == 5


def test_a_topic_made_anew_during_the_export_is_looked_at_again(
    db: eosdb.Database, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:

    db.admin.create_topic("orders")
    append(db, 2)

    def meanwhile(_: object) -> None:
        monkeypatch.setattr(exporting, "reach", lambda _: None)
        db.admin.delete_topic("orders")
        db.admin.create_topic("orders")
        append(db, 1)

    monkeypatch.setattr(exporting, "reach", meanwhile)
    assert table.export(db).records == 1
    assert table.places() == committed(db)


def test_a_table_of_somebody_else_is_refused(db: eosdb.Database, table: Table) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    content = pa.table({"a": [1]})
    if table.format == "delta":
        write_deltalake(table.target, content)
    elif table.format == "iceberg":
        catalog = table.catalog()
        catalog.create_namespace("lake")
        catalog.create_table("lake.events", content.schema)
        catalog.close()
    else:
        Path(table.target).mkdir()
        pq.write_table(content, Path(table.target) / "a.parquet")
    db.admin.create_topic("orders")
    append(db, 1)
    with pytest.raises(ConfigError, match=r"another table|no export wrote"):
        table.export(db)


def test_what_cannot_be_written_is_said_in_one_line(db: eosdb.Database, tmp_path: Path) -> None:
    db.admin.create_topic("orders")
    append(db, 1)
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file/table")
    bad: list[tuple[str, str, dict[str, str]]] = [
        (below, "parquet", {}),
        (below, "delta", {}),
        ("nosuch://bucket/table", "delta", {}),
        ("lake.events", "iceberg", {"uri": "sqlite:////nowhere/catalog.db"}),
        ("lake.events", "iceberg", {"type": "nosuch"}),
    ]
    for target, format, options in bad:
        with pytest.raises(StorageError) as told:
            export(db, target, format, options=options)
        assert "\n" not in str(told.value)
        assert "\x1b" not in str(told.value)
    for target, format in (("s3://bucket/table", "parquet"), ("events", "iceberg"), ("t", "csv")):
        with pytest.raises(ConfigError):
            export(db, target, format)
    with pytest.raises(ConfigError, match="expected none for Parquet"):
        export(db, str(tmp_path / "t"), options={"a": "b"})
    with pytest.raises(ConfigError, match="no topic nowhere; its topics: orders"):
        export(db, str(tmp_path / "t"), topics=["nowhere"])


def test_an_iceberg_table_that_was_rolled_back_gets_the_rows_again(
    db: eosdb.Database, tmp_path: Path
) -> None:
    table = Table("iceberg", tmp_path)
    db.admin.create_topic("orders")
    for _ in range(2):
        append(db, 2)
        table.export(db)
    catalog = table.catalog()
    found = catalog.load_table(table.target)
    with found.manage_snapshots() as manage:
        manage.rollback_to_snapshot(found.snapshots()[0].snapshot_id)
    assert len(table.rows()) == 2
    assert table.export(db).records == 2
    assert table.places() == committed(db)
    catalog.close()


def test_an_iceberg_table_without_the_snapshots_of_the_exports_still_knows_how_far_it_is(
    db: eosdb.Database, tmp_path: Path
) -> None:
    table = Table("iceberg", tmp_path)
    db.admin.create_topic("orders")
    append(db, 2)
    table.export(db)
    catalog = table.catalog()
    found = catalog.load_table(table.target)
    mine = found.current_snapshot()
    assert mine is not None
    (file,) = table.data_files()
    found.add_files([str(shutil.copy(file, tmp_path / "another.parquet"))])
    found.maintenance.expire_snapshots().by_id(mine.snapshot_id).commit()
    assert len(catalog.load_table(table.target).snapshots()) == 1
    catalog.close()
    assert table.export(db).records == 0


def test_what_was_committed_is_on_the_disk(
    db: eosdb.Database, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set()
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", watched)
    db.admin.create_topic("orders")
    for _ in range(2):
        append(db, 2)
        table.export(db)
        files = table.data_files()
        if table.format == "delta":
            version = table.delta().version()
            files.add(Path(table.target) / f"_delta_log/{version:020}.json")
        elif table.format == "iceberg":
            catalog = table.catalog()
            found = catalog.load_table(table.target)
            snapshot = found.current_snapshot()
            assert snapshot is not None
            lists = [snapshot.manifest_list, found.metadata_location]
            lists += [it.manifest_path for it in snapshot.manifests(found.io)]
            files |= {Path(it.removeprefix("file://")) for it in lists}
            catalog.close()
        else:
            files.add(Path(table.target) / "_eosdb/progress.json")
        files |= {path.parent for path in files}
        assert {path for path in files if path.stat().st_ino not in synced} == set()


def test_the_commits_say_what_they_brought(db: eosdb.Database, table: Table) -> None:
    db.admin.create_topic("orders")
    append(db, 2)
    table.export(db)
    append(db, 1)
    table.export(db)
    if table.format == "delta":
        about = table.delta().history(1)[0]["eosdb"]
    elif table.format == "iceberg":
        catalog = table.catalog()
        snapshot = catalog.load_table(table.target).current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        about = json.loads(str(snapshot.summary["eosdb.export"]))
        catalog.close()
    else:
        about = json.loads((Path(table.target) / "_eosdb/progress.json").read_text())["about"]
    assert about["offsets"] == {"orders": {"0": [2, 3]}}
    assert about["source_file"] == db.path
