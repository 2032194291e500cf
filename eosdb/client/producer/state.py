"""The states of a producer, of its partitions' sequences, and of its batches. No requests are made here.

How a batch moves. It is in the accumulator's queue of its partition (waiting), or in the sender's hand
while the broker is asked, or it is done. `Batches` makes every step but the
first and taking from the queue:

| from | step | to |
| --- | --- | --- |
| – | `Producer.send` fills it | waiting, without a sequence |
| waiting | the sender drains it; `assign` gives it a sequence | in hand |
| in hand | stored, or a duplicate | done, with its result |
| in hand | no answer, or an error that may pass | waiting, first, with the same sequence |
| in hand | too large | its halves are waiting, without a sequence |
| in hand | the partition does not know the producer (no transactional id) | waiting, for a new epoch |
| in hand | not carried out, behind one that was not stored | waiting, first, without a sequence |
| in hand | any other error | done, with the error |
| waiting | `delivery_timeout_ms` ends, or the transaction, or the producer | done, with an error |

A batch with a sequence may be stored, so it is never sent under another sequence (Kafka: KIP-360). If it
fails, a producer without a transactional id goes on in a new epoch; in a transaction only an abort is left.

An illegal call raises IllegalStateError and leaves the state unchanged; an error of a request changes it.
After an abortable error the transaction can only be aborted. After a fatal error every call raises that
error again. The rules are Kafka's (TransactionManager, TxnPartitionEntry, Sender.completeBatch).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from eosdb.client.answers import Kind, is_abortable, is_fatal, is_lost, may_be_repeated
from eosdb.client.producer.accumulator import ProducerBatch, RecordAccumulator
from eosdb.client.producer.settings import ProducerSettings
from eosdb.errors import (
    DuplicateSequenceNumberError,
    EosdbError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    RequestTimedOutError,
    UnknownProducerIdError,
    in_doubt,
    is_refused_by_file,
)
from eosdb.model.metrics import Metrics
from eosdb.model.notices import catalog
from eosdb.model.requests import EndTxn, InitProducerId, Produce
from eosdb.model.values import ProduceResult, ProducerIdAndEpoch, TopicPartition


class ClientState(Enum):
    """The states of Kafka's TransactionManager."""

    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    COMMITTING_TRANSACTION = "COMMITTING_TRANSACTION"
    ABORTING_TRANSACTION = "ABORTING_TRANSACTION"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"

    # A state is a single object, so a hash of its identity is enough. Enum's own hash is slower.
    __hash__ = object.__hash__


(
    UNINITIALIZED, INITIALIZING, READY, IN_TRANSACTION, COMMITTING_TRANSACTION, ABORTING_TRANSACTION,
    ABORTABLE_ERROR, FATAL_ERROR,
) = ClientState  # fmt: skip
"""The states: a look-up in the class of an Enum takes ten times as long as a name."""
LEGAL_PREVIOUS: Final[dict[ClientState, frozenset[ClientState]]] = {
    UNINITIALIZED: frozenset({READY, ABORTABLE_ERROR}),
    INITIALIZING: frozenset({UNINITIALIZED, COMMITTING_TRANSACTION, ABORTING_TRANSACTION}),
    READY: frozenset({INITIALIZING, COMMITTING_TRANSACTION, ABORTING_TRANSACTION}),
    # A commit that was refused before its decision leads back to IN_TRANSACTION.
    IN_TRANSACTION: frozenset({READY, COMMITTING_TRANSACTION}),
    COMMITTING_TRANSACTION: frozenset({IN_TRANSACTION}),
    ABORTING_TRANSACTION: frozenset({IN_TRANSACTION, ABORTABLE_ERROR}),
    ABORTABLE_ERROR: frozenset(
        {IN_TRANSACTION, COMMITTING_TRANSACTION, ABORTABLE_ERROR, INITIALIZING}
    ),
    FATAL_ERROR: frozenset(ClientState),
}
"""Each state, and the states from which it may be entered."""

_OPEN: Final = frozenset(
    {IN_TRANSACTION, ABORTABLE_ERROR, ABORTING_TRANSACTION, COMMITTING_TRANSACTION}
)
_WAY_OUT: Final = {
    UNINITIALIZED: "call init_transactions() first",
    INITIALIZING: "call init_transactions() again, until it returns",
    READY: "call begin_transaction() first",
    IN_TRANSACTION: "commit or abort the open transaction first",
    COMMITTING_TRANSACTION: "call commit_transaction() again, until it returns",
    ABORTING_TRANSACTION: "call abort_transaction() again, until it returns",
}
"""The next step in a state that does not allow a call."""
LAST_LOCAL_EPOCH: Final = 2**15 - 1
"""After this epoch an idempotent producer needs a new producer id (KIP-360)."""


class Sequences:
    """One partition's sequences under one producer id and epoch. They are counted as *serials*, which keep
    counting where the wire's int32 wraps to 0."""

    __slots__ = ("identity", "is_broken", "next_serial")

    def __init__(self) -> None:
        self.identity: ProducerIdAndEpoch | None = None
        self.next_serial = 0
        self.is_broken = False
        """Whether a batch with a sequence has failed: the next sequence needs a new epoch."""

    def assign(self, batch: ProducerBatch, identity: ProducerIdAndEpoch) -> None:
        """Give the batch the next sequences of this identity; the first ones if it is new."""
        if self.identity != identity:
            self.identity, self.next_serial, self.is_broken = identity, 0, False
        serial = self.next_serial
        after = serial + len(batch.records)
        # The next lines call nothing, so no signal can separate the changes (decisions/0018).
        batch.identity, batch.serial = identity, serial
        self.next_serial = after

    def take_back(self, batch: ProducerBatch) -> None:
        """Take back the sequences of a batch that is not stored, and of those behind it."""
        if batch.identity is not None:
            if batch.identity == self.identity:
                self.next_serial = min(self.next_serial, batch.serial)
            batch.identity, batch.serial = None, -1


class TransactionManager:
    """The identity, state and sequences of one producer."""

    def __init__(self, settings: ProducerSettings) -> None:
        self.settings: Final = settings
        self.transactional_id: Final = settings.transactional_id
        self.state = UNINITIALIZED
        self.identity: ProducerIdAndEpoch | None = None
        self.error: EosdbError | None = None
        self.may_have_begun = False
        """Whether records or offsets were accepted, which begin the transaction at the coordinator when
        they arrive."""
        self.sent = self.refused = 0
        """The transaction's requests with records or offsets, and how many of them the file has refused."""
        self.needs_new_epoch = False
        """Whether the producer must request a new epoch before the next transaction."""
        self._is_fencing_told = False
        self._sequences: dict[TopicPartition, Sequences] = {}

    def transition(self, state: ClientState) -> None:
        """Enter the state. Raises IllegalStateError for an illegal transition."""
        self.check_transition(state)
        self.state = state

    def check_transition(self, state: ClientState) -> None:
        """Raises IllegalStateError for an illegal transition."""
        if self.state not in LEGAL_PREVIOUS[state]:
            raise IllegalStateError(
                f"the producer is {self.state.name}, and its state cannot become {state.name}"
            )

    def require(self, call: str, *states: ClientState) -> None:
        """Raises the error of an error state, or IllegalStateError if the state is none of `states`."""
        if self.transactional_id is None:
            raise IllegalStateError(f"{call} needs a producer with a transactional_id")
        if self.state not in states:
            if self.state in (FATAL_ERROR, ABORTABLE_ERROR):
                assert self.error is not None
                raise self.error
            expected = " or ".join(state.name for state in states)
            way_out = _WAY_OUT[self.state]
            if call == "init_transactions":
                way_out = "once for each producer is enough"
            raise IllegalStateError(
                f"{call}: the producer is {self.state.name}, expected {expected}; {way_out}"
            )

    @property
    def may_send(self) -> bool:
        """Whether `send` is allowed. With a transactional id: in a transaction. Without: until a fatal
        error."""
        if self.transactional_id is None:
            return self.error is None
        return self.state is IN_TRANSACTION

    @property
    def may_end(self) -> bool:
        return self.state in _OPEN

    @property
    def is_fatal_state(self) -> bool:
        return self.state is FATAL_ERROR

    @property
    def is_in_error(self) -> bool:
        return self.state in (FATAL_ERROR, ABORTABLE_ERROR)

    @property
    def has_begun(self) -> bool:
        """Whether the coordinator may have an open transaction of this producer."""
        return self.may_have_begun and not 0 < self.sent == self.refused

    def answered(self, error: EosdbError) -> None:
        """Note the error of a request with records or offsets."""
        self.refused += is_refused_by_file(error) and error.outcome == "not written"

    def ended(self, identity: ProducerIdAndEpoch) -> None:
        """End the transaction; `identity` is for the next one. Tokens name the identity, and the
        coordinator does not know an empty transaction; so the next one then needs a new epoch."""
        self.check_transition(READY)
        needs_new_epoch = identity == self.identity
        if self.transactional_id is not None:
            self._sequences.clear()
        # The next lines call nothing, so no signal can separate the changes (decisions/0018).
        self.needs_new_epoch = needs_new_epoch
        self.identity = identity
        self.may_have_begun = False
        self.sent = self.refused = 0
        self.error = None
        self.state = READY

    def failed(self, error: EosdbError, kind: Kind) -> None:
        """Change the state after an error from which the request cannot recover. Logs once that the
        producer was fenced."""
        self._change_after(error, kind)
        is_fenced = isinstance(error, (InvalidProducerEpochError, ProducerFencedError))
        # The transaction has already ended, for example by its timeout.
        was_ended = kind is EndTxn and isinstance(error, InvalidTxnStateError)
        if not (is_fenced or was_ended) or self._is_fencing_told or self.transactional_id is None:
            return
        self._is_fencing_told = True
        producer_id, epoch = (None, None) if self.identity is None else self.identity
        catalog.PRODUCER_FENCED.say(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            error=error,
        )

    def _change_after(self, error: EosdbError, kind: Kind) -> None:
        if self.state is FATAL_ERROR:
            return
        initializing = kind is InitProducerId and self.state is INITIALIZING
        aborting = self.state is ABORTING_TRANSACTION
        fatal = is_fatal(error, kind, aborting=aborting)
        if fatal and not (initializing and may_be_repeated(error)):
            self.state, self.error = FATAL_ERROR, error
        elif initializing:
            self.state = UNINITIALIZED
        elif (
            self.transactional_id is not None
            and is_abortable(error, kind)
            and self.state in LEGAL_PREVIOUS[ABORTABLE_ERROR]
        ):
            if self.state is not ABORTABLE_ERROR:
                self.error = error
            self.state = ABORTABLE_ERROR

    def sequences(self, tp: TopicPartition) -> Sequences:
        found = self._sequences.get(tp)
        if found is None:
            found = self._sequences[tp] = Sequences()
        return found

    def next_local_epoch(self) -> ProducerIdAndEpoch | None:
        """Return the identity with the next epoch (KIP-360); None if the epochs are used up."""
        assert self.identity is not None
        producer_id, epoch = self.identity
        if epoch >= LAST_LOCAL_EPOCH:
            return None
        return ProducerIdAndEpoch(producer_id, epoch + 1)


class Batches:
    """Moves batches from the sender's hand to their next state, and completes waiting ones."""

    def __init__(
        self, manager: TransactionManager, accumulator: RecordAccumulator, metrics: Metrics
    ) -> None:
        self._settings = manager.settings
        self._manager = manager
        self._accumulator = accumulator
        self._metrics = metrics
        self._acks_0 = str(manager.settings.acks).strip() == "0"
        """Whether a lost answer is not missed."""
        self._finished: deque[ProducerBatch] = deque()
        """The batches whose callbacks are due."""
        self._expires_ms = 0
        """The earliest time (monotonic ms) at which a batch can exceed delivery_timeout_ms."""

    def call_back(self) -> bool:
        """Call the delivery callbacks of finished batches, once all states are final. Returns whether
        there were any."""
        are_any = bool(self._finished)
        while self._finished:
            self._finished[0].call_back()
            self._finished.popleft()
        return are_any

    def assign(self, batch: ProducerBatch, identity: ProducerIdAndEpoch) -> bool:
        """Give the batch its sequences. Returns False if they need a new epoch and the last one is used."""
        sequences = self._manager.sequences(batch.tp)
        if sequences.is_broken and sequences.identity == identity:
            following = self._manager.next_local_epoch()
            self._manager.identity = following
            self._metrics.count("epoch-bump")
            if following is None:
                return False
            identity = following
        sequences.assign(batch, identity)
        return True

    def answered(
        self, asked: Sequence[tuple[ProducerBatch, ProduceResult | EosdbError]], now_ms: int
    ) -> None:
        """Handle the answers of one call, in the order of its batches. A partition may have several: behind
        one that was not stored, the others are out of order."""
        missed: list[tuple[ProducerBatch, EosdbError]] = []
        firsts: dict[TopicPartition, ProducerBatch] = {}
        for batch, answer in asked:
            error = answer if isinstance(answer, EosdbError) else answer.error
            if isinstance(answer, ProduceResult) and error is None:
                self._stored(batch, answer)
            elif isinstance(error, DuplicateSequenceNumberError) or (
                is_lost(error) and self._acks_0
            ):
                self._stored(batch, ProduceResult(duplicate=not is_lost(error)))
            elif error is not None:
                if isinstance(answer, ProduceResult):
                    self._metrics.error(error)
                firsts.setdefault(batch.tp, batch)
                missed.append((batch, error))
        for batch, error in reversed(missed):
            if batch.done:
                continue
            if isinstance(error, OutOfOrderSequenceNumberError) and firsts[batch.tp] is not batch:
                self.take_back(batch)
            else:
                self._not_stored(batch, error, now_ms)

    def _stored(self, batch: ProducerBatch, result: ProduceResult) -> None:
        if batch.done:
            return
        count = len(batch.records)
        self._metrics.record(
            {
                "record-send": count,
                "byte": batch.size,
                "batch": 1,
                "duplicate-batches": result.duplicate,
            },
            {"batch-size": batch.size, "records-per-batch": count},
        )
        batch.result = result
        if batch.callbacks:
            self._finished.append(batch)

    def _not_stored(self, batch: ProducerBatch, error: EosdbError, now_ms: int) -> None:
        batch.in_doubt |= is_lost(error)
        renews = (
            batch.identity is not None
            and self._manager.transactional_id is None
            and isinstance(error, (UnknownProducerIdError, InvalidProducerEpochError))
        )
        if renews or is_lost(error) or may_be_repeated(error):
            if batch.attempts > self._settings.retries:
                self._fail(batch, error)
                return
            if renews:  # The broker accepts the batch only under a new producer epoch.
                self._manager.sequences(batch.tp).is_broken = True
                batch.identity, batch.serial = None, -1
            batch.retry_at_ms = now_ms + self._settings.retry_backoff_ms
            self._accumulator.put_back(batch)
        elif isinstance(error, MessageTooLargeError) and len(batch.records) > 1:
            self._split(batch)
        else:
            self._fail(batch, error)

    def _split(self, batch: ProducerBatch) -> None:
        """Replace a batch that is too large with its halves."""
        self._accumulator.most_bytes = self._settings.batch_size
        self._manager.sequences(batch.tp).take_back(batch)
        for half in reversed(batch.split()):
            self._accumulator.put_back(half)

    def take_back(self, batch: ProducerBatch) -> None:
        """Return a batch to the waiting ones as if it had not been sent: it was not carried out."""
        self._manager.sequences(batch.tp).take_back(batch)
        batch.attempts = 0
        self._accumulator.put_back(batch)

    def _fail(self, batch: ProducerBatch, error: EosdbError) -> None:
        self._manager.failed(error, Produce)
        self.give_up(batch, error)

    def give_up(self, batch: ProducerBatch, error: EosdbError) -> None:
        """Fail the batch; whether it is stored may be unknown."""
        if batch.in_doubt:
            in_doubt(error)
        if batch.identity is not None:
            self._manager.sequences(batch.tp).is_broken = True
        batch.error = (
            error  # Set before the rest: after an interrupt, futures already have the error.
        )
        self._accumulator.remove(batch)
        self._metrics.count("record-error", len(batch.records))
        self._metrics.error(error)
        if batch.callbacks:
            self._finished.append(batch)

    def expire(self, now_ms: int) -> None:
        """Fail the batches that were not stored within delivery_timeout_ms."""
        if now_ms < self._expires_ms:
            return
        limit = self._settings.delivery_timeout_ms
        batches = self._accumulator.waiting()
        self._expires_ms = min([now_ms, *[batch.created_ms for batch in batches]]) + limit
        for batch in [batch for batch in batches if now_ms - batch.created_ms >= limit]:
            are = "may or may not be" if batch.in_doubt else "are not"
            error = RequestTimedOutError(
                f"{batch.tp}: no answer within delivery_timeout_ms={limit}; the batch's "
                f"{len(batch.records)} records {are} stored"
            )
            error.outcome = "unknown" if batch.in_doubt else "not written"
            self._fail(batch, error)

    def mend(self, in_hand: Iterable[ProducerBatch]) -> None:
        """Repair the state after a signal has interrupted a step. Batches in no queue are sent again, as
        after a lost answer, or finished. Without such batches, nothing changes."""
        self._accumulator.recount()
        waiting = self._accumulator.waiting()
        queued = {id(batch) for batch in waiting}
        for batch in [*waiting, *reversed([*in_hand])]:
            self._mend(batch, queued)

    def _mend(self, batch: ProducerBatch, queued: set[int]) -> None:
        if batch.parts:
            for part in reversed(batch.parts):
                self._mend(part, queued)
        elif batch.done:
            self._accumulator.remove(batch)
            if batch.callbacks and batch not in self._finished:
                self._finished.append(batch)
        elif id(batch) not in queued:
            batch.in_doubt = True
            self._accumulator.put_back(batch)
