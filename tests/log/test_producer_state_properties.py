"""Random batches of one producer to one partition.

Goal: within an epoch the accepted sequences are consecutive modulo 2**31, a repeat always gets the
original offsets, and no sequence is stored twice, whatever is repeated, lost, deleted or forgotten.
Method: a state machine that folds each accepted batch into the entry and keeps a list of what it
stored; it starts on either side of the wrap.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eosdb.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceNumberError,
)
from eosdb.log.producer_state import (
    Accept,
    Duplicate,
    ProducerStateEntry,
    nearest_serial,
    round_of,
    sequence_of,
)
from tests.log.producer_batches import PRODUCER_ID, TOP, Row, batch, decide

pytestmark = pytest.mark.slow

COUNTS = st.integers(1, 4)
STARTS = st.sampled_from([0, 0, 1, 17, 2**30, TOP - 9, TOP - 1, TOP])


@given(st.integers(0, 2**40))
def test_a_serial_is_its_round_and_its_sequence(serial: int) -> None:
    assert round_of(serial) * 2**31 + sequence_of(serial) == serial


@given(st.integers(0, TOP), st.integers(0, 2**40))
def test_the_nearest_serial_has_the_sequence_and_is_within_half_a_round(
    sequence: int, expected: int
) -> None:
    serial = nearest_serial(sequence, expected)
    assert serial % 2**31 == sequence
    assert abs(serial - expected) <= 2**30


@pytest.mark.slow
@given(STARTS, st.lists(COUNTS, min_size=1, max_size=30))
def test_consecutive_batches_are_all_accepted_and_all_known_again(
    start: int, counts: list[int]
) -> None:
    known: ProducerStateEntry | None = None
    rows: list[Row] = []
    serial, offset = start, 0
    for count in counts:
        verdict = decide(known, batch(serial % 2**31, count), rows)
        assert verdict == Accept(serial)
        row = Row(serial, count, offset)
        known = (known or ProducerStateEntry(PRODUCER_ID, row.epoch)).after_append(
            row.epoch, row.metadata(), False, 0
        )
        rows.append(row)
        serial, offset = serial + count, offset + count
    for row in rows:
        again = batch(row.base_serial % 2**31, row.count)
        assert decide(known, again, rows) == Duplicate(row.base_offset, row.last_offset)
        if row in rows[-5:]:
            assert decide(known, again, []) == Duplicate(row.base_offset, row.last_offset)
        else:
            with pytest.raises(OutOfOrderSequenceNumberError):
                decide(known, again, [])
        assert decide(None, again, rows) == Duplicate(row.base_offset, row.last_offset)


class Partition(RuleBasedStateMachine):
    """One producer on one partition, with a log that loses its beginning and a state that expires."""

    def __init__(self) -> None:
        super().__init__()
        self.known: ProducerStateEntry | None = None
        self.epoch = 0
        self.end_offset = 0
        self.rows: list[Row] = []
        self.history: list[Row] = []
        self.last_accepted: Row | None = None
        """The batch that the next one must follow; None when any may come."""

    @initialize(start=STARTS, count=COUNTS)
    def the_first_batch_of_an_unknown_producer(self, start: int, count: int) -> None:
        self.send(start, count)

    def send(self, sequence: int, count: int) -> Accept | Duplicate:
        """Offer a batch, and store it if it is accepted."""
        verdict = decide(self.known, batch(sequence, count, epoch=self.epoch), self.rows)
        if isinstance(verdict, Duplicate):
            return verdict
        assert verdict.base_serial >= 0
        assert sequence_of(verdict.base_serial) == sequence
        if self.last_accepted is not None:
            assert sequence == (self.last_accepted.last_serial + 1) % 2**31
        row = Row(verdict.base_serial, count, self.end_offset, self.epoch)
        self.end_offset += count
        self.rows.append(row)
        self.history.append(row)
        self.last_accepted = row
        known = self.known or ProducerStateEntry(PRODUCER_ID, self.epoch)
        self.known = known.after_append(self.epoch, row.metadata(), False, 0)
        return verdict

    def next_sequence(self) -> int:
        return 0 if self.last_accepted is None else (self.last_accepted.last_serial + 1) % 2**31

    @rule(count=COUNTS)
    @precondition(lambda self: self.last_accepted is not None)
    def the_next_batch_comes(self, count: int) -> None:
        assert isinstance(self.send(self.next_sequence(), count), Accept)

    @rule(data=st.data())
    @precondition(lambda self: self.last_accepted is not None)
    def a_batch_comes_again(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.history))
        assume(row.epoch == self.epoch)
        assert self.known is not None
        remembered = row.metadata() in self.known.batches
        again = batch(sequence_of(row.base_serial), row.count, epoch=self.epoch)
        if remembered or row in self.rows:
            original = Duplicate(row.base_offset, row.last_offset)
            assert decide(self.known, again, self.rows) == original
        else:
            with pytest.raises(OutOfOrderSequenceNumberError):
                decide(self.known, again, self.rows)

    @rule(ahead=st.integers(1, 2**30 - 5), count=COUNTS)
    @precondition(lambda self: self.last_accepted is not None)
    def a_batch_gets_lost_before_this_one(self, ahead: int, count: int) -> None:
        sequence = (self.next_sequence() + ahead) % 2**31
        with pytest.raises(OutOfOrderSequenceNumberError):
            self.send(sequence, count)

    @rule(data=st.data(), count=st.integers(1, 12))
    @precondition(lambda self: self.last_accepted is not None)
    def something_else_from_the_past_is_refused(self, data: st.DataObject, count: int) -> None:
        row = data.draw(st.sampled_from(self.history))
        assume(row.epoch == self.epoch)
        serial = row.base_serial + data.draw(st.integers(0, row.count - 1))
        assume(not any((r.base_serial, r.count) == (serial, count) for r in self.history))
        with pytest.raises(OutOfOrderSequenceNumberError):
            self.send(sequence_of(serial), count)

    @rule(sequence=st.sampled_from([0, 1, TOP]))
    @precondition(lambda self: self.epoch > 0 and self.known)
    def a_zombie_of_an_older_epoch_is_refused(self, sequence: int) -> None:
        with pytest.raises(InvalidProducerEpochError):
            decide(self.known, batch(sequence, epoch=self.epoch - 1), self.rows)

    @rule(count=COUNTS, wrong=st.sampled_from([1, 2, TOP]))
    @precondition(lambda self: self.known)
    def a_new_epoch_starts_at_0(self, count: int, wrong: int) -> None:
        self.epoch += 1
        self.last_accepted = None
        with pytest.raises(OutOfOrderSequenceNumberError):
            self.send(wrong, count)
        assert self.send(0, count) == Accept(0)

    @rule(bump=st.booleans(), count=COUNTS)
    @precondition(lambda self: self.known)
    def a_transaction_ends(self, bump: bool, count: int) -> None:
        assert self.known is not None
        self.epoch += bump
        self.known = self.known.after_marker(self.epoch, 0, 0)
        if bump:
            self.last_accepted = None
            assert self.send(0, count) == Accept(0)

    @rule(rows=st.integers(1, 10))
    def the_log_loses_its_beginning(self, rows: int) -> None:
        self.rows = self.rows[rows:]

    @rule(count=COUNTS)
    @precondition(lambda self: self.last_accepted is not None)
    def the_state_expires_and_the_producer_goes_on(self, count: int) -> None:
        sequence = self.next_sequence()
        if not any(row.epoch == self.epoch for row in self.rows):
            # Nothing is left that knows of the wraps before: the serials start again from here.
            self.history = [row for row in self.history if row.epoch != self.epoch]
        self.known = self.last_accepted = None
        assert isinstance(self.send(sequence, count), Accept)

    @rule(data=st.data())
    @precondition(lambda self: self.known and self.rows)
    def the_state_expires_and_a_stored_batch_comes_again(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.rows))
        again = batch(sequence_of(row.base_serial), row.count, epoch=row.epoch)
        assert decide(None, again, self.rows) == Duplicate(row.base_offset, row.last_offset)

    @invariant()
    def no_sequence_is_stored_twice(self) -> None:
        taken = sorted((row.epoch, row.base_serial, row.last_serial) for row in self.rows)
        for (epoch, _, last), (next_epoch, first, _) in itertools.pairwise(taken):
            assert (epoch, last) < (next_epoch, first)

    @invariant()
    def five_batches_are_remembered_at_most(self) -> None:
        if self.known is not None:
            assert len(self.known.batches) <= 5
            assert {b.base_offset for b in self.known.batches} <= {
                row.base_offset for row in self.history if row.epoch == self.known.producer_epoch
            }


Partition.TestCase.settings = settings(stateful_step_count=40, deadline=None)
TestPartition = Partition.TestCase
