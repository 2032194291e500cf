"""The transactional half of a producer: the requests that its calls send to the coordinator.

The caller holds the producer's lock. If possible, the commit and a group's offsets share the writer turn
of the last records (`Sender.flush_before`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from eosdb.client.producer.coordinator_calls import CoordinatorCall
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
from eosdb.client.transport import Exchange
from eosdb.errors import (
    DatabaseLockedError,
    EosdbError,
    IllegalStateError,
    TransactionAbortableError,
    in_doubt,
)
from eosdb.model import requests
from eosdb.model.values import (
    CLASSIC,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionToken,
)

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]


class ProducerTransactions:
    """Initialises, commits and aborts the transactions of one producer."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._sender = driver.sender
        self._manager = driver.sender.manager
        self._committed: Exchange[ProducerIdAndEpoch] = Exchange()
        """The response to the commit, if it was sent with the last records."""
        self._is_in_doubt = False
        """Whether an earlier `commit` of this transaction ended without learning its outcome."""
        self._renewal: CoordinatorCall[ProducerIdAndEpoch] | None = None
        """The pending request for a new epoch after the end of a transaction."""

    def initialize(self, name: str) -> None:
        """Initialise the transactional id, or wait for the response to an earlier attempt."""
        self._manager.require(name, UNINITIALIZED, INITIALIZING)
        pending = self._sender.coordinator.pending(requests.InitProducerId)
        self._wait_for(pending or self._sender.coordinator.initialize(), name)

    def begin(self) -> TransactionToken:
        manager = self._manager
        if manager.needs_new_epoch:
            if manager.state is READY:
                manager.transition(UNINITIALIZED)
            if manager.state in (UNINITIALIZED, INITIALIZING):
                self.initialize("begin_transaction")
        manager.require("begin_transaction", READY)
        manager.begun(self._sender.transport.transaction_version)
        self._is_in_doubt = False
        self._committed = Exchange()
        assert manager.transactional_id is not None
        return TransactionToken(manager.transactional_id, *self._identity(), manager.number)

    def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        manager, coordinator = self._manager, self._sender.coordinator
        manager.require("send_offsets_to_transaction", IN_TRANSACTION)
        if not offsets:
            return
        if manager.version == CLASSIC and group.group_id not in manager.groups:
            identity, tid = self._identity(), manager.transactional_id
            assert tid is not None
            added = coordinator.enqueue(
                requests.AddOffsetsToTxn(tid, *identity, group.group_id),
                lambda _: manager.groups.add(group.group_id),
            )
            self._wait_for(added, "send_offsets_to_transaction")
        manager.may_have_begun = True
        request = self._offsets_request(offsets, group)
        answered = Exchange[requests.OffsetErrors]()
        behind, now_ms = [(request, answered)], self._driver.clock.monotonic_ms()
        self._sender.flush_before(behind, now_ms, sync=False)
        if answered.has_answer:
            return
        committed = coordinator.enqueue(request, lambda _: None, answered)
        self._wait_for(committed, "send_offsets_to_transaction")

    def commit(
        self, offsets: Offsets | None = None, group: ConsumerGroupMetadata | None = None
    ) -> None:
        """Commit the transaction, with the offsets of a group if they are given."""
        manager = self._manager
        manager.require("commit_transaction", IN_TRANSACTION, COMMITTING_TRANSACTION)
        if manager.state is IN_TRANSACTION:
            self._sender.settle()
            if not self._is_committed:
                self._commit_with_last_records(offsets, group)
            if manager.error is not None:
                raise manager.error
            manager.transition(COMMITTING_TRANSACTION)
        self._end(committed=True)

    def _commit_with_last_records(
        self, offsets: Offsets | None, group: ConsumerGroupMetadata | None
    ) -> None:
        """Commit in one turn if possible; otherwise send everything except EndTxn."""
        behind: list[tuple[requests.Request[Any], Exchange[Any]]] = []
        if offsets and group:
            self._manager.may_have_begun = True
            request = self._offsets_request(offsets, group)
            behind.append((request, Exchange()))
        behind.append((self._end_request(committed=True), self._committed))
        self._sender.flush_before(behind, self._driver.clock.monotonic_ms(), sync=True)
        error = self._committed.error
        if isinstance(error, DatabaseLockedError) and error.outcome == "not written":
            self._committed = Exchange()
            raise error
        if not self._is_committed:
            if offsets and group:
                self.send_offsets(offsets, group)
            self._driver.flush(None)

    def abort(self) -> None:
        manager = self._manager
        states = IN_TRANSACTION, ABORTABLE_ERROR, ABORTING_TRANSACTION
        manager.require("abort_transaction", *states)
        self._sender.settle()
        if self._is_committed and manager.state is IN_TRANSACTION:
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

    @property
    def _is_committed(self) -> bool:
        """Whether the commit was carried out with the last records."""
        return self._committed.has_answer

    def close(self) -> None:
        """End the open transaction: finish a requested commit, otherwise abort."""
        if self._manager.state is COMMITTING_TRANSACTION:
            self._end(committed=True)
        else:
            self.abort()

    def _end(self, *, committed: bool) -> None:
        """Have the coordinator end the transaction, if the coordinator knows it."""
        manager, coordinator = self._manager, self._sender.coordinator
        name = "commit_transaction" if committed else "abort_transaction"
        self._renewal = None
        pending = coordinator.pending(requests.EndTxn)
        if pending is None:
            if committed and self._is_committed:
                self._ended(self._committed.answer)
            elif manager.has_begun:
                # Use a stored response only once; a second commit sends a new request.
                answered, self._committed = self._committed, Exchange()
                pending = coordinator.enqueue(
                    self._end_request(committed=committed),
                    self._ended,
                    answered if committed else None,
                )
                pending.unanswered += committed and self._is_in_doubt
            else:
                self._ended(self._identity())
        if pending is not None:
            try:
                self._wait_for(pending, name)
            except EosdbError as error:
                self._is_in_doubt = error.outcome == "unknown"
                if manager.state is COMMITTING_TRANSACTION and not self._is_in_doubt:
                    # Nothing was decided, so the program may abort, and `close` must not commit.
                    manager.transition(IN_TRANSACTION)
                raise
        if self._renewal is not None:
            self._wait_for(self._renewal, name)
        self._sender.metrics.count("txn-commit" if committed else "txn-abort")

    def _offsets_request(
        self, offsets: Offsets, group: ConsumerGroupMetadata
    ) -> requests.TxnOffsetCommit:
        assert self._manager.transactional_id is not None
        identity = self._identity()
        return requests.TxnOffsetCommit(
            transactional_id=self._manager.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group=group,
            offsets=offsets,
            transaction_version=self._manager.version,
        )

    def _end_request(self, *, committed: bool) -> requests.EndTxn:
        manager = self._manager
        identity, tid, version = self._identity(), manager.transactional_id, manager.version
        assert tid is not None
        return requests.EndTxn(tid, *identity, committed, transaction_version=version)

    def _ended(self, identity: ProducerIdAndEpoch) -> None:
        """Take over the identity for the next transaction; after some errors, request a new epoch first."""
        manager = self._manager
        if not manager.needs_new_epoch:
            manager.ended(identity)
            return
        manager.initialized(identity)
        self._renewal = self._sender.coordinator.initialize()

    def _wait_for(self, pending: CoordinatorCall[Any], name: str) -> None:
        """Run the sender until the coordinator's response arrives, at most max_block_ms."""
        limit = self._sender.settings.max_block_ms

        def give_up() -> EosdbError:
            error = pending.error or timed_out(name, limit)
            if isinstance(pending.request, requests.AddOffsetsToTxn | requests.TxnOffsetCommit):
                self._sender.coordinator.cancel(pending, error)
                self._manager.failed(error, type(pending.request))
            elif isinstance(pending.request, requests.EndTxn) and not pending.unanswered:
                self._sender.coordinator.cancel(pending, error)
            return in_doubt(error) if pending.unanswered else error

        self._driver.until(lambda: pending.done, limit, give_up)
        if pending.error is not None:
            raise pending.error

    def _identity(self) -> ProducerIdAndEpoch:
        assert self._manager.identity is not None
        return self._manager.identity
