"""Arrow batches hold exactly what `db.admin.scan` returns, and end with the same error."""

from __future__ import annotations

import base64
import json
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eosdb
from eosdb import Header, ManualClock, Record, RecordBatch, TopicPartition
from eosdb.errors import EosdbError
from eosdb.integrations import arrow
from eosdb.log.reading import block
from eosdb.model.records.arrow_types import schema
from tests.cases import each
from tests.maintenance import everything
from tests.native.roads import road

pytestmark = pytest.mark.both_roads

TP = TopicPartition("t", 0)
NAMES = (
    "offset", "timestamp", "timestampType", "key", "value", "headers", "producerId", "producerEpoch",
    "sequence",
)  # fmt: skip
"""In the order of `admin.log.COLUMNS`."""
CONTENTS = (
    None, b"", b"\x00", b"a\x00b", b"\xff\xfe", "ä€😀".encode(), b"s", b"-", b"1s2", b"x" * 1_000,
)  # fmt: skip
HEADERS: tuple[tuple[Header, ...], ...] = (
    (),
    (("h", b"\x00"),),
    (("ä\x00", None), ("", b"")),
    (("h", b"x" * 500),),
)


def by_scan(db: eosdb.Database, end: int, start: int = 0, **options: Any) -> list[list[Any]]:
    """The rows as Arrow shows them; the last is an error, if there was one."""
    found: list[list[Any]] = []
    try:
        for rows in db.admin.scan(TP, start, end, **options):
            found += [list(row) for row in rows]
    except EosdbError as error:
        found.append([type(error), str(error)])
    for row in found:
        if len(row) > 2 and row[5] is not None:
            row[5] = [
                {"key": key, "value": None if value is None else base64.b64decode(value)}
                for key, value in json.loads(row[5])
            ]
    return found


def by_arrow(db: eosdb.Database, end: int, start: int = 0, **options: Any) -> list[list[Any]]:
    found: list[list[Any]] = []
    try:
        for batch in arrow.batches(db.admin, TP, start, end, NAMES, **options):
            assert batch.num_rows
            assert batch.schema == schema(NAMES)
            columns = [
                column.cast("int64") if name == "timestamp" else column
                for name, column in zip(NAMES, batch.columns, strict=True)
            ]
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            found += [[offset, time // 1_000, *others] for offset, time, *others in rows]
    except EosdbError as error:
        found.append([type(error), str(error)])
    return found


def fill(db: eosdb.Database, rng: random.Random, config: dict[str, Any]) -> None:
    """Transactions of three producers by turns, some aborted, and records outside of any."""
    db.admin.create_topic("t", config={"retention.ms": -1, **config})
    producers = [db.producer(transactional_id=f"p{i}") for i in range(3)]
    contents = rng.choice((CONTENTS, (b"same",), (None, b"v")))
    headers: Sequence[tuple[Header, ...]] = rng.choice((HEADERS, HEADERS[:1]))
    keys = CONTENTS[1:] if "compact" in str(config) else contents
    for producer in producers:
        producer.init_transactions()
    for _ in range(rng.randrange(40)):
        time = rng.choice((5, rng.randrange(10**12)))
        made = [
            Record(rng.choice(keys), rng.choice(contents), rng.choice(headers), time)
            for _ in range(rng.randrange(1, 9))
        ]
        producer = rng.choice(producers)
        if rng.random() < 0.2:
            db.broker.append(TP, RecordBatch(made))
        elif producer.state == "IN_TRANSACTION" and rng.random() < 0.6:
            rng.choice((producer.commit_transaction, producer.abort_transaction))()
        else:
            if producer.state != "IN_TRANSACTION":
                producer.begin_transaction()
            for one in made:
                producer.send("t", one.value, key=one.key, headers=one.headers, timestamp=time)
            producer.flush()
    if rng.random() < 0.3:
        db.admin.alter_topic_config("t", {"message.timestamp.type": "LogAppendTime"})
        db.broker.append(TP, RecordBatch([Record(b"k", b"v")] * 3))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_they_hold_what_a_scan_returns(seed: int) -> None:
    rng = random.Random(seed)
    clock = ManualClock(10**12)
    with eosdb.connect(":memory:", clock=clock) as db:
        is_compacted = rng.random() < 0.2
        fill(db, rng, {"cleanup.policy": "compact"} if is_compacted else {})
        if is_compacted:
            clock.advance(10**9)
            db.housekeeping()
        elif rng.random() < 0.3:
            db.broker.delete_records(TP, rng.randrange(db.broker.offsets(TP).log_end_offset + 1))
        offsets = db.broker.offsets(TP)
        with mock.patch.object(arrow, "MOST_ROWS", rng.choice((1, 7, 4_000))):
            for level, bound in (
                ("read_committed", offsets.last_stable_offset),
                ("read_uncommitted", offsets.high_watermark),
            ):
                start = rng.randrange(bound + 1)
                end = rng.randrange(start, bound + 2)
                for skip_lost in (False, True):
                    asked = {"isolation_level": level, "skip_lost": skip_lost}
                    assert by_arrow(db, end, start, **asked) == by_scan(db, end, start, **asked)


@pytest.mark.slow
def test_an_ordinary_log_is_never_read_row_by_row() -> None:
    """Whatever the records hold, and whatever was aborted."""
    rows = 0
    for seed in range(6):
        with road("1"), eosdb.connect(":memory:", clock=ManualClock(10**12)) as db:
            fill(db, random.Random(seed), {})
            end = db.broker.offsets(TP).last_stable_offset
            start = min(3, end - 1)
            if start < 0:
                continue
            db.broker.delete_records(TP, start)
            expected = by_scan(db, end, start)
            rows += len(expected)
            # Part by part, for the type of the timestamps changes once.
            with (
                mock.patch.object(block, "_by_row", side_effect=AssertionError),
                mock.patch.object(arrow, "MOST_ROWS", 1),
            ):
                assert by_arrow(db, end, start) == expected
    assert rows > 60


def test_large_records_come_in_small_batches(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    for _ in range(8):
        db.broker.append(TP, RecordBatch([Record(value=bytes(600_000))]))
    found = list(arrow.batches(db.admin, TP, 0, 8, ("value",)))
    assert len(found) == 8
    assert all(batch.column(0)[0].as_py() == bytes(600_000) for batch in found)


DAMAGES = {
    "value": "X'00'", "key": "X'00'", "value is gone": "NULL", "headers": "'[[\"h\",null]]'",
    "headers are gone": "NULL", "timestamp": "timestamp + 1", "timestamp_type": "1 - timestamp_type",
    "producer_id": "producer_id + 1", "producer_epoch": "producer_epoch + 100",
    "sequence": "sequence + 1000", "is_transactional": "1 - is_transactional", "control": "'ABORT'",
    "position": "position + 1", "checksum": "checksum + 1", "offset": "1000000", "partition_id": "77",
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "all.db"
    everything.fill(path, ManualClock(1_700_000_000_000))
    with eosdb.connect(path) as db:
        db.producer(transactional_id="open").init_transactions()  # Ends what was left open.
    return path.read_bytes()


@pytest.mark.slow
@each("what", [*DAMAGES, "row"])
def test_a_damaged_record_is_found_as_by_a_scan(whole: bytes, tmp_path: Path, what: str) -> None:
    path = tmp_path / "all.db"
    path.write_bytes(whole)
    at = 'partition_id = 1 AND control IS NULL AND "offset" = 12'
    column = what.split(" ", maxsplit=1)[0]
    connection = everything.raw(path)
    changed = connection.execute(
        f"DELETE FROM records WHERE {at}"
        if what == "row"
        else f'UPDATE records SET "{column}" = {DAMAGES[what]} WHERE {at}'
    )
    assert changed.rowcount == 1
    connection.close()
    with eosdb.connect(path, read_only=True) as db:
        end = db.broker.offsets(TP).last_stable_offset
        found = by_arrow(db, end)
        assert found == by_scan(db, end)
        with mock.patch.object(arrow, "MOST_ROWS", 1):
            assert by_arrow(db, end) == found
        assert found[-1][0] is eosdb.CorruptRecordError
        assert "offset 12" in found[-1][1]


@pytest.mark.slow
def test_whichever_bit_flips_it_is_as_by_a_scan(whole: bytes, tmp_path: Path) -> None:
    rng, told = random.Random(3), 0
    path = tmp_path / "all.db"
    path.write_bytes(whole)
    with eosdb.connect(path, read_only=True) as db:
        end = db.broker.offsets(TP).last_stable_offset
    (root,) = (
        sqlite3.connect(path)
        .execute("SELECT rootpage FROM sqlite_schema WHERE name = 'records'")
        .fetchone()
    )
    for number in range(150):
        data = bytearray(whole)
        # Half of them where the first records are.
        low, high = ((root - 1) * 4096, (root + 2) * 4096) if number % 2 else (0, len(data))
        data[rng.randrange(low, min(high, len(data)))] ^= 1 << rng.randrange(8)
        path = tmp_path / f"{number}.db"
        path.write_bytes(data)
        try:
            with eosdb.connect(path, read_only=True) as db:
                expected = by_scan(db, end)
                assert by_arrow(db, end) == expected, number
                told += isinstance(expected[-1][0], type)
        except EosdbError:
            told += 1
    assert told > 5


def test_a_column_that_there_is_not_is_named(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    with pytest.raises(
        eosdb.InvalidRequestError, match="got 'colour', expected some of key, value"
    ):
        next(db.scan_arrow(TP, 0, 0, columns=("key", "colour")))
