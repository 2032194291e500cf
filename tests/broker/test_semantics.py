"""What the broker answers, case by case: the points where readers of Kafka's protocol would ask."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import (
    BrokerConfig,
    ManualClock,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    ProducerIdAndEpoch,
    Record,
    RecordBatch,
    TopicPartition,
)  # fmt: skip
from tests.broker.conftest import TP, Send
from tests.readers import committed_values

TOP = 2**31 - 1
LEVEL = "read_committed"


def begin(db: eosdb.Database, name: str = "a", timeout_ms: int = 60_000) -> ProducerIdAndEpoch:
    who = db.broker.init_producer_id(name, timeout_ms)
    db.broker.add_partitions_to_txn(name, *who, [TP])
    return who


def state(db: eosdb.Database, name: str = "a") -> str:
    return db.broker.describe_transactions([name])[name].state


# -- the log's producer state ----------------------------------------------------------------------


def test_a_repeat_after_the_state_expired_is_still_known(
    db: eosdb.Database, send: Send, clock: ManualClock
) -> None:
    who = db.broker.init_producer_id()
    send(b"a", b"b", who=who, sequence=0)
    clock.advance(86_400_000)
    db.housekeeping()
    assert db.broker.describe_producers(TP) == []
    assert send(b"a", b"b", who=who, sequence=0).duplicate
    for sequence, values in ((0, [b"a"]), (1, [b"b", b"c"]), (1, [b"b"])):
        with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
            send(*values, who=who, sequence=sequence)
    assert send(b"c", who=who, sequence=2).base_offset == 2


def test_a_write_finds_the_expired_producer_by_itself(
    db: eosdb.Database, send: Send, clock: ManualClock
) -> None:
    who = db.broker.init_producer_id()
    send(b"a", who=who, sequence=0)
    clock.advance(86_399_999)
    with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
        send(b"x", who=who, sequence=9)
    clock.advance(1)
    assert send(b"x", who=who, sequence=9).base_offset == 1


def test_old_record_timestamps_do_not_expire_a_producer(
    db: eosdb.Database, send: Send, clock: ManualClock
) -> None:
    who = db.broker.init_producer_id()
    send(b"a", who=who, sequence=0, timestamp=5)
    clock.advance(1_000)
    db.housekeeping()
    (known,) = db.broker.describe_producers(TP)
    assert (known.last_timestamp, known.last_sequence) == (5, 0)


def test_sequences_wrap_while_the_rows_of_the_round_before_are_there(
    db: eosdb.Database, send: Send
) -> None:
    who = db.broker.init_producer_id()
    send(b"old 0", b"old 1", who=who, sequence=0)
    db.broker.write_txn_markers(who.producer_id, 1, True, [TP], 0)
    newer = ProducerIdAndEpoch(who.producer_id, 1)
    send(b"first", who=newer, sequence=0)
    other = db.broker.init_producer_id()
    send(b"a", b"b", who=other, sequence=TOP - 1)
    send(b"c", b"d", who=other, sequence=0)
    assert send(b"a", b"b", who=other, sequence=TOP - 1).base_offset == 4
    assert send(b"c", b"d", who=other, sequence=0).base_offset == 6
    assert send(b"e", who=other, sequence=2).base_offset == 8
    assert db.verify().ok


def test_what_lies_below_everything_remembered_and_is_gone_is_a_duplicate(
    db: eosdb.Database, send: Send
) -> None:
    who = db.broker.init_producer_id()
    for i in range(8):
        send(b"v", who=who, sequence=i)
    db.broker.delete_records(TP, 8)
    with pytest.raises(eosdb.DuplicateSequenceNumberError):
        send(b"v", who=who, sequence=1)
    assert send(b"v", who=who, sequence=4).duplicate, "one of the five, though its row is gone"
    assert send(b"v", who=who, sequence=4).base_offset == 4


def test_a_new_producer_may_start_anywhere_but_after_a_marker_at_zero(
    db: eosdb.Database, send: Send
) -> None:
    who = db.broker.init_producer_id()
    send(b"v", who=who, sequence=7)
    other = db.broker.init_producer_id()
    db.broker.write_txn_markers(*other, True, [TP], 0)
    with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
        send(b"v", who=other, sequence=1)
    assert not send(b"v", who=other, sequence=0).duplicate


def test_a_plain_batch_inside_a_transaction_is_refused(db: eosdb.Database, send: Send) -> None:
    who = begin(db)
    send(b"v", who=who, sequence=0, transactional_id="a")
    with pytest.raises(eosdb.InvalidTxnStateError):
        send(b"v", who=who, sequence=1)


# -- verification ----------------------------------------------------------------------------------


def test_a_transactional_append_is_verified_before_repeats_are_looked_for(
    db: eosdb.Database, send: Send
) -> None:
    who = begin(db)
    send(b"v", who=who, sequence=0, transactional_id="a")
    assert send(b"v", who=who, sequence=0, transactional_id="a").duplicate
    db.broker.end_txn("a", *who, True)
    with pytest.raises(eosdb.InvalidTxnStateError):
        send(b"v", who=who, sequence=0, transactional_id="a")
    db.broker.add_partitions_to_txn("a", *who, [TP])
    assert send(b"v", who=who, sequence=0, transactional_id="a").duplicate


def test_each_way_in_which_verification_fails(db: eosdb.Database, send: Send) -> None:
    who = begin(db)
    stranger = db.broker.init_producer_id()
    for name, identity, error in (
        ("nobody", who, eosdb.InvalidProducerIdMappingError),
        ("a", stranger, eosdb.InvalidProducerIdMappingError),
        ("a", (who.producer_id, 5), eosdb.InvalidProducerEpochError),
    ):
        with pytest.raises(error):
            send(b"v", who=identity, sequence=0, transactional_id=name)
        with pytest.raises(error):
            db.broker.txn_offset_commit(name, "g", *identity, {TP: OffsetAndMetadata(1)})
    with pytest.raises(eosdb.InvalidTxnStateError):
        db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(1)})


def test_one_request_carries_one_transactional_producer(db: eosdb.Database) -> None:
    db.admin.create_topic("u")
    a, b = begin(db, "a"), db.broker.init_producer_id("b")
    batches = {
        TP: RecordBatch([Record()], *a, 0, True),
        TopicPartition("u", 0): RecordBatch([Record()], *b, 0, True),
    }
    errors = {
        r.error.name for r in db.broker.produce(batches, transactional_id="a").values() if r.error
    }
    assert errors == {"INVALID_PRODUCER_ID_MAPPING"}


def test_names_of_a_stale_epoch_by_request(db: eosdb.Database, send: Send) -> None:
    old = begin(db)
    send(b"v", who=old, sequence=0, transactional_id="a")
    with pytest.raises(eosdb.ConcurrentTransactionsError):
        db.broker.init_producer_id("a")
    db.broker.init_producer_id("a")
    for call in (
        lambda: db.broker.add_partitions_to_txn("a", *old, [TP]),
        lambda: db.broker.add_offsets_to_txn("a", *old, "g"),
        lambda: db.broker.end_txn("a", *old, True),
    ):
        with pytest.raises(eosdb.ProducerFencedError):
            call()
    for call in (
        lambda: send(b"v", who=old, sequence=1, transactional_id="a"),
        lambda: db.broker.txn_offset_commit("a", "g", *old, {TP: OffsetAndMetadata(1)}),
        lambda: db.broker.write_txn_markers(*old, True, [TP], 100),
    ):
        with pytest.raises(eosdb.InvalidProducerEpochError):
            call()


# -- init_producer_id ------------------------------------------------------------------------------


def test_fencing_an_open_transaction_costs_two_epochs(db: eosdb.Database, send: Send) -> None:
    who = begin(db)
    send(b"v", who=who, sequence=0, transactional_id="a")
    with pytest.raises(eosdb.ConcurrentTransactionsError):
        db.broker.init_producer_id("a")
    assert state(db) == "CompleteAbort"
    assert db.broker.init_producer_id("a") == (who.producer_id, who.producer_epoch + 2)


def test_an_outdated_producer_cannot_abort_its_successors_transaction(db: eosdb.Database) -> None:
    old = db.broker.init_producer_id("a")
    begin(db)
    with pytest.raises(eosdb.ProducerFencedError):
        db.broker.init_producer_id("a", 60_000, *old)
    assert state(db) == "Ongoing"


def test_a_producer_that_asks_again_for_its_own_epoch(db: eosdb.Database) -> None:
    who = db.broker.init_producer_id("a")
    bumped = db.broker.init_producer_id("a", 60_000, *who)
    assert bumped == (who.producer_id, 1)
    assert db.broker.init_producer_id("a", 60_000, *who) == bumped, "the answer was lost"
    with pytest.raises(eosdb.ProducerFencedError):
        db.broker.init_producer_id("a", 60_000, who.producer_id, 7)
    with pytest.raises(eosdb.ProducerFencedError):
        db.broker.init_producer_id("a", 60_000, who.producer_id + 1, 0)


def test_the_last_epoch_is_followed_by_a_new_producer_id(db: eosdb.Database) -> None:
    who = db.broker.init_producer_id("a")
    for _ in range(32_766):
        who = db.broker.init_producer_id("a")
    assert who.producer_epoch == 32_766
    fresh = db.broker.init_producer_id("a", 60_000, *who)
    assert (fresh.producer_id != who.producer_id, fresh.producer_epoch) == (True, 0)
    assert db.broker.init_producer_id("a", 60_000, *who) == fresh, "the answer was lost"
    with pytest.raises(eosdb.ProducerFencedError):
        db.broker.init_producer_id("a", 60_000, who.producer_id, 32_765)


def test_producer_ids_end_with_a_clear_error(db: eosdb.Database, db_path: Path) -> None:
    from eosdb.errors import ProducerIdsExhaustedError
    from eosdb.store.counters import set_counter

    db._store.write(lambda unit: set_counter(unit, "next_producer_id", 2**63 - 1_001))
    assert db.broker.init_producer_id().producer_id == 2**63 - 1_001
    db._store.write(lambda unit: set_counter(unit, "next_producer_id", 2**63 - 999))
    with (
        eosdb.connect(db_path) as other,
        pytest.raises(ProducerIdsExhaustedError, match="start a new"),
    ):
        other.broker.init_producer_id()


# -- end_txn, time-outs ----------------------------------------------------------------------------


def test_a_commit_after_the_deadline_is_fenced_at_the_deadline_it_is_not(
    db: eosdb.Database, clock: ManualClock
) -> None:
    who = begin(db, timeout_ms=1_000)
    clock.advance(1_000)
    db.broker.end_txn("a", *who, True)
    who = begin(db, "b", timeout_ms=1_000)
    clock.advance(1_001)
    with pytest.raises(eosdb.ProducerFencedError):
        db.broker.end_txn("b", *who, True)
    assert state(db, "b") == "CompleteAbort"
    with pytest.raises(eosdb.ProducerFencedError):
        db.broker.init_producer_id("b", 1_000, *who)


def test_a_transactions_time_begins_with_its_first_partition(
    db: eosdb.Database, clock: ManualClock
) -> None:
    who = db.broker.init_producer_id("a", 1_000)
    clock.advance(5_000)
    db.broker.add_partitions_to_txn("a", *who, [TP])
    clock.advance(900)
    db.broker.add_partitions_to_txn("a", *who, [TP])
    db.broker.add_offsets_to_txn("a", *who, "g")
    clock.advance(101)
    db.housekeeping()
    assert state(db) == "CompleteAbort"


def test_reads_do_not_run_housekeeping(db: eosdb.Database, clock: ManualClock) -> None:
    begin(db, timeout_ms=1_000)
    clock.advance(5_000)
    db.broker.fetch(TP, 0)
    assert state(db) == "Ongoing"


def test_transactional_ids_expire_unless_they_are_open(
    db: eosdb.Database, clock: ManualClock
) -> None:
    db.broker.init_producer_id("idle")
    week = db.config.transactional_id_expiration_ms
    clock.advance(week - 1)
    db.housekeeping()
    assert [t.transactional_id for t in db.broker.list_transactions()] == ["idle"]
    clock.advance(1)
    assert db.housekeeping().expired_transactional_ids == 1
    with pytest.raises(eosdb.InvalidProducerIdMappingError):
        db.broker.end_txn("idle", 0, 0, True)


def test_markers_refused_by_a_log_that_has_seen_newer_ones(db: eosdb.Database, send: Send) -> None:
    who = begin(db)
    send(b"v", who=who, sequence=0, transactional_id="a")
    db.broker.write_txn_markers(*who, False, [TP], coordinator_epoch=1_000)
    with pytest.raises(eosdb.TransactionCoordinatorFencedError):
        db.broker.end_txn("a", *who, True)
    assert state(db) == "PrepareCommit"
    assert db.producer().send("t", b"others go on").result().offset == 2
    with pytest.raises(eosdb.ConcurrentTransactionsError):
        db.broker.init_producer_id("a")
    with pytest.raises(eosdb.ConcurrentTransactionsError):
        db.broker.end_txn("a", *who, True)
    with pytest.raises(eosdb.InvalidTxnStateError):
        db.broker.end_txn("a", *who, False)
    assert db.verify().ok


def test_a_partition_that_saw_a_newer_epoch_is_left_out(db: eosdb.Database) -> None:
    db.admin.create_topic("u")
    u = TopicPartition("u", 0)
    who = begin(db)
    db.broker.add_partitions_to_txn("a", *who, [u])
    db.broker.write_txn_markers(who.producer_id, 9, True, [TP], 0)
    db.broker.end_txn("a", *who, True)
    assert state(db) == "CompleteCommit"
    assert (db.broker.offsets(TP).log_end_offset, db.broker.offsets(u).log_end_offset) == (1, 1)


def test_markers_over_several_partitions_are_all_or_nothing(db: eosdb.Database) -> None:
    db.admin.create_topic("u")
    u = TopicPartition("u", 0)
    db.broker.write_txn_markers(7, 3, True, [TP], 5)
    for producer_epoch, coordinator_epoch, error in (
        (2, 5, eosdb.InvalidProducerEpochError),
        (2, 4, eosdb.InvalidProducerEpochError),
        (3, 4, eosdb.TransactionCoordinatorFencedError),
    ):
        with pytest.raises(error):
            db.broker.write_txn_markers(7, producer_epoch, True, [u, TP], coordinator_epoch)
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        db.broker.write_txn_markers(7, 3, True, [u, TopicPartition("nope", 0)], 5)
    assert db.broker.offsets(u).log_end_offset == 0
    db.broker.write_txn_markers(7, 3, False, [u, TP], 5)
    assert db.broker.fetch(TP, 0, isolation_level=LEVEL).aborted_transactions == []


# -- groups' offsets -------------------------------------------------------------------------------


def test_the_later_commit_request_wins(db: eosdb.Database) -> None:
    who = db.broker.init_producer_id("a")
    for first, offset in ((True, 5), (False, 9)):
        db.broker.add_offsets_to_txn("a", *who, "g")
        if first:
            db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(1)})
        db.broker.offset_commit("g", {TP: OffsetAndMetadata(5)})
        if not first:
            db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(9)})
        db.broker.end_txn("a", *who, True)
        assert db.broker.offset_fetch("g")[TP].offset == offset


def test_deleting_an_offset_takes_the_pending_one_too(db: eosdb.Database) -> None:
    who = db.broker.init_producer_id("a")
    db.broker.add_offsets_to_txn("a", *who, "g")
    db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(1)})
    db.broker.offset_delete("g", [TP])
    db.broker.end_txn("a", *who, True)
    assert db.broker.offset_fetch("g") == {}


def test_offset_commits_are_all_or_nothing(db: eosdb.Database) -> None:
    nowhere = TopicPartition("nope", 0)
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        db.broker.offset_commit("g", {TP: OffsetAndMetadata(1), nowhere: OffsetAndMetadata(1)})
    with pytest.raises(eosdb.OffsetMetadataTooLargeError):
        db.broker.offset_commit("g", {TP: OffsetAndMetadata(1, "m" * 4_097)})
    assert db.broker.offset_fetch("g") == {}


def test_generations_of_a_group_without_members(db: eosdb.Database) -> None:
    offsets = {TP: OffsetAndMetadata(1)}
    with pytest.raises(eosdb.GroupIdNotFoundError):
        db.broker.offset_commit("g", offsets, generation_id=0)
    who = db.broker.init_producer_id("a")
    db.broker.add_offsets_to_txn("a", *who, "g")
    with pytest.raises(eosdb.IllegalGenerationError):
        db.broker.txn_offset_commit("a", "g", *who, offsets, generation_id=0)
    db.broker.offset_commit("g", offsets, member_id="whoever")
    with pytest.raises(eosdb.UnknownMemberIdError):
        db.broker.offset_commit("g", offsets, generation_id=0)
    with pytest.raises(eosdb.UnknownMemberIdError):
        db.broker.txn_offset_commit("a", "g", *who, offsets, generation_id=0)


def test_an_empty_group_id_is_refused_inside_transactions_only(db: eosdb.Database) -> None:
    who = db.broker.init_producer_id("a")
    db.broker.offset_commit("", {TP: OffsetAndMetadata(1)})
    with pytest.raises(eosdb.InvalidGroupIdError):
        db.broker.txn_offset_commit("a", "", *who, {TP: OffsetAndMetadata(1)})


def test_require_stable_looks_at_what_was_asked(db: eosdb.Database) -> None:
    db.admin.create_topic("u")
    u = TopicPartition("u", 0)
    who = db.broker.init_producer_id("a")
    db.broker.add_offsets_to_txn("a", *who, "g")
    db.broker.txn_offset_commit("a", "g", *who, {TP: OffsetAndMetadata(1)})
    assert db.broker.offset_fetch("g", require_stable=True) == {}
    assert db.broker.offset_fetch("g", [u], require_stable=True) == {}
    for asked in ([TP], [u, TP]):
        with pytest.raises(eosdb.UnstableOffsetCommitError):
            db.broker.offset_fetch("g", asked, require_stable=True)


def test_offsets_expire_but_not_under_a_pending_one(db: eosdb.Database, clock: ManualClock) -> None:
    db.admin.create_topic("u", config={"retention.ms": -1})
    u = TopicPartition("u", 0)
    db.broker.offset_commit("g", {TP: OffsetAndMetadata(1), u: OffsetAndMetadata(1)})
    clock.advance(10_080 * 60_000 - 1)
    who = db.broker.init_producer_id("a")
    db.broker.add_offsets_to_txn("a", *who, "g")
    db.broker.txn_offset_commit("a", "g", *who, {u: OffsetAndMetadata(2)})
    clock.advance(1)
    assert db.housekeeping().expired_offsets == 1
    assert set(db.broker.offset_fetch("g")) == {u}


# -- fetch and list_offsets ------------------------------------------------------------------------


def test_fetch_at_and_beyond_the_edges(db: eosdb.Database, send: Send) -> None:
    send(b"0", b"1")
    who = begin(db)
    send(b"2", who=who, sequence=0, transactional_id="a")
    send(b"3")
    for offset in (2, 3, 4):
        fetched = db.broker.fetch(TP, offset, isolation_level=LEVEL)
        assert (list(fetched.records), fetched.next_offset) == ([], offset)
        assert (fetched.last_stable_offset, fetched.high_watermark) == (2, 4)
    for offset in (-1, 5):
        with pytest.raises(eosdb.OffsetOutOfRangeError):
            db.broker.fetch(TP, offset)


def test_the_aborted_list_is_what_touches_the_fetched_range(db: eosdb.Database, send: Send) -> None:
    ends = []
    for i in range(3):
        who = begin(db)
        send(b"%d" % i, who=who, sequence=0, transactional_id="a")
        db.broker.end_txn("a", *who, False)
        ends.append((2 * i, 2 * i + 1))

    def listed(offset: int, **limits: int) -> list[tuple[int, int]]:
        fetched = db.broker.fetch(TP, offset, isolation_level=LEVEL, **limits)
        return [(a.first_offset, a.last_offset) for a in fetched.aborted_transactions]

    assert listed(0) == ends
    assert listed(1) == ends
    assert listed(2) == ends[1:]
    assert listed(0, max_records=2) == ends[:1]
    assert listed(0, max_records=3) == ends[:2]
    assert db.broker.fetch(TP, 0).aborted_transactions == []
    entries = db.broker.fetch(TP, 0, isolation_level=LEVEL).aborted_transactions
    assert [entry.last_stable_offset for entry in entries] == [2, 4, 6]


def test_an_index_entry_remembers_the_oldest_other_open_transaction(
    db: eosdb.Database, send: Send
) -> None:
    slow, fast = begin(db, "slow"), begin(db, "fast")
    send(b"s", who=slow, sequence=0, transactional_id="slow")
    send(b"f", who=fast, sequence=0, transactional_id="fast")
    db.broker.end_txn("fast", *fast, False)
    db.broker.end_txn("slow", *slow, True)
    (entry,) = db.broker.fetch(TP, 0, isolation_level=LEVEL).aborted_transactions
    assert entry == (fast.producer_id, 1, 2, 0)
    assert committed_values(db, TP) == [b"s"]


def test_at_least_one_record_whatever_its_size(db: eosdb.Database, send: Send) -> None:
    send(b"x" * 1_000, b"y" * 10, b"z" * 10)
    assert [r.value for r in db.broker.fetch(TP, 0, max_bytes=1).records] == [b"x" * 1_000]
    assert len(db.broker.fetch(TP, 1, max_bytes=20).records) == 2
    assert len(db.broker.fetch(TP, 1, max_bytes=19).records) == 1


def test_offsets_by_time(db: eosdb.Database, send: Send, clock: ManualClock) -> None:
    for timestamp in (100, 300, 300, 200):
        send(b"v", timestamp=timestamp)
    assert db.broker.list_offsets(TP, 0) == OffsetAndTimestamp(0, 100)
    assert db.broker.list_offsets(TP, 101) == OffsetAndTimestamp(1, 300)
    assert db.broker.list_offsets(TP, 301) == OffsetAndTimestamp(-1, -1)
    assert db.broker.list_offsets(TP, eosdb.MAX_TIMESTAMP) == OffsetAndTimestamp(1, 300)
    assert db.broker.list_offsets(TP, eosdb.EARLIEST) == OffsetAndTimestamp(0, -1)
    assert db.broker.list_offsets(TP, eosdb.LATEST) == OffsetAndTimestamp(4, -1)
    db.broker.delete_records(TP, 3)
    assert db.broker.list_offsets(TP, 101) == OffsetAndTimestamp(3, 200)
    assert db.broker.list_offsets(TP, eosdb.MAX_TIMESTAMP) == OffsetAndTimestamp(3, 200)
    who = begin(db)
    send(b"v", who=who, sequence=0, transactional_id="a", timestamp=900)
    assert db.broker.list_offsets(TP, 900) == OffsetAndTimestamp(4, 900)
    for asked in (900, eosdb.MAX_TIMESTAMP):
        found = db.broker.list_offsets(TP, asked, isolation_level=LEVEL)
        assert found == OffsetAndTimestamp(-1, -1)
    db.broker.end_txn("a", *who, True)
    newest = db.broker.list_offsets(TP, eosdb.MAX_TIMESTAMP)
    assert newest == OffsetAndTimestamp(5, clock.time_ms()), "control records count"


def test_offsets_by_time_in_a_long_log(db: eosdb.Database) -> None:
    """The time index is sparse; what it says is never beyond the answer."""
    times = [(i * 7_919) % 5_000 + i for i in range(3_000)]
    for i in range(0, len(times), 20):
        records = [Record(value=b"x" * 300, timestamp=t) for t in times[i : i + 20]]
        db.broker.append(TP, RecordBatch(records))
    assert list(db.query("SELECT count(*) > 3 FROM time_index").rows) == [(1,)]
    for wanted in range(0, 9_000, 450):
        expected = next((i for i, t in enumerate(times) if t >= wanted), -1)
        assert db.broker.list_offsets(TP, wanted).offset == expected


def test_log_append_time(db: eosdb.Database, clock: ManualClock) -> None:
    db.admin.create_topic("log", config={"message.timestamp.type": "LogAppendTime"})
    tp = TopicPartition("log", 0)
    result = db.broker.append(tp, RecordBatch([Record(timestamp=5), Record()]))
    assert result.log_append_time == clock.time_ms()
    records = db.broker.fetch(tp, 0).records
    assert [(r.timestamp, r.timestamp_type) for r in records] == [(clock.time_ms(), 1)] * 2
    assert db.broker.append(TP, RecordBatch([Record(timestamp=5)])).log_append_time == -1


def test_delete_records(db: eosdb.Database, send: Send) -> None:
    who = begin(db)
    send(b"0", b"1", who=who, sequence=0, transactional_id="a")
    send(b"2", b"3")
    assert db.broker.delete_records(TP, 1) == 1
    assert db.broker.delete_records(TP, 0) == 1
    for beyond in (5, -2):
        with pytest.raises(eosdb.OffsetOutOfRangeError):
            db.broker.delete_records(TP, beyond)
    offsets = db.broker.offsets(TP)
    assert (offsets.first_unstable_offset, offsets.last_stable_offset) == (1, 1)
    assert db.broker.describe_producers(TP)[0].current_txn_start_offset == 0
    assert db.broker.delete_records(TP, -1) == 4
    db.broker.end_txn("a", *who, False)
    (entry,) = db.broker.fetch(TP, 4, isolation_level=LEVEL).aborted_transactions
    assert (entry.first_offset, entry.last_offset) == (0, 4)
    assert db.broker.offsets(TP).last_stable_offset == 5
    assert db.verify().ok


# -- administration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "partition"),
    [("", 0), ("a", 47), ("polygenelubricants", 0), ("Ab🙂", 35), ("my-txn", 8)],
)
def test_the_coordinator_of_a_key_is_javas_hash(
    db: eosdb.Database, key: str, partition: int
) -> None:
    h = 0
    data = key.encode("utf-16-be")
    for i in range(0, len(data), 2):
        h = (31 * h + int.from_bytes(data[i : i + 2], "big")) % 2**32
    signed = h - 2**32 if h >= 2**31 else h
    expected = 0 if signed == -(2**31) else abs(signed) % 50
    assert db.broker.find_coordinator(key).partition == expected
    assert db.broker.find_coordinator(key, "group").partition == expected
    assert key not in ("", "a", "polygenelubricants") or expected == partition


def test_the_coordinator_epoch_rises_with_each_opening_that_coordinates(
    db: eosdb.Database, db_path: Path
) -> None:
    assert db.broker.find_coordinator("a").epoch == 0
    db.broker.init_producer_id("a")
    assert db.broker.find_coordinator("a").epoch == 1
    with eosdb.connect(db_path, clock=db.clock) as other:
        assert other.broker.find_coordinator("a").epoch == 1
        other.broker.init_producer_id("a")
        assert db.broker.find_coordinator("a").epoch == 2


def test_listing_by_state_producer_and_duration(db: eosdb.Database, clock: ManualClock) -> None:
    a = begin(db, "a")
    clock.advance(500)
    begin(db, "b")
    db.broker.init_producer_id("idle")

    def ids(**filters: object) -> list[str]:
        return [t.transactional_id for t in db.broker.list_transactions(**filters)]  # type: ignore[arg-type]

    assert ids() == ["a", "b", "idle"]
    assert ids(states=["Ongoing", "Nonsense"]) == ["a", "b"]
    assert ids(states=["Nonsense"]) == []
    assert ids(producer_ids=[a.producer_id, 99]) == ["a"]
    assert ids(duration_ms=499) == ["a", "idle"]
    assert ids(duration_ms=500) == ["idle"], "longer than, not as long as"
    assert ids(states=["Ongoing"], duration_ms=100) == ["a"]


def test_a_finished_transaction_is_described_without_partitions(
    db: eosdb.Database, clock: ManualClock
) -> None:
    who = begin(db)
    db.broker.add_offsets_to_txn("a", *who, "g")
    described = db.broker.describe_transactions(["a"])["a"]
    assert described.partitions == {TP}, "consumer offsets are not listed"
    start = described.transaction_start_time_ms
    assert start == clock.time_ms()
    clock.advance(5)
    db.broker.end_txn("a", *who, True)
    described = db.broker.describe_transactions(["a"])["a"]
    assert (described.partitions, described.transaction_start_time_ms) == (frozenset(), start)
    db.broker.init_producer_id("a")
    assert db.broker.describe_transactions(["a"])["a"].transaction_start_time_ms == -1


def test_auto_creation_when_it_is_wanted(db_path: Path) -> None:
    config = BrokerConfig(auto_create_topics_enable=True, num_partitions=3)
    with eosdb.connect(db_path, config=config) as db:
        db.admin.list_topics()
        assert db.producer().send("fresh", b"v", partition=2).result().partition == 2
        db.broker.append(TopicPartition("raw", 0), RecordBatch([Record()]))
        assert db.admin.list_topics() == ["fresh", "raw"]
        with pytest.raises(eosdb.InvalidTopicExceptionError):
            db.producer().send("a b", b"v")
