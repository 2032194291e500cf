"""A row that eosdb did not write, even one whose checksum fits, is an error of eosdb's or a true record to
every reader, by the accelerator and without it; and what is beside it is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer.offsets import ListOffsetsRequest

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.errors import CorruptDatabaseError, EosdbError
from tests.log.forged_rows import COLUMNS, END, NOW, ROWS, WHOLE, fill, forged, loosened
from tests.native.roads import ROADS, road
from tests.wire.peer import Peer, fetch, stored

pytestmark = pytest.mark.simulation

TIMES = (-3, -2, -1, 0, NOW + 1, NOW + 11)
CORRUPT_MESSAGE, STORAGE_ERROR = 2, 56
NAMES = ("offset", "timestamp", "timestampType", "key", "value", "headers", "sequence")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forged") / "whole.db"
    fill(path)
    return path


def polled(db: eosdb.Database, tp: TopicPartition, *, columns: bool = False, **config: Any) -> Any:
    found: list[Any] = []
    with db.consumer(auto_offset_reset="earliest", **config) as consumer:
        consumer.assign([tp])
        while True:
            if columns:
                got = consumer.poll_columns()
                if not len(got):
                    return found
                rows = got.to_arrow()
                times = rows["timestamp"].cast("int64").to_pylist()
                others = rows.drop_columns("timestamp").to_pylist()
                found += zip(times, others, strict=True)
            elif not (records := consumer.poll()):
                return found
            else:
                found += records


def scanned(db: eosdb.Database, tp: TopicPartition) -> Any:
    return [row for rows in db.admin.scan(tp, 0, END) for row in rows]


def in_arrow(db: eosdb.Database, tp: TopicPartition) -> Any:
    found = []
    for batch in db.scan_arrow(tp, 0, END, columns=NAMES):
        columns = [c.cast("int64") if c.type == "timestamp[us, tz=UTC]" else c for c in batch]
        found += list(zip(*(column.to_pylist() for column in columns), strict=True))
    return found


def fetched(db: eosdb.Database, tp: TopicPartition) -> Any:
    found: list[Any] = []
    while len(found) < END:
        result = db.broker.fetch(tp, len(found))
        found += result.records
        assert result.next_offset == len(found)
    return found


READERS: dict[str, Callable[[eosdb.Database, TopicPartition], Any]] = {
    "poll": polled,
    "poll, uncommitted": lambda db, tp: polled(db, tp, isolation_level="read_uncommitted"),
    "poll, unchecked": lambda db, tp: polled(db, tp, check_crcs=False),
    "to_arrow": lambda db, tp: polled(db, tp, columns=True),
    "to_arrow, unchecked": lambda db, tp: polled(db, tp, columns=True, check_crcs=False),
    "fetch": fetched,
    "scan": scanned,
    "scan_arrow": in_arrow,
    "times": lambda db, tp: [db.broker.list_offsets(tp, time) for time in TIMES],
    "lag": lambda db, tp: db.broker.lag(tp, 0),
}


def told(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except EosdbError as error:
        # SQLite finds that a text is none before Python does.
        is_text = "UTF-8" in str(error) or "utf-8" in str(error)
        return type(error), "no text" if is_text else str(error)


def asked_for_times(time: int, partitions: int) -> ListOffsetsRequest:
    topic = ListOffsetsRequest.ListOffsetsTopic
    asked = [
        topic.ListOffsetsPartition(partition_index=p, current_leader_epoch=-1, timestamp=time)
        for p in range(partitions)
    ]
    topics = [topic(name="t", partitions=asked)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics)


def over_the_wire(db: eosdb.Database, partitions: int) -> Iterator[Any]:
    """What a server says of all partitions at once, of which the last one is whole."""
    with db.serve() as server, Peer(server) as peer:
        for offset in (0, *sorted(ROWS.values())):
            answer = peer.ask(fetch(offset, partitions=range(partitions)), 12)
            for index, part in enumerate(answer.responses[0].partitions):
                assert part.error_code in (0, CORRUPT_MESSAGE, STORAGE_ERROR)
                yield part.error_code, [] if part.error_code else stored(answer, index)
            assert part.error_code == 0
            assert stored(answer, index)[-1].records[-1][0] == END - 1
        for time in TIMES:
            answer = peer.ask(asked_for_times(time, partitions), 7)
            for part in answer.topics[0].partitions:
                assert part.error_code in (0, CORRUPT_MESSAGE, STORAGE_ERROR)
                yield part.error_code, part.offset, part.timestamp
            assert part.error_code == 0


def everything(path: Path, partitions: int) -> list[Any]:
    """The same by both roads."""
    both = []
    for setting in ROADS:
        with (
            road(setting),
            eosdb.connect(path, clock=ManualClock(NOW), read_only=True) as db,
        ):
            found = [
                (name, partition, told(lambda: read(db, TopicPartition("t", partition))))  # noqa: B023
                for name, read in READERS.items()
                for partition in range(partitions)
            ]
            view = told(lambda: list(db.query("SELECT * FROM committed_records").rows))
            both.append([*found, view, *over_the_wire(db, partitions)])
    for one, other in zip(*both, strict=True):
        assert one == other
    return both[0]


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("column", COLUMNS)
def test_whatever_stands_in_a_record_it_is_true_or_an_error_and_others_are_read(
    filled: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, column: str, kind: str
) -> None:
    path = forged(filled, tmp_path / "x.db", column, ROWS[kind])
    with caplog.at_level(logging.WARNING, logger="eosdb"):
        found = everything(path, WHOLE + 1)
    assert not [record for record in caplog.records if record.exc_info]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) <= 2 * len(set(lines)), "each finding once, on either road"
    for name, partition, result in (one for one in found if one and isinstance(one[0], str)):
        if name.startswith(("poll", "fetch")) and isinstance(result, list):
            for record in result:
                assert type(record.offset) is type(record.timestamp) is int, (name, partition)
                assert record.timestamp >= 0
                assert record.timestamp_type in (0, 1)
                for cell in (record.key, record.value):
                    assert cell is None or type(cell) is bytes
                if name == "fetch":
                    assert -1 <= record.producer_epoch < 2**15
                    assert -1 <= record.sequence < 2**31
                    assert record.control in (None, "COMMIT", "ABORT")


HEADERS: tuple[Any, ...] = (
    "", "[]", "[[]]", '[["a"]]', '[["a",null]]', '[["a","QQ=="]]', '[["a","QQ="]]', '[["a","QQ"]]',
    '[["a","Q"]]', '[["a","QR=="]]', '[["a","QQ==="]]', '[["a","QUJD="]]', '[["a","===="]]',
    '[["a","Q Q="]]', '[["a","QQ==","x"]]', '[["a",1]]', '[[1,"QQ=="]]', '[[null,null]]', '{"aQ":1}',
    '["aQ"]', '[["a",null],]', '[["a",null]', '[["a",null]]]', '[["a",null]] ', '[["a", null]]', "]",
    "[", '"', "null", "0", '[["a\tb",null]]', '[["\\ud800",null]]', '[["\\u00fc",null]]',
    '[["ü",null]]', '[["a",""]]', '[["",""]]', '[["a",nul]]', '[["a","ü"]]', '[["a",null]]\0',
    '[["a\0b",null]]', '[[["a"],null]]', '[["a",true]]', '[["a",[1]]]', "[" * 100_000,
    b'[["\xff",null]]', b"\xff", b'[["a\xed\xa0\x80",null]]', b'[["a","\xff"]]', b'[\0["a",null]]',
)  # fmt: skip


def test_forged_headers_are_the_same_headers_or_the_same_error_by_both_roads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = tmp_path / "whole.db"
    fill(whole, partitions=len(HEADERS) + 1)
    path = forged(whole, tmp_path / "x.db", "headers", 1, [(text, True) for text in HEADERS])
    with caplog.at_level(logging.WARNING, logger="eosdb"):
        found = everything(path, len(HEADERS) + 1)
    assert not [record for record in caplog.records if record.exc_info]
    right = {'[["a",null]]', '[["a","QQ=="]]', '[["a","QR=="]]', '[["a",""]]', '[["",""]]', "[]"}
    right |= {'[["\\u00fc",null]]', '[["ü",null]]', '[["a", null]]', '[["a",null]] '}
    right |= {'[["a","QUJD="]]'}  # binascii takes it.
    for name, partition, result in (one for one in found if one and isinstance(one[0], str)):
        if name in ("poll", "scan_arrow") and partition < len(HEADERS):
            assert isinstance(result, list) == (HEADERS[partition] in right), HEADERS[partition]


BESIDE = {
    "partitions": ("log_start_offset", "last_stable_offset", "size_bytes", "max_timestamp_offset"),
    "transaction_index": ("producer_id", "first_offset", "last_stable_offset", "previous_offset"),
    "time_index": ("offset",),
}


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table in BESIDE for column in BESIDE[table]]
)
def test_a_text_of_digits_is_damage_in_what_else_a_fetch_reads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, table: str, column: str
) -> None:
    """The checksum of such a row is one of texts, so that it fits."""
    path = tmp_path / "x.db"
    fill(path, partitions=2)
    with eosdb.connect(path, clock=ManualClock(NOW), durability="off") as db:
        for i in range(3):  # More than the time index leaves between two entries.
            record = eosdb.Record(value=bytes(70_000), timestamp=NOW + 100 + i)
            db.broker.append(TopicPartition("t", 0), eosdb.RecordBatch([record]))
    with loosened(path, table) as file:
        changed = file.execute(
            f'UPDATE {table} SET "{column}" = CAST("{column}" AS TEXT) WHERE partition_id = '
            "(SELECT partition_id FROM partitions WHERE topic = 't' AND partition = 0)"
        )
        assert changed.rowcount > 0
    with caplog.at_level(logging.WARNING, logger="eosdb"):
        for setting in ROADS:
            with (
                road(setting),
                eosdb.connect(path, clock=ManualClock(NOW), read_only=True) as db,
            ):
                time = told(lambda: db.broker.list_offsets(TopicPartition("t", 0), NOW + 10**6))
                if table != "transaction_index":
                    assert time[0] is CorruptDatabaseError
                if table != "time_index":
                    assert (
                        told(lambda: polled(db, TopicPartition("t", 0)))[0] is CorruptDatabaseError
                    )
                assert len(polled(db, TopicPartition("t", 1))) == 3
                with db.serve() as server, Peer(server) as peer:
                    first, other = peer.ask(fetch(0, partitions=(0, 1)), 12).responses[0].partitions
                    assert first.error_code == (0 if table == "time_index" else STORAGE_ERROR)
                    assert other.error_code == 0
    assert not [record for record in caplog.records if record.exc_info]
