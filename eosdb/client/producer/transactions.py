"""The transactional half of a producer: the requests that its calls send to the coordinator.

The caller holds the producer's lock. If possible, the commit and a group's offsets share the writer turn
of the last records (`Sender.ask_with_last`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from eosdb.client.answers import is_lost, may_be_repeated
from eosdb.client.producer.driver import Driver, timed_out
from eosdb.client.producer.state import (
    ABORTABLE_ERROR,
    ABORTING_TRANSACTION,
    COMMITTING_TRANSACTION,
    IN_TRANSACTION,
    INITIALIZING,
    READY,
    UNINITIALIZED,
)
from eosdb.errors import (
    ConcurrentTransactionsError,
    DatabaseLockedError,
    EosdbError,
    IllegalStateError,
    TransactionAbortableError,
    UnsupportedVersionError,
    in_doubt,
)
from eosdb.model.requests import EndTxn, Request, TxnOffsetCommit
from eosdb.model.values import (
    EPOCH_PER_TRANSACTION,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionToken,
)

T = TypeVar("T")
Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
_CONCURRENT_BACKOFF_MS: Final = 20
"""The backoff while another transaction of this id is ending, which takes little time."""


class ProducerTransactions:
    """Initialises, commits and aborts the transactions of one producer."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._sender = driver.sender
        self._manager = driver.sender.manager
        self._is_in_doubt = False
        """Whether an earlier EndTxn of this transaction ended without learning its outcome."""

    def initialize(self, name: str) -> None:
        """Initialise the transactional id; again after an attempt that got no answer in time."""
        self._manager.require(name, UNINITIALIZED, INITIALIZING)
        version = self._sender.transport.transaction_version
        if version < EPOCH_PER_TRANSACTION:
            raise UnsupportedVersionError(
                f"{name}: the database offers transaction version {version}, a producer needs "
                f"{EPOCH_PER_TRANSACTION}; open it with BrokerConfig(transaction_version="
                f"{EPOCH_PER_TRANSACTION})"
            )
        self._until_answered(self._sender.initialize, name)

    def begin(self) -> TransactionToken:
        manager = self._manager
        if manager.needs_new_epoch:
            if manager.state is READY:
                manager.transition(UNINITIALIZED)
            if manager.state in (UNINITIALIZED, INITIALIZING):
                self.initialize("begin_transaction")
        manager.require("begin_transaction", READY)
        manager.transition(IN_TRANSACTION)
        self._is_in_doubt = False
        self._sender.committed = None
        assert manager.transactional_id is not None
        return TransactionToken(manager.transactional_id, *self._identity())

    def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        manager, name = self._manager, "send_offsets_to_transaction"
        manager.require(name, IN_TRANSACTION)
        if not offsets:
            return
        manager.may_have_begun = True
        request = self._offsets_request(offsets, group)
        answers = self._sender.ask_with_last([request], self._now_ms(), sync=False)
        if answers and not isinstance(answers[-1], EosdbError):
            return
        if answers and isinstance(answers[-1], DatabaseLockedError):
            manager.sent += 1
            raise self._sender.refused(request, answers[-1])
        self._until_answered(lambda: self._sender.ask_coordinator(request), name, request)

    def commit(
        self, offsets: Offsets | None = None, group: ConsumerGroupMetadata | None = None
    ) -> None:
        """Commit the transaction, with the offsets of a group if they are given."""
        manager = self._manager
        manager.require("commit_transaction", IN_TRANSACTION, COMMITTING_TRANSACTION)
        if manager.state is IN_TRANSACTION:
            self._sender.settle()
            if self._sender.committed is None:
                self._commit_with_last_records(offsets, group)
            if manager.error is not None:
                raise manager.error
            manager.transition(COMMITTING_TRANSACTION)
        self._end(committed=True)

    def _commit_with_last_records(
        self, offsets: Offsets | None, group: ConsumerGroupMetadata | None
    ) -> None:
        """Commit in one turn if possible; otherwise send everything except EndTxn."""
        behind: list[Request[Any]] = []
        if offsets and group:
            self._manager.may_have_begun = True
            behind.append(self._offsets_request(offsets, group))
        behind.append(self._end_request(committed=True))
        answers = self._sender.ask_with_last(behind, self._now_ms(), sync=True)
        if answers and isinstance(answers[-1], DatabaseLockedError):
            raise answers[-1]
        if self._sender.committed is None:
            if offsets and group:
                self.send_offsets(offsets, group)
            self._driver.flush(None)

    def abort(self) -> None:
        manager = self._manager
        states = IN_TRANSACTION, ABORTABLE_ERROR, ABORTING_TRANSACTION
        manager.require("abort_transaction", *states)
        self._sender.settle()
        if self._sender.committed is not None and manager.state is IN_TRANSACTION:
            manager.transition(COMMITTING_TRANSACTION)
            self._end(committed=True)
            raise IllegalStateError(
                "abort_transaction: the transaction is committed; an interrupt came between the commit "
                "and its answer. Begin the next one"
            )
        if manager.state is not ABORTING_TRANSACTION:
            manager.transition(ABORTING_TRANSACTION)
        self._sender.drop_waiting(
            TransactionAbortableError("the transaction was aborted before the record was sent"),
            unsent_only=True,
        )
        limit = self._sender.settings.max_block_ms
        self._driver.until(
            lambda: not self._sender.has_unanswered(),
            limit,
            lambda: timed_out("abort_transaction", limit),
        )
        if manager.is_fatal_state:
            assert manager.error is not None
            raise manager.error
        self._end(committed=False)

    def close(self) -> None:
        """End the open transaction: finish a requested commit, otherwise abort."""
        if self._manager.state is COMMITTING_TRANSACTION:
            self._end(committed=True)
        else:
            self.abort()

    def _end(self, *, committed: bool) -> None:
        """Have the coordinator end the transaction, if the coordinator knows it."""
        manager, sender = self._manager, self._sender
        name = "commit_transaction" if committed else "abort_transaction"
        if committed and sender.committed is not None:
            identity = sender.committed
        elif manager.has_begun:
            identity = self._ask_to_end(name, committed=committed)
        else:
            identity = self._identity()
        manager.ended(identity)
        sender.committed = None
        sender.metrics.count("txn-commit" if committed else "txn-abort")

    def _ask_to_end(self, name: str, *, committed: bool) -> ProducerIdAndEpoch:
        manager, request = self._manager, self._end_request(committed=committed)
        was_in_doubt, self._is_in_doubt = self._is_in_doubt, True
        try:
            return self._until_answered(
                lambda: self._sender.ask_coordinator(request), name, request, was_in_doubt
            )
        except EosdbError as error:
            self._is_in_doubt = error.outcome == "unknown"
            if manager.state is COMMITTING_TRANSACTION and not self._is_in_doubt:
                # Nothing was decided, so the program may abort, and `close` must not commit.
                manager.transition(IN_TRANSACTION)
            raise

    def _offsets_request(self, offsets: Offsets, group: ConsumerGroupMetadata) -> TxnOffsetCommit:
        assert self._manager.transactional_id is not None
        identity = self._identity()
        return TxnOffsetCommit(
            transactional_id=self._manager.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group=group,
            offsets=offsets,
            transaction_version=EPOCH_PER_TRANSACTION,
        )

    def _end_request(self, *, committed: bool) -> EndTxn:
        identity, tid = self._identity(), self._manager.transactional_id
        assert tid is not None
        return EndTxn(tid, *identity, committed, transaction_version=EPOCH_PER_TRANSACTION)

    def _until_answered(
        self,
        ask: Callable[[], T | EosdbError],
        name: str,
        request: Request[T] | None = None,
        is_in_doubt: bool = False,
    ) -> T:
        """Ask again and again until an answer or an error that repeating cannot help, at most max_block_ms.
        Raises the last error, in doubt if any attempt got no answer."""
        settings, attempts = self._sender.settings, 0
        deadline = self._now_ms() + settings.max_block_ms
        while True:
            answer = ask()
            if not isinstance(answer, EosdbError):
                return answer
            attempts += 1
            is_in_doubt |= is_lost(answer)
            now = self._now_ms()
            if not may_be_repeated(answer) or self._manager.is_fatal_state or now >= deadline:
                break
            self._sender.metrics.count("request-retry")
            backoff_ms = settings.retry_backoff_ms
            if isinstance(answer, ConcurrentTransactionsError):
                # The broker has waited for the other transaction's end, so the first repeat is immediate.
                backoff_ms = 0 if attempts == 1 else min(backoff_ms, _CONCURRENT_BACKOFF_MS)
            self._driver.clock.sleep_ms(min(backoff_ms, deadline - now))
        if may_be_repeated(answer) and isinstance(request, TxnOffsetCommit):
            self._manager.failed(answer, TxnOffsetCommit)  # Nobody knows whether they are stored.
        raise in_doubt(answer) if is_in_doubt else answer

    def _now_ms(self) -> int:
        return self._driver.clock.monotonic_ms()

    def _identity(self) -> ProducerIdAndEpoch:
        assert self._manager.identity is not None
        return self._manager.identity
