"""A producer's state: its identity, its transaction, its sequences, and the effect of errors.

An illegal call raises IllegalStateError and leaves the state unchanged; an error of a request changes it.
After an abortable error the transaction can only be aborted. After a fatal error every call raises that
error again. No requests are made here.

Sequences are counted as *serials*, which keep counting where the wire's int32 wraps to 0 (Kafka:
TxnPartitionEntry and the sequence half of TransactionManager).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from eosdb.client.answers import Kind, is_abortable, is_fatal, may_be_repeated
from eosdb.client.producer.accumulator import ProducerBatch
from eosdb.client.producer.settings import ProducerSettings
from eosdb.errors import (
    EosdbError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
    is_refused_by_file,
)
from eosdb.model.notices import catalog
from eosdb.model.requests import EndTxn, InitProducerId
from eosdb.model.values import CLASSIC, ProducerIdAndEpoch, TopicPartition


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


_KNOWN_FOR_MS: Final = 10_000
"""After a response, the partition is assumed to know the producer for this time; far below any sensible
producer.id.expiration.ms."""


class PartitionProgress:
    """One partition's sequences under one producer id and epoch."""

    __slots__ = (
        "_known_ms",
        "acknowledged",
        "identity",
        "in_doubt",
        "next_serial",
        "unacknowledged",
    )

    def __init__(self) -> None:
        self.identity: ProducerIdAndEpoch | None = None
        self.next_serial = 0
        self.acknowledged = 0
        """The serial after the last acknowledged serial."""
        self.unacknowledged: list[ProducerBatch] = []
        """Batches with a sequence and no definite response, in the order of their sequences."""
        self.in_doubt = False
        """Whether a batch was given up that may be stored."""
        self._known_ms: int | None = None
        """The last response that shows that the partition knows this identity."""

    @property
    def is_unresolved(self) -> bool:
        """Whether assigned sequences are neither acknowledged nor part of a pending batch."""
        first = self.unacknowledged[0].serial if self.unacknowledged else self.next_serial
        return self.acknowledged < first

    def admits_new(
        self,
        identity: ProducerIdAndEpoch,
        max_in_flight: int,
        now_ms: int,
        *,
        in_order: bool = False,
    ) -> bool:
        """Whether one more batch may get a sequence now. Any number may be in flight if no request can
        overtake another (`in_order`), otherwise at most `max_in_flight`. The first batch must then be
        alone: a partition that does not know the producer accepts any sequence as its first."""
        if not self.unacknowledged:
            return not (self.is_unresolved and self.identity == identity)
        return (
            self.identity == identity
            and not self.is_unresolved
            and (in_order or (self._is_known(now_ms) and len(self.unacknowledged) < max_in_flight))
        )

    def _is_known(self, now_ms: int) -> bool:
        return self._known_ms is not None and now_ms - self._known_ms < _KNOWN_FOR_MS

    def assign(self, batch: ProducerBatch, identity: ProducerIdAndEpoch) -> None:
        if self.identity != identity:
            self.start_over(identity)
        serial, unacknowledged = self.next_serial, self.unacknowledged
        after = serial + len(batch.records)
        # The next lines call nothing, so no signal can separate the changes (decisions/0018).
        batch.identity, batch.serial = identity, serial
        self.next_serial = after
        unacknowledged += (batch,)

    def start_over(self, identity: ProducerIdAndEpoch) -> None:
        """Restart at sequence 0 under a new identity."""
        self.identity = identity
        self.next_serial = self.acknowledged = 0
        self.in_doubt = False
        self._known_ms = None

    def take_back(self, batch: ProducerBatch) -> None:
        """Take back the last sequences from a batch that was not sent."""
        self.drop(batch)
        self.next_serial = batch.serial
        batch.identity, batch.serial = None, -1

    def rewrite(self, identity: ProducerIdAndEpoch) -> None:
        """Assign new sequences under a new identity to all unacknowledged batches, in order."""
        batches, self.unacknowledged = self.unacknowledged, []
        self.start_over(identity)
        for batch in batches:
            self.assign(batch, identity)

    def is_first(self, batch: ProducerBatch) -> bool:
        return bool(self.unacknowledged) and self.unacknowledged[0] is batch

    def acknowledge(self, batch: ProducerBatch, now_ms: int) -> None:
        """Mark the batch as stored, and with it all earlier sequences."""
        if batch.identity == self.identity:
            self.acknowledged = max(self.acknowledged, batch.next_serial)
            self._known_ms = now_ms
        self.drop(batch)

    def drop(self, batch: ProducerBatch) -> None:
        if batch in self.unacknowledged:
            self.unacknowledged.remove(batch)

    def restore(self, batch: ProducerBatch) -> None:
        """Return the batch to its place among the unacknowledged ones."""
        if batch not in self.unacknowledged and batch.identity == self.identity:
            self.unacknowledged.append(batch)
            self.unacknowledged.sort(key=lambda waiting: waiting.serial)

    def replace(self, batch: ProducerBatch, parts: tuple[ProducerBatch, ProducerBatch]) -> None:
        """Replace a batch by its two halves."""
        at = self.unacknowledged.index(batch)
        self.unacknowledged[at : at + 1] = parts


class TransactionManager:
    """The identity, state and sequences of one producer."""

    def __init__(self, settings: ProducerSettings) -> None:
        self.settings: Final = settings
        self.transactional_id: Final = settings.transactional_id
        self.state = UNINITIALIZED
        self.identity: ProducerIdAndEpoch | None = None
        self.error: EosdbError | None = None
        self.version = CLASSIC
        """The transaction version; looked up when a transaction begins, so that it cannot change during
        one."""
        self.partitions: set[TopicPartition] = set()
        """The partitions that the coordinator has added to the transaction (version 1)."""
        self.groups: set[str] = set()
        self.may_have_begun = False
        """Whether records or offsets were accepted, which begin the transaction at the coordinator when
        they arrive (version 2)."""
        self.sent = self.refused = 0
        """The transaction's requests with records or offsets, and how many of them the file has refused."""
        self.number = 0
        """The transactions that have ended under this identity (version 1)."""
        self.needs_new_epoch = False
        """Whether the producer must request a new epoch before the next transaction."""
        self._is_fencing_told = False
        self._progress: dict[TopicPartition, PartitionProgress] = {}

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
        is_refused = 0 < self.sent == self.refused
        may_have_arrived = self.may_have_begun and not is_refused and self.version > CLASSIC
        return bool(self.partitions or self.groups or may_have_arrived)

    def answered(self, error: EosdbError) -> None:
        """Note the error of a request with records or offsets."""
        self.refused += is_refused_by_file(error) and error.outcome == "not written"

    def initialized(self, identity: ProducerIdAndEpoch) -> None:
        """Take over the identity from the coordinator; if it is new, sequences restart."""
        if identity != self.identity and self.transactional_id is not None:
            self._progress.clear()
        self.identity = identity

    def begun(self, version: int) -> None:
        """Begin a transaction, so far only on the client."""
        self.transition(IN_TRANSACTION)
        self.version = version

    def ended(self, identity: ProducerIdAndEpoch) -> None:
        """End the transaction; `identity` is for the next one. Tokens name the identity, and the
        coordinator does not know an empty transaction; so the next one then needs a new epoch."""
        self.check_transition(READY)
        unchanged = identity == self.identity
        needs_new_epoch = unchanged and not self.has_begun
        if not unchanged and self.transactional_id is not None:
            self._progress.clear()
        partitions, groups = set[TopicPartition](), set[str]()
        # The next lines call nothing, so no signal can separate the changes (decisions/0018).
        self.number = self.number + 1 if unchanged else 0
        self.needs_new_epoch = needs_new_epoch
        self.identity = identity
        self.partitions, self.groups = partitions, groups
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
        elif self.transactional_id is not None and is_abortable(error, kind):
            self.needs_new_epoch |= self.version == CLASSIC
            if self.state in LEGAL_PREVIOUS[ABORTABLE_ERROR]:
                if self.state is not ABORTABLE_ERROR:
                    self.error = error
                self.state = ABORTABLE_ERROR

    def progress(self, tp: TopicPartition) -> PartitionProgress:
        progress = self._progress.get(tp)
        if progress is None:
            progress = self._progress[tp] = PartitionProgress()
        return progress

    def partitions_in_progress(self) -> list[tuple[TopicPartition, PartitionProgress]]:
        return list(self._progress.items())

    def next_local_epoch(self) -> ProducerIdAndEpoch | None:
        """Return the identity with the next epoch (KIP-360); None if the epochs are used up."""
        assert self.identity is not None
        producer_id, epoch = self.identity
        if epoch >= LAST_LOCAL_EPOCH:
            return None
        return ProducerIdAndEpoch(producer_id, epoch + 1)
