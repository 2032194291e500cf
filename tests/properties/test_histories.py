"""Random histories of producers, transactions, clock jumps and reopenings, driven at the request level.

Goal: whatever happens, what a reader may see is what a model of a few lines says, and the tables are what
the events give. Method: a Hypothesis state machine keeps, beside the real broker on a real file, a list of
what it appended and how each transaction ended; after every run the file is verified, rebuilt and read in
three ways that must agree.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition
from eosdb.maintenance import replay
from eosdb.store.writing import unit as unit_rows
from tests.readers import committed_values, dump_state
from tests.whole_events import check_views

pytestmark = pytest.mark.simulation

TOPIC = "t"
PARTITIONS = [TopicPartition(TOPIC, i) for i in range(2)]
TRANSACTIONAL_IDS = ["red", "green", "blue"]
TIMEOUT_MS = 10_000

partitions = st.sampled_from(PARTITIONS)
transactional_ids = st.sampled_from(TRANSACTIONAL_IDS)


@dataclass
class Appended:
    """What the model knows of one record."""

    value: bytes
    transaction: object | None = None


@dataclass
class Session:
    """A producer of the model: its identity, its next sequences, and the transaction it has open."""

    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    last_batches: dict[TopicPartition, tuple[int, list[bytes], int]] = field(default_factory=dict)
    transaction: object | None = None
    started_ms: int = 0
    added: set[TopicPartition] = field(default_factory=set)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="eosdb-histories-"))
        self.clock = eosdb.ManualClock(start_ms=1_700_000_000_000)
        self.log: dict[TopicPartition, list[Appended]] = {tp: [] for tp in PARTITIONS}
        self.outcomes: dict[object, bool] = {}
        self.sessions: dict[str, Session] = {}
        self.plain: Session | None = None
        self.offsets: dict[tuple[TopicPartition, str], int] = {}
        self.pending: dict[object, dict[tuple[TopicPartition, str], int]] = {}
        self.counter = 0
        self.db = self._open()

    def _open(self) -> eosdb.Database:
        return eosdb.connect(
            self.folder / "histories.db",
            clock=self.clock,
            durability="off",
            config=eosdb.BrokerConfig(transaction_version=1),
        )

    @initialize()
    def topic(self) -> None:
        self.db.admin.create_topic(TOPIC, partitions=len(PARTITIONS))

    # -- the model -----------------------------------------------------------------------------

    def _values(self, count: int) -> list[bytes]:
        self.counter += count
        return [b"%d" % n for n in range(self.counter - count, self.counter)]

    def _expire(self) -> None:
        """What a write finds due before it runs."""
        for session in self.sessions.values():
            if session.transaction and session.started_ms + TIMEOUT_MS < self.clock.time_ms():
                self._end(session, committed=False)
                session.epoch = -1

    def _end(self, session: Session, *, committed: bool) -> None:
        assert session.transaction is not None
        self.outcomes[session.transaction] = committed
        pending = self.pending.pop(session.transaction, {})
        if committed:
            self.offsets |= pending
        session.transaction = None
        session.added = set()

    def _expected(self, tp: TopicPartition) -> list[bytes]:
        """Committed values up to the first record of a transaction that is open."""
        found = []
        for record in self.log[tp]:
            if record.transaction is not None and record.transaction not in self.outcomes:
                break
            if record.transaction is None or self.outcomes[record.transaction]:
                found.append(record.value)
        return found

    # -- what happens --------------------------------------------------------------------------

    @rule(transactional_id=transactional_ids)
    def start_a_producer(self, transactional_id: str) -> None:
        self._expire()
        known = self.sessions.get(transactional_id)
        if known is not None and known.transaction is not None:
            try:
                self.db.broker.init_producer_id(transactional_id, TIMEOUT_MS)
                raise AssertionError("an open transaction must be fenced first")
            except eosdb.ConcurrentTransactionsError:
                self._end(known, committed=False)
        got = self.db.broker.init_producer_id(transactional_id, TIMEOUT_MS)
        if known is not None:
            assert (got.producer_id, got.producer_epoch) > (known.producer_id, known.epoch)
        self.sessions[transactional_id] = Session(got.producer_id, got.producer_epoch)

    @rule(transactional_id=transactional_ids, tp=partitions, count=st.integers(1, 4))
    def append_in_a_transaction(
        self, transactional_id: str, tp: TopicPartition, count: int
    ) -> None:
        self._expire()
        session = self.sessions.get(transactional_id)
        if session is None:
            return
        who = (session.producer_id, max(session.epoch, 0))
        try:
            if tp not in session.added:
                self.db.broker.add_partitions_to_txn(transactional_id, *who, [tp])
                if session.transaction is None:
                    session.transaction, session.started_ms = object(), self.clock.time_ms()
                session.added.add(tp)
            values = self._values(count)
            sequence = session.sequences.get(tp, 0)
            batch = RecordBatch([Record(value=v) for v in values], *who, sequence, True)
            result = self.db.broker.append(tp, batch, transactional_id=transactional_id)
        except eosdb.ApiError as error:
            assert session.epoch == -1, error
            assert error.name in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"), error
            return
        assert session.epoch >= 0
        assert not result.duplicate
        self.log[tp] += [Appended(value, session.transaction) for value in values]
        session.sequences[tp] = sequence + count
        session.last_batches[tp] = (sequence, values, result.base_offset)

    @rule(tp=partitions, count=st.integers(1, 4))
    def append_idempotently(self, tp: TopicPartition, count: int) -> None:
        self._expire()
        if self.plain is None:
            self.plain = Session(*self.db.broker.init_producer_id())
        values, sequence = self._values(count), self.plain.sequences.get(tp, 0)
        batch = RecordBatch(
            [Record(value=v) for v in values], self.plain.producer_id, self.plain.epoch, sequence
        )
        result = self.db.broker.append(tp, batch)
        self.log[tp] += [Appended(value) for value in values]
        self.plain.sequences[tp] = sequence + count
        self.plain.last_batches[tp] = (sequence, values, result.base_offset)

    @rule(tp=partitions)
    def send_the_last_batch_again(self, tp: TopicPartition) -> None:
        self._expire()
        if self.plain is None or tp not in self.plain.last_batches:
            return
        sequence, values, base_offset = self.plain.last_batches[tp]
        batch = RecordBatch(
            [Record(value=v) for v in values], self.plain.producer_id, self.plain.epoch, sequence
        )
        result = self.db.broker.append(tp, batch)
        assert (result.duplicate, result.base_offset) == (True, base_offset)

    @rule(tp=partitions)
    def leave_a_gap(self, tp: TopicPartition) -> None:
        self._expire()
        if self.plain is None or tp not in self.plain.sequences:
            return
        batch = RecordBatch(
            [Record(value=b"never")],
            self.plain.producer_id,
            self.plain.epoch,
            self.plain.sequences[tp] + 1,
        )
        try:
            self.db.broker.append(tp, batch)
            raise AssertionError("a gap must be refused")
        except eosdb.OutOfOrderSequenceNumberError:
            pass

    @rule(transactional_id=transactional_ids, committed=st.booleans())
    def end_a_transaction(self, transactional_id: str, committed: bool) -> None:
        self._expire()
        session = self.sessions.get(transactional_id)
        if session is None or session.transaction is None:
            return
        self.db.broker.end_txn(transactional_id, session.producer_id, session.epoch, committed)
        self._end(session, committed=committed)

    @rule(transactional_id=transactional_ids, tp=partitions, offset=st.integers(0, 50))
    def commit_offsets_in_a_transaction(
        self, transactional_id: str, tp: TopicPartition, offset: int
    ) -> None:
        self._expire()
        session = self.sessions.get(transactional_id)
        if session is None or session.transaction is None:
            return
        who = (session.producer_id, session.epoch)
        self.db.broker.add_offsets_to_txn(transactional_id, *who, transactional_id)
        self.db.broker.txn_offset_commit(
            transactional_id, transactional_id, *who, {tp: OffsetAndMetadata(offset)}
        )
        self.pending.setdefault(session.transaction, {})[tp, transactional_id] = offset

    @rule(ms=st.sampled_from([1, 500, TIMEOUT_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def keep_house(self) -> None:
        self._expire()
        self.db.housekeeping()

    @rule()
    def take_a_snapshot(self) -> None:
        self.db.take_snapshot()

    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.db = self._open()

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def readers_see_what_the_model_says(self) -> None:
        for tp in PARTITIONS:
            if self.log[tp]:
                offsets = self.db.broker.offsets(tp)
                assert offsets.last_stable_offset <= offsets.log_end_offset

    def teardown(self) -> None:
        try:
            self._expire()
            self.db.housekeeping()
            for tp in PARTITIONS:
                assert committed_values(self.db, tp) == self._expected(tp)
            for transactional_id in TRANSACTIONAL_IDS:
                fetched = self.db.broker.offset_fetch(transactional_id)
                mine = {
                    key[0]: offset
                    for key, offset in self.offsets.items()
                    if key[1] == transactional_id
                }
                assert {tp: o.offset for tp, o in fetched.items()} == mine
            self._views_agree()
            report = self.db.verify()
            assert report.ok, report.problems
            before = dump_state(self.folder / "histories.db")
            # However late rows are written, it is the same.
            for waiting, remembered in ((5_000, 20_000), (1, 3), (3, 1)):
                with (
                    mock.patch.object(unit_rows, "_WAITING_MAX", waiting),
                    mock.patch.object(replay, "_EVENTS_REMEMBERED", remembered),
                ):
                    self.db.rebuild()
                assert dump_state(self.folder / "histories.db") == before
        finally:
            self.db.close()
            shutil.rmtree(self.folder)

    def _views_agree(self) -> None:
        with sqlite3.connect(self.folder / "histories.db") as connection:
            for tp in PARTITIONS:
                committed = [
                    value
                    for (value,) in connection.execute(
                        "SELECT value FROM committed_records WHERE topic = ? AND partition = ? "
                        'ORDER BY "offset"',
                        tp,
                    )
                ]
                by_status = [
                    value
                    for (value,) in connection.execute(
                        "SELECT a.value FROM all_records a JOIN partition_offsets p USING (topic, "
                        "partition) WHERE a.topic = ? AND a.partition = ? AND a.status = 'committed' "
                        'AND a.control IS NULL AND a."offset" < p.last_stable_offset '
                        'ORDER BY a."offset"',
                        tp,
                    )
                ]
                assert committed == by_status == committed_values(self.db, tp)
        connection.close()
        check_views(self.folder / "histories.db")


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
