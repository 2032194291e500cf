"""What the accelerator reads and writes is what Python reads and writes: the same records, the same bytes
of the file, the same errors, whatever the records hold and whatever is damaged."""

from __future__ import annotations

import random
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.errors import EosdbError, InvalidTimestampError
from eosdb.log import batch, checksum
from eosdb.log.reading import block
from eosdb.maintenance.verify import RecordCheck
from eosdb.store.schema.row_checksum import row_checksum
from eosdb.store.writing.insertion import Insertion
from eosdb.system import birth
from tests.maintenance import everything
from tests.native.roads import ROADS, everything_read, outcome, road

TP = TopicPartition("t", 0)
TPS = [TP, TopicPartition("t", 1), TopicPartition("c", 0)]
CONTENTS = (None, b"", b"v", b"\x00\xff" * 40, bytes(range(256)) * 30)
HEADERS: tuple[Any, ...] = ((), (("h", b"1"),), (("ü", None), ("ü", b"\x00")))
TIMES = (5, 10**12, 2**46, 2**62)
"""From the third on the checksum has a remainder of them."""
TOP = 2**31 - 1
"""The last sequence; after it comes 0."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "empty.db"
    with at_one_place(), eosdb.connect(path, clock=ManualClock(10**12), durability="off") as db:
        db.admin.create_topic("t", config={"retention.ms": -1})
    return path


def at_one_place() -> AbstractContextManager[object]:
    """All files are at the same place, so that a copy of one is not taken for a copy."""
    return mock.patch.object(birth, "identity", return_value="here")


def batch_of(rng: random.Random) -> list[Record]:
    contents, headers = rng.choice((CONTENTS, CONTENTS[2:3])), rng.choice((HEADERS, HEADERS[:1]))
    times = rng.choice((TIMES, TIMES[:1]))
    return [
        Record(rng.choice(contents), rng.choice(contents), rng.choice(headers), rng.choice(times))
        for _ in range(rng.choice((1, 9, 40, 130)))
    ]


def write(path: Path, seed: int) -> list[Any]:
    """Transactions of which some are aborted, records outside of any, sequences up to their wrap. Returns
    the answers to those that are appended by hand."""
    rng, answers = random.Random(seed), []
    with eosdb.connect(path, clock=ManualClock(10**12), durability="off") as db:
        if rng.random() < 0.3:
            db.admin.alter_topic_config("t", {"message.timestamp.type": "LogAppendTime"})
        producer = db.producer(transactional_id="p")
        producer.init_transactions()
        who = db.broker.init_producer_id()
        sequence = rng.choice((0, TOP - 60))
        for _ in range(rng.randrange(1, 6)):
            records = batch_of(rng)
            kind = rng.choice(("plain", "sequenced", "commit", "abort"))
            if kind == "plain":
                answers.append(outcome(db.broker.append, TP, RecordBatch(records)))
            elif kind == "sequenced":
                batch = RecordBatch(records, *who, sequence)
                answers.append(outcome(db.broker.append, TP, batch))
                sequence = (sequence + len(records)) % (TOP + 1)
            else:
                producer.begin_transaction()
                for key, value, headers, time in records:
                    producer.send("t", value, key=key, headers=headers, timestamp=time)
                producer.flush()
                producer.commit_transaction() if kind == "commit" else producer.abort_transaction()
    return answers


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_the_same_bytes_are_written_and_the_same_records_read(
    empty: Path, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder, rng = tmp_path_factory.mktemp("both"), random.Random(seed)
    written, read = [], []
    for setting in ROADS:
        path = Path(shutil.copy(empty, folder / f"{setting}.db"))
        with road(setting), at_one_place():
            written.append((write(path, seed), path.read_bytes()))
    assert written[0] == written[1]
    limit = rng.choice((7, 3_000))
    config = {
        "isolation_level": rng.choice(("read_committed", "read_uncommitted")),
        "check_crcs": rng.random() < 0.8,
    }
    for setting in ROADS:
        with road(setting), eosdb.connect(folder / "1.db", read_only=True) as db:
            read.append(everything_read(db, [TP], limit, **config))
    assert read[0] == read[1]
    shutil.rmtree(folder)


@pytest.mark.parametrize("setting", ROADS)
def test_a_batch_across_the_wrap_of_the_sequences_is_stored_by_python(
    db_path: Path, setting: str
) -> None:
    with road(setting), eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("t")
        who = db.broker.init_producer_id()
        db.broker.append(TP, RecordBatch([Record(value=b"v")] * 20, *who, TOP - 9))
        rows = db.query('SELECT sequence FROM all_records ORDER BY "offset"').rows
        assert [sequence for (sequence,) in rows] == [*range(TOP - 9, TOP + 1), *range(10)]


@pytest.mark.parametrize("column", ["offset", "sequence"])
def test_a_row_that_stands_in_the_way_is_the_same_error_and_nothing_is_written(
    tmp_path: Path, column: str
) -> None:
    told = []
    for setting in ROADS:
        path = tmp_path / f"{column}{setting}.db"
        with road(setting), eosdb.connect(path, durability="off") as db:
            db.admin.create_topic("t")
            who = db.broker.init_producer_id()
            db.broker.append(TP, RecordBatch([Record(value=b"v")] * 10, *who, 0))
            db.broker.append(TP, RecordBatch([Record(value=b"v")] * 10))
            # The eighth of the next ones would be on its place.
            raw = everything.raw(path)
            raw.execute(
                'UPDATE records SET "offset" = 27 WHERE "offset" = 19'
                if column == "offset"
                else f"UPDATE records SET producer_id = {who[0]}, producer_epoch = {who[1]}, "
                'sequence = 17 WHERE "offset" = 19'
            )
            raw.close()
            batch = RecordBatch([Record(value=b"new")] * 10, *who, 10)
            told.append(outcome(db.broker.append, TP, batch))
            ((count,),) = db.query("SELECT count(*) FROM all_records WHERE value = x'6E6577'").rows
            assert count == 0
    assert isinstance(told[0], tuple)
    assert told[0] == told[1]


def test_an_ordinary_log_is_read_by_the_accelerator_alone(db_path: Path) -> None:
    """With transactions, aborted ones too, keys and headers."""
    with road("1"), eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="p")
        producer.init_transactions()
        for i in range(30):
            producer.begin_transaction()
            producer.send("t", b"v%d" % i, key=b"k", headers=[("h", b"%d" % i)])
            producer.flush()
            producer.commit_transaction() if i % 3 else producer.abort_transaction()
        with mock.patch.object(block, "_by_row", side_effect=AssertionError):
            consumer = db.consumer(auto_offset_reset="earliest")
            consumer.assign([TP])
            found = consumer.poll()
    assert [record.value for record in found] == [b"v%d" % i for i in range(30) if i % 3]


@pytest.mark.slow
def test_whatever_is_damaged_both_say_the_same(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    everything.fill(whole, ManualClock(1_700_000_000_000))
    with eosdb.connect(whole) as db:
        db.producer(transactional_id="open").init_transactions()  # Ends what was left open.
    data, rng, errors = whole.read_bytes(), random.Random(11), 0
    for number in range(150):
        path = tmp_path / f"{number}.db"
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        told = []
        for setting in ROADS:
            with road(setting):
                try:
                    with eosdb.connect(path, read_only=True) as db:
                        told.append(everything_read(db, TPS, 500))
                except EosdbError as error:
                    told.append([type(error), str(error)])
        assert told[0] == told[1], number
        errors += any(isinstance(one, tuple | type) for one in told[0])
    assert errors > 5


CHANGES = (
    "position = position + 1", "producer_id = producer_id + 1", "producer_epoch = producer_epoch + 100",
    "sequence = sequence + 100", "sequence_round = sequence_round + 1", "timestamp = timestamp + 1",
    "is_transactional = 1 - is_transactional", "value = x'00'", "key = x'00'", "headers = '[]'",
    "control = 'COMMIT', key = NULL, value = NULL, headers = NULL", "checksum = 0",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    everything.fill(path, ManualClock(1_700_000_000_000))
    with eosdb.connect(path) as db:
        db.producer(transactional_id="open").init_transactions()  # Ends what was left open.
    return path


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_verify_says_the_same_of_a_record_that_fits_its_own_checksum(
    whole: Path, tmp_path: Path, change: str
) -> None:
    """What its event says of it is compared, too."""
    path = Path(shutil.copy(whole, tmp_path / "altered.db"))
    where = (
        "WHERE rowid IN (SELECT rowid FROM records WHERE control IS NULL AND sequence >= 0 LIMIT 5)"
    )
    raw = everything.raw(path)
    raw.execute(f"UPDATE records SET {change} {where}")
    for rowid, *cells in raw.execute(
        f"SELECT rowid, key, value, headers, control FROM records {where}"
    ):
        (content,) = checksum.content_sums(*([cell] for cell in cells[:3]))
        content = checksum.MARKER if cells[3] else content
        terms = {name: f'"{name}"' for name in checksum._NAMES} | {"checksum": str(content)}
        if change != "checksum = 0":
            raw.execute(
                f"UPDATE records SET checksum = {checksum.stored(terms)} WHERE rowid = ?", (rowid,)
            )
    raw.close()
    told = []
    for setting in ROADS:
        with road(setting), eosdb.connect(path, read_only=True) as db:
            told.append(db.verify().problems)
    assert told[0] == told[1]
    assert any(problem.startswith("records: ") for problem in told[0])


@pytest.mark.slow
def test_ordinary_batches_are_verified_by_the_accelerator_alone(db_path: Path) -> None:
    with road("1"), eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("t")
        with db.producer(transactional_id="p") as producer:
            producer.init_transactions()
            for i in range(30):
                with producer.transaction():
                    producer.send(
                        "t", b"v%d" % i, key=b"k", headers=[("h", b"%d" % i)], timestamp=i
                    )
                    producer.send_many("t", [b"%d" % i] * 1_000)
        db.broker.append(TP, RecordBatch([Record(value=b"of no producer")] * 20))
        with mock.patch.object(RecordCheck, "_range", autospec=True) as by_row:
            db.verify()
        assert not by_row.call_args_list


cells = st.one_of(
    st.none(), st.integers(), st.integers(-(2**63), 2**63), st.booleans(), st.floats(),
    st.text(st.characters()),
)  # fmt: skip


@given(st.lists(cells, min_size=1))
def test_a_row_has_one_checksum(columns: list[object]) -> None:
    sums = set()
    for setting in ROADS:
        with road(setting):
            sums.add(row_checksum(*columns))
    assert len(sums) == 1


@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=20), st.booleans())
def test_a_row_is_bound_in_one_way(rows: list[tuple[object, ...]], is_checked: bool) -> None:
    insertion = Insertion.plain("t", ("a", "b", "checksum") if is_checked else ("a", "b"))
    bound = []
    for setting in ROADS:
        with road(setting):
            bound.append([*insertion.statements(rows)])
    assert bound[0] == bound[1]


parts = st.none() | st.binary(max_size=40)
stamps = st.none() | st.integers(5, 9) | st.integers(-1, 2**63) | st.booleans()


@given(st.lists(st.builds(Record, parts, parts, st.just(()), stamps), min_size=1, max_size=30))
def test_a_batch_is_prepared_in_one_way(records: list[Record]) -> None:
    prepared: list[object] = []
    for setting in ROADS:
        with road(setting):
            try:
                prepared.append(batch.prepare(RecordBatch(records), now_ms=7))
            except InvalidTimestampError as error:
                prepared.append((str(error), error.records))
    assert prepared[0] == prepared[1]


@pytest.mark.both_roads
def test_the_checksum_of_a_row_is_the_crc_of_its_texts() -> None:
    text = "-9223372036854775808\x1f0\x1fNone\x1fü\x1f9223372036854775807\x1f"
    assert row_checksum(-(2**63), 0, None, "ü", 2**63 - 1, "") == crc32(text.encode())
