"""Where compaction has removed records, `verify` still knows which ones are left, to the last."""

from __future__ import annotations

import sqlite3
from itertools import permutations
from pathlib import Path

import pytest

import eosdb
from eosdb import BrokerConfig, ManualClock, Record, RecordBatch, TopicPartition
from eosdb.log import checksum
from tests.maintenance.everything import changing

pytestmark = pytest.mark.slow

TP = TopicPartition("c", 0)
KEYS = 4


def fill(path: Path, clock: ManualClock, policy: str = "compact") -> None:
    """Three versions of each key, of which the newest is left, and one that is behind the clean offset."""
    with opened(path, clock) as db:
        db.admin.create_topic("c", config={"cleanup.policy": policy, "delete.retention.ms": 1})
        for version in range(3):
            now = clock.time_ms()
            records = [Record(b"k%d" % key, b"same", timestamp=now) for key in range(KEYS)]
            db.broker.append(TP, RecordBatch(records))
            clock.advance(version)
        assert db.housekeeping().compacted_records == 2 * KEYS
        db.broker.append(TP, RecordBatch([Record(b"k0", b"behind", timestamp=now)]))
        assert db.verify().ok


def opened(path: Path, clock: ManualClock, **settings: int) -> eosdb.Database:
    config = BrokerConfig(log_retention_check_interval_ms=10**12, **settings)  # type: ignore[arg-type]
    return eosdb.connect(path, clock=clock, durability="off", config=config)


def last(db: eosdb.Database) -> int:
    ((position,),) = db.query("SELECT max(position) FROM journal").rows
    return int(position)


def problems(path: Path) -> tuple[str, ...]:
    with eosdb.connect(path, read_only=True) as db:
        return db.verify().problems


@pytest.fixture
def path(db_path: Path, clock: ManualClock) -> Path:
    fill(db_path, clock)
    return db_path


def put(connection: sqlite3.Connection, offset: int, like: int) -> None:
    """Make the record at `offset` out of another one, with the checksum that it must have."""
    connection.execute(
        "INSERT INTO records SELECT partition_id, ?, timestamp, timestamp_type, key, value, headers, "
        "producer_id, producer_epoch, sequence, sequence_round, is_transactional, control, position, "
        'checksum - "offset" + ? FROM records WHERE "offset" = ?',
        (offset, offset, like),
    )


def test_a_record_that_compaction_has_left_and_is_gone(path: Path) -> None:
    """Its triggers allow it: `DELETE` below the clean offset is what compaction does."""
    with sqlite3.connect(path, isolation_level=None) as connection:
        gone = connection.execute('DELETE FROM records WHERE "offset" < 12').rowcount
    assert gone == KEYS
    sizes, sums = problems(path)
    assert sizes == "records: c-0: 8 bytes are stored, expected 32"
    assert sums.startswith(
        "records: c-0 offsets 0 to 11: the records left by compaction have the sum 0, expected"
    )


def test_a_record_that_compaction_has_removed_and_is_there_again(path: Path) -> None:
    with changing(path) as connection:
        put(connection, 7, like=8)
    assert any(
        "the records left by compaction have the sum" in problem for problem in problems(path)
    )


def test_records_of_one_size_and_content_exchanged_for_others(path: Path) -> None:
    """Their checksums are what they must be."""
    exchanged: list[tuple[set[int], set[int]]] = [({9}, {7}), ({8, 11}, {9, 6}), ({8}, {5})]
    for there, wanted in exchanged:
        with changing(path) as connection:
            connection.execute("BEGIN")
            for offset in wanted:
                put(connection, offset, like=10)
            for offset in there:
                connection.execute('DELETE FROM records WHERE "offset" = ?', (offset,))
            connection.execute("COMMIT")
        assert any("the records left by compaction" in problem for problem in problems(path)), there


def test_the_sum_is_of_sets_and_no_two_sets_have_the_same() -> None:
    records = [(offset, 10_000 + offset) for offset in range(12)]
    sums = {
        checksum.of(records[i] for i in range(12) if chosen >> i & 1) for chosen in range(1 << 12)
    }
    assert len(sums) == 1 << 12
    assert len({checksum.of(order) for order in permutations(records[:5])}) == 1
    assert checksum.of([(0, 0)]) == 0
    assert checksum.of([(1, 0)]) == 0xE220A8397B1DCDAF - 2**64, "SplitMix64's first number"


def test_what_was_missing_stays_missing_when_compaction_passes_again(
    path: Path, clock: ManualClock
) -> None:
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute('DELETE FROM records WHERE "offset" = 9')
    clock.advance(10)
    with opened(path, clock, history_retention_ms=0) as db:
        assert db.housekeeping().compacted_records == 1
        for _ in range(2):
            db.producer().send("c", b"more", key=b"k3").result()
            clock.advance(10)
            db.housekeeping()
    assert any("the records left by compaction" in problem for problem in problems(path))


@pytest.mark.parametrize("lost", [False, True])
def test_a_log_start_among_compacted_records_leaves_the_sum_of_the_others(
    db_path: Path, clock: ManualClock, lost: bool
) -> None:
    fill(db_path, clock, "compact,delete")
    if lost:
        with sqlite3.connect(db_path, isolation_level=None) as connection:
            connection.execute('DELETE FROM records WHERE "offset" = 8')
    with opened(db_path, clock) as db:
        db.broker.delete_records(TP, 10)
        assert db.verify().ok != lost
        db.broker.delete_records(TP, 13)
        assert db.verify().ok != lost


@pytest.mark.parametrize("lost", [False, True])
def test_a_restored_file_admits_what_compaction_took_since_and_nothing_else(
    path: Path, clock: ManualClock, tmp_path: Path, lost: bool
) -> None:
    with opened(path, clock) as db:
        position = last(db)
        for key in range(1, KEYS):
            clock.advance(10)
            value = None if key == 2 else b"later"
            db.broker.append(
                TP, RecordBatch([Record(b"k%d" % key, value, timestamp=clock.time_ms())])
            )
            db.housekeeping()
            assert db.verify().ok
    if lost:
        with sqlite3.connect(path, isolation_level=None) as connection:
            connection.execute('DELETE FROM records WHERE "offset" = 12')
    with opened(path, clock) as db:
        for back in range(position - 3, last(db) + 1):
            target = tmp_path / f"{back}.db"
            db.restore_to(target, back)
            assert problems(target) == () or lost
            cut_before = back < position
            assert cut_before or bool(problems(target)) == lost
