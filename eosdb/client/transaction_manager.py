"""A producer's state: who it is, whether a transaction is open, and what an error means.

Illegal calls leave the state alone and raise IllegalStateError; errors of requests move it. After an
abortable error only an abort helps, after a fatal one nothing does: every call raises the cause again.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from eosdb.errors import (
    ApiError,
    ClusterAuthorizationFailedError,
    EosdbError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
)
from eosdb.model import ProducerIdAndEpoch, TopicPartition


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


_S = ClientState
LEGAL_PREVIOUS: Final[dict[ClientState, frozenset[ClientState]]] = {
    _S.UNINITIALIZED: frozenset({_S.READY, _S.ABORTABLE_ERROR}),
    _S.INITIALIZING: frozenset(
        {_S.UNINITIALIZED, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION}
    ),
    _S.READY: frozenset({_S.INITIALIZING, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.COMMITTING_TRANSACTION: frozenset({_S.IN_TRANSACTION}),
    _S.ABORTING_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR}),
    _S.ABORTABLE_ERROR: frozenset(
        {_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION, _S.ABORTABLE_ERROR, _S.INITIALIZING}
    ),
    _S.FATAL_ERROR: frozenset(ClientState),
}
"""Each state, and the states it may be entered from."""

_FATAL_ON_PRODUCE: Final = (
    ProducerFencedError,
    ClusterAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
_FATAL_ON_COORDINATOR: Final = (
    *_FATAL_ON_PRODUCE,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    InvalidTransactionTimeoutError,
)


def is_fatal(error: EosdbError, *, on_produce: bool) -> bool:
    """Whether the producer cannot go on after this answer to a request."""
    return isinstance(error, _FATAL_ON_PRODUCE if on_produce else _FATAL_ON_COORDINATOR)


class TransactionManager:
    """The identity and state of one producer; no request is made here."""

    def __init__(self, transactional_id: str | None) -> None:
        self.transactional_id: Final = transactional_id
        self.state = ClientState.UNINITIALIZED
        self.identity: ProducerIdAndEpoch | None = None
        self.error: EosdbError | None = None
        self.partitions: set[TopicPartition] = set()
        """Partitions the coordinator has added to the transaction."""
        self.groups: set[str] = set()
        self._sequences: dict[TopicPartition, int] = {}

    def transition(self, state: ClientState) -> None:
        """Raises IllegalStateError for a transition that does not exist."""
        if self.state not in LEGAL_PREVIOUS[state]:
            raise IllegalStateError(
                f"the producer is {self.state.name}, from which it cannot become {state.name}"
            )
        self.state = state

    def require(self, call: str, *states: ClientState) -> None:
        """Raises the standing error, or IllegalStateError when `call` is not allowed now."""
        if self.transactional_id is None:
            raise IllegalStateError(f"{call} needs a producer with a transactional_id")
        if self.state in (ClientState.FATAL_ERROR, ClientState.ABORTABLE_ERROR) and (
            self.state not in states
        ):
            assert self.error is not None
            raise self.error
        if self.state not in states:
            expected = " or ".join(state.name for state in states)
            raise IllegalStateError(
                f"{call}: the producer is {self.state.name}, expected {expected}"
            )

    def initialized(self, identity: ProducerIdAndEpoch) -> None:
        if identity != self.identity:
            self._sequences.clear()
        self.identity = identity

    def ended(self, identity: ProducerIdAndEpoch) -> None:
        """The transaction is over; what to use next."""
        self.initialized(identity)
        self.partitions.clear()
        self.groups.clear()
        self.error = None
        self.transition(ClientState.READY)

    def failed(self, error: EosdbError, *, on_produce: bool) -> None:
        """An answer that the request cannot recover from moves the state."""
        if self.state is ClientState.FATAL_ERROR:
            return
        initializing = self.state is ClientState.INITIALIZING
        if initializing and may_be_repeated(error):
            self.state = ClientState.UNINITIALIZED
        elif initializing or is_fatal(error, on_produce=on_produce):
            self.state, self.error = ClientState.FATAL_ERROR, error
        elif self.state in LEGAL_PREVIOUS[ClientState.ABORTABLE_ERROR]:
            if self.state is not ClientState.ABORTABLE_ERROR:
                self.error = error
            self.state = ClientState.ABORTABLE_ERROR

    def base_sequence(self, tp: TopicPartition) -> int:
        """The sequence of the next record for the partition."""
        return self._sequences.get(tp, 0)

    def stored(self, tp: TopicPartition, count: int) -> None:
        """`count` records were stored; the number after 2147483647 is 0."""
        self._sequences[tp] = (self.base_sequence(tp) + count) % 2**31


def may_be_repeated(error: EosdbError) -> bool:
    """Whether the same request may succeed when it is repeated."""
    return not isinstance(error, ApiError) or error.retriable
