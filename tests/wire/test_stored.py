"""What a Fetch carries: what is stored, as Kafka's broker sends it, so that clients of every kind leave out
what they always leave out, and come to the end.

Clients that go by records and control records (librdkafka) and those that go by batches must come to the
same place, so answers are judged by the former's rule, which is the stricter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eosdb
from eosdb import ManualClock, ProducerIdAndEpoch, Record, RecordBatch
from eosdb.model.values import IsolationLevel
from eosdb.wire.handlers import k01_fetch as fetch_handler
from tests.log.test_taken_back import STEPS, consumers_way, write
from tests.requests import TP
from tests.wire.peer import Batch, Peer, fetch, fetched, next_offset, part_of, split, stored

LEVELS: Final[dict[bool, IsolationLevel]] = {True: "read_committed", False: "read_uncommitted"}
LEAST = 61
"""The bytes of a batch without records."""


def transaction(
    db: eosdb.Database, name: str, *values: bytes, commit: bool = True
) -> ProducerIdAndEpoch:
    """Its producer id, and the epoch that it had."""
    who = db.broker.init_producer_id(name)
    for sequence, value in enumerate(values):
        batch = RecordBatch([Record(value=value)], *who, sequence, True)
        db.broker.append(TP, batch, transactional_id=name)
    db.broker.end_txn(name, *who, commit)
    return who


@pytest.mark.parametrize("committed", [True, False])
def test_producers_sequences_and_markers_are_sent(
    peer: Peer, db: eosdb.Database, committed: bool
) -> None:
    yes, no = transaction(db, "yes", b"a", b"b"), transaction(db, "no", b"c", commit=False)
    db.broker.append(TP, RecordBatch([Record(value=b"d"), Record(value=b"e")]))
    plain = db.broker.init_producer_id()
    db.broker.append(TP, RecordBatch([Record(value=b"f")], *plain, 0))
    answer = peer.ask(fetch(0, committed=committed), 12)
    # The marker of transaction version 2 has the epoch after that of its transaction.
    assert stored(answer) == [
        Batch(yes, 0, True, False, [(0, b"a"), (1, b"b")]),
        Batch((yes[0], yes[1] + 1), -1, True, True, [(2, b"COMMIT")]),
        Batch(no, 0, True, False, [(3, b"c")]),
        Batch((no[0], no[1] + 1), -1, True, True, [(4, b"ABORT")]),
        Batch((-1, -1), -1, False, False, [(5, b"d"), (6, b"e")]),
        Batch(plain, 0, False, False, [(7, b"f")]),
    ]
    listed = part_of(answer).aborted_transactions
    assert (
        listed is None
        if not committed
        else [(one.producer_id, one.first_offset) for one in listed] == [(no[0], 3)]
    )


def test_a_reader_in_the_middle_of_an_aborted_transaction_is_told_of_it(
    peer: Peer, db: eosdb.Database
) -> None:
    transaction(db, "no", b"a", b"b", b"c", commit=False)
    answer = peer.ask(fetch(1), 12)
    assert [batch.sequence for batch in stored(answer)] == [1, -1]
    assert fetched(answer) == []
    assert next_offset(answer) == 4


def test_a_gap_in_the_sequences_begins_another_batch(peer: Peer, db: eosdb.Database) -> None:
    """Where batches of two producers alternate, and where compaction has taken a record."""
    db.admin.alter_topic_config("t", {"cleanup.policy": "compact"})
    who, other = db.broker.init_producer_id(), db.broker.init_producer_id()
    for sequence, key in enumerate((b"k", b"l", b"k", b"k")):
        db.broker.append(TP, RecordBatch([Record(key=key, value=b"v")], *who, sequence))
        if sequence == 2:
            db.broker.append(TP, RecordBatch([Record(key=b"o", value=b"v")], *other, 0))
    db.housekeeping()
    found = stored(peer.ask(fetch(0), 12))
    assert [(batch.producer, batch.sequence, batch.records) for batch in found] == [
        (who, 1, [(1, b"v")]),
        (other, 0, [(3, b"v")]),
        (who, 3, [(4, b"v")]),
    ]


def test_times_that_the_log_gave_are_those_of_each_append(
    peer: Peer, db: eosdb.Database, clock: ManualClock
) -> None:
    from aiokafka.record.default_records import DefaultRecordBatch

    db.admin.alter_topic_config("t", {"message.timestamp.type": "LogAppendTime"})
    times = []
    for value in (b"a", b"b"):
        db.broker.append(TP, RecordBatch([Record(value=value)] * 2))
        times += [clock.time_ms()] * 2
        clock.advance(1_000)
    data = bytes(part_of(peer.ask(fetch(0), 12)).records)
    found = [record.timestamp for one in split(data) for record in DefaultRecordBatch(one)]
    assert found == times


def test_where_compaction_took_the_end_a_reader_comes_to_it(
    peer: Peer, db: eosdb.Database, clock: ManualClock
) -> None:
    config = {"cleanup.policy": "compact", "delete.retention.ms": "0"}
    db.admin.alter_topic_config("t", config)
    db.broker.append(
        TP, RecordBatch([Record(key=b"k", value=b"v"), Record(key=b"gone", value=None)])
    )
    for _ in range(3):
        clock.advance(100_000_000)
        db.housekeeping()
    assert db.broker.offsets(TP).high_watermark == 2
    answer = peer.ask(fetch(0), 12)
    assert fetched(answer) == [(0, b"v")]
    assert next_offset(answer) == 2
    assert next_offset(peer.ask(fetch(1), 12)) == 2
    assert not part_of(peer.ask(fetch(2), 12)).records


def test_only_the_first_partition_with_anything_may_exceed_the_size(
    peer: Peer, db: eosdb.Database
) -> None:
    db.admin.create_partitions("t", 4)
    for index in (1, 2, 3):
        db.broker.append(TP._replace(partition=index), RecordBatch([Record(value=b"x" * 500)] * 2))

    def offsets(all_bytes: int, max_bytes: int = 1 << 20) -> list[list[int]]:
        asked = fetch(0, partitions=range(4), all_bytes=all_bytes, max_bytes=max_bytes)
        answer = peer.ask(asked, 12)
        return [[offset for offset, _ in fetched(answer, index)] for index in range(4)]

    assert offsets(1) == [[], [0], [], []]
    assert offsets(1 << 20, max_bytes=1) == [[], [0], [], []]
    assert offsets(1_100 + LEAST) == [[], [0, 1], [], []]
    assert offsets(2_200 + LEAST) == [[], [0, 1], [0, 1], []]
    assert offsets(1 << 20) == [[], [0, 1], [0, 1], [0, 1]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stored")


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=STEPS,
    committed=st.booleans(),
    step=st.integers(1, 5),
    start=st.integers(0, 40),
    size=st.integers(1, 500),
)
def test_whatever_the_log_and_the_sizes_a_reader_gets_what_it_may_see_and_comes_to_the_end(
    folder: Path,
    steps: list[tuple[str, str, object]],
    committed: bool,
    step: int,
    start: int,
    size: int,
) -> None:
    path = folder / "x.db"
    path.unlink(missing_ok=True)
    clock = ManualClock()
    with (
        pytest.MonkeyPatch.context() as patch,
        eosdb.connect(path, clock=clock) as db,
        db.serve() as server,
        Peer(server) as peer,
    ):
        patch.setattr(fetch_handler, "_STEP", step)
        write(db, clock, steps)
        ends = db.broker.offsets(TP)
        end = ends.last_stable_offset if committed else ends.high_watermark
        at = start = min(ends.log_start_offset + start, end)
        found = []
        while at < end:
            answer = peer.ask(fetch(at, committed=committed, all_bytes=size), 12)
            batches = stored(answer)
            assert len(part_of(answer).records) <= size or [len(b.records) for b in batches] == [1]
            found += fetched(answer)
            at, before = next_offset(answer), at
            assert at > before
        assert at == end
        visible = consumers_way(db, LEVELS[committed], 100, 1 << 20)
        assert found == [(row[0], row[4]) for row in visible if int(str(row[0])) >= start]
