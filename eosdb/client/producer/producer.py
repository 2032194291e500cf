"""The producer, with the settings, calls, states and errors of Kafka's.

By default requests are sent inline, in the caller's thread. Outside a transaction with `linger_ms=0`, a
record has been sent when `send` returns, and is stored if the transport is direct. Inside a transaction,
records gather in batches, which are sent when the buffer is full, at `flush`, at the end of the
transaction, or when `result()` of a future is called. With `linger_ms` a background thread sends them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Never, TypeVar, Unpack

from eosdb.client.producer.accumulator import OnDelivery, ProduceFuture, RecordAccumulator
from eosdb.client.producer.bulk import CHUNK_RECORDS, Pieces, Sendable, SentRecords, take, too_large
from eosdb.client.producer.driver import Driver, SingleSends, timed_out
from eosdb.client.producer.partitioning import PartitionChooser
from eosdb.client.producer.sender import Sender
from eosdb.client.producer.settings import ProducerConfig, ProducerSettings
from eosdb.client.producer.state import ABORTABLE_ERROR, IN_TRANSACTION, TransactionManager
from eosdb.client.producer.transactions import ProducerTransactions
from eosdb.client.transport import DirectTransport, Transport
from eosdb.errors import (
    ConfigError,
    DatabaseLockedError,
    EosdbError,
    IllegalStateError,
    InvalidRequestError,
    ProducerFencedError,
    StorageError,
    TransactionAbortableError,
    in_doubt,
    in_part,
)
from eosdb.model.clock import Clock, DeliverAt, later_ms
from eosdb.model.closing import Closeable
from eosdb.model.config import checked_settings
from eosdb.model.metrics import Metrics
from eosdb.model.records.serializing import check_key_is_named, serialized
from eosdb.model.requests import Produce
from eosdb.model.validation import as_headers, check_timestamp
from eosdb.model.values import (
    ConsumerGroupMetadata,
    Headers,
    OffsetAndMetadata,
    TopicPartition,
    TransactionToken,
    waiting_partition,
)

T = TypeVar("T")
_BUFFER_BYTES: Final = 1_048_576
"""The size of the buffer in bytes; when it is full, all batches are sent."""
_RATES: Final = ("record-send", "record-retry", "record-error", "byte", "request")


class Producer(Closeable):
    """Sends records, exactly once with a transactional id. Threads may share it."""

    def __init__(
        self, transport: Transport, clock: Clock, /, **config: Unpack[ProducerConfig]
    ) -> None:
        self._settings = checked_settings(ProducerSettings, "producer", config)
        self._transport = transport
        self._clock = clock
        self._metrics = Metrics(clock, _RATES)
        self._manager = TransactionManager(self._settings)
        most_bytes = self._settings.batch_size
        if "batch_size" not in config and type(transport) is DirectTransport:
            most_bytes = max(most_bytes, _BUFFER_BYTES)
        self._accumulator = RecordAccumulator(self._settings.batch_size, most_bytes)
        self._sender = Sender(transport, self._manager, self._accumulator, self._metrics)
        self._lock = threading.RLock()
        self._driver = Driver(self._sender, clock, self._lock)
        self._transactions = ProducerTransactions(self._driver)
        self._chooser = PartitionChooser(self._driver)
        self._singles = SingleSends(clock)
        self._is_gathering = self._abort_is_due = False
        self._linger_due_ms: int | None = None
        self._closed = False

    @property
    def state(self) -> str:
        """The producer's state by Kafka's name, such as `IN_TRANSACTION`."""
        return self._manager.state.name

    # -- transactions ---------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Initialise the transactional id: fence its previous holder, and end the transaction that the
        previous holder left open.

        Raises IllegalStateError on a second call, RequestTimedOutError after max_block_ms (call again),
        and the coordinator's errors, which are fatal for this producer.
        """
        self._timed("txn-init", self._transactions.initialize, "init_transactions")

    def begin_transaction(self) -> TransactionToken:
        """Begin a transaction. The token identifies it for `db.outcome`.

        Usually no request is sent. If the previous transaction was empty, and so unknown to the
        coordinator, a new epoch is requested first. Raises IllegalStateError, and if a request is sent
        RequestTimedOutError after max_block_ms (call again) and the coordinator's errors.
        """
        token = self._timed("txn-begin", self._transactions.begin)
        self._abort_is_due = False
        return token

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit a group's offsets with the transaction (KIP-447 with the group's metadata).

        Raises InvalidRequestError for invalid group metadata, which leaves the transaction unchanged;
        IllegalStateError outside a transaction; and the coordinator's errors, after which the transaction
        must be aborted or the producer closed.
        """
        group = (
            ConsumerGroupMetadata(group_metadata)
            if isinstance(group_metadata, str)
            else group_metadata
        )
        if not isinstance(group, ConsumerGroupMetadata):
            raise InvalidRequestError(
                f"group_metadata: got {group_metadata!r}, expected consumer.group_metadata()"
            )
        if group.generation_id > 0 and not group.member_id:
            raise InvalidRequestError(
                f"group_metadata: got generation {group.generation_id} without a member id, expected "
                "consumer.group_metadata(), or the group's id alone for offsets that no member checks"
            )
        self._timed("txn-send-offsets", self._transactions.send_offsets, offsets, group)

    def commit_transaction(self) -> None:
        """Send waiting records, then commit. The transaction is durable and visible when this returns.

        If a send of the transaction has failed, raises its error; then abort. Otherwise raises the
        coordinator's errors. After a retriable error (the database was locked, no response within
        max_block_ms) the call may be repeated.
        """
        self._timed("txn-commit", self._transactions.commit)

    def _commit_with(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """`send_offsets_to_transaction` and `commit_transaction` in one turn if possible."""
        self._timed("txn-commit", self._transactions.commit, offsets, group)

    def abort_transaction(self) -> None:
        """Abort the transaction. Unsent records fail; responses of records in flight are awaited.

        Raises IllegalStateError without a transaction, RequestTimedOutError after max_block_ms (call
        again), and the error of a fatal state.
        """
        self._timed("txn-abort", self._transactions.abort)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[TransactionToken]:
        """Run the block in a transaction: commit at its end, abort if it raises. If the database is locked
        then, the next `transaction()` or `close` aborts the transaction."""
        if self._abort_is_due and self._manager.may_end:
            self.abort_transaction()
        token = self.begin_transaction()
        try:
            yield token
            self.commit_transaction()
        except BaseException as error:
            self._abort_after(error)
            raise

    def _abort_after(self, error: BaseException) -> None:
        """Abort the transaction that `error` interrupted. If the abort shows that a newer producer has
        taken over, raises that error, which explains more. The next call raises other errors of the
        abort."""
        manager = self._manager
        if manager.state in (IN_TRANSACTION, ABORTABLE_ERROR):
            # After DatabaseLockedError, the next call aborts: an abort now would wait for the same lock.
            self._abort_is_due = isinstance(error, DatabaseLockedError) and manager.has_begun
            if self._abort_is_due:
                return
            try:
                self.abort_transaction()
            except ProducerFencedError as fenced:
                raise fenced from error
            except EosdbError:
                return

    # -- records --------------------------------------------------------------------------------

    # decisions/0085: the key must be a keyword, so that it is not mistaken for the value.
    def send(
        self,
        topic: str,
        value: object = None,
        *misplaced: Never,
        key: object = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
        deliver_at: DeliverAt | None = None,
    ) -> ProduceFuture:
        """Send one record. `str` is encoded as UTF-8, other types need a serializer. For many records use
        `send_many`. With `deliver_at` the record is stored now, and enters its topic at that time.

        Returns a future of the RecordMetadata, or of the broker's error. Raises TypeError for what cannot
        be serialized; or IllegalStateError, InvalidRecordError, InvalidTimestampError,
        UnknownTopicOrPartitionError, MessageTooLargeError, RequestTimedOutError: then abort a transaction.
        """
        check_key_is_named("send", misplaced)
        settings = self._settings
        try:
            key_bytes = None if key is None else serialized("key", key, settings.key_serializer)
            value_bytes = value if type(value) is bytes else None
            if value_bytes is None or settings.value_serializer is not None:
                value_bytes = serialized("value", value, settings.value_serializer)
            size = (len(value_bytes) if value_bytes else 0) + (len(key_bytes) if key_bytes else 0)
            pairs = as_headers(headers) if headers else ()
            size += sum(len(name) + len(data or b"") for name, data in pairs) if pairs else 0
            if timestamp is not None:
                check_timestamp(timestamp)
            with self._lock:
                manager, accumulator = self._manager, self._accumulator
                if self._closed or (manager.state is not IN_TRANSACTION and not manager.may_send):
                    self._refuse_to_send()
                if size > settings.max_request_size or accumulator.buffered_bytes >= _BUFFER_BYTES:
                    self._make_room(size)
                now_ms = self._clock.time_ms()
                due = None if deliver_at is None else later_ms(deliver_at, timestamp, now_ms)
                if due is None:
                    batch = self._chooser.batch_for(topic, partition, key_bytes, size)
                    timestamp = now_ms if timestamp is None else timestamp
                else:
                    to = self._chooser.number_for(topic, partition, key_bytes, size)
                    batch = self._chooser.filling(topic, waiting_partition(to), size)
                    timestamp = due
                manager.may_have_begun = True
                future = batch.append(key_bytes, value_bytes, pairs, timestamp, size)
                accumulator.buffered_bytes += size
                if on_delivery is not None:
                    batch.callbacks.append((future, on_delivery))
                if settings.linger_ms:
                    self._linger(self._clock.monotonic_ms())
                elif settings.transactional_id is None and not self._is_gathering:
                    self._driver.step()
                    self._singles.add()
                return future
        except EosdbError as error:
            self._lost_a_record(error)
            raise

    def send_many(
        self,
        topic: str,
        records: Iterable[Sendable],
        *,
        partition: int | None = None,
        sent: SentRecords | None = None,
    ) -> SentRecords:
        """Send an iterable of values, of pairs `(key, value)`, of ProducerRecord, or of a mixture of them.

        Outside a transaction the records are stored when this returns, some thousands to a commit; inside
        one they wait for its end, as with `send`. Memory use is bounded.

        Raises the errors that `send` or the record's future would raise, and those of the iterable; the
        records before the error are sent. To continue after an exception, pass a SentRecords as `sent` and
        send the records from index `sent.accepted` on. Failed records before that index are in
        `sent.failed`, and must be sent again if they are still wanted.
        """
        sent = SentRecords() if sent is None else sent
        try:
            self._send_pieces(topic, Pieces(records), partition, sent)
        except Exception as error:
            error.add_note(f"send_many: {sent}")
            failed = sent.failed.values()
            is_open = len(failed) < sent.accepted or any(e.outcome == "unknown" for e in failed)
            if isinstance(error, EosdbError) and is_open:
                in_doubt(error)  # `sent` tells which records are stored.
                if sent.stored and self._settings.transactional_id is None:
                    in_part(error, f"{sent.stored} records are stored, see SentRecords")
            raise
        return sent

    def _send_pieces(
        self, topic: str, pieces: Pieces, partition: int | None, sent: SentRecords
    ) -> None:
        before, flushed, is_last = len(sent.failed), sent.accepted, False
        while not is_last:
            given, error = pieces.next()  # Runs the caller's code, which must not hold the lock.
            with self._lock:
                if self._closed or not self._manager.may_send:
                    self._refuse_to_send()
                self._manager.may_have_begun |= bool(given)
                accumulator = self._accumulator
                bytes_before = accumulator.buffered_bytes
                try:
                    unsendable = take(self._chooser, topic, partition, given, sent)
                except EosdbError as refused:
                    unsendable = refused
                if isinstance(unsendable, EosdbError):
                    self._lost_a_record(unsendable)
                error = unsendable or error
                pieces.measured(accumulator.buffered_bytes - bytes_before)
                is_last = error is not None or not given
                if (
                    accumulator.buffered_bytes >= _BUFFER_BYTES
                    or sent.accepted - flushed >= CHUNK_RECORDS
                    or (is_last and self._settings.transactional_id is None)
                ):
                    self._driver.flush(None)
                    flushed = sent.accepted
            if error is not None:
                raise error
            if failed := list(sent.failed.values())[before:]:
                raise failed[0]

    @contextlib.contextmanager
    def gathering(self) -> Iterator[None]:
        """Context manager: records sent in the block are committed together when it ends, and their futures
        complete then. Sends of other threads block until then."""
        with self._lock:
            self._is_gathering = True
            try:
                yield
            finally:
                self._is_gathering = False
                self._driver.flush(None)

    def _lost_a_record(self, error: EosdbError) -> None:
        """Make sure that a transaction without the refused record cannot be committed, even if the caller
        continues (Kafka: doSend, maybeTransitionToErrorState)."""
        with self._lock:
            if self._manager.may_send and not isinstance(error, (ConfigError, IllegalStateError)):
                self._manager.failed(error, Produce)

    def _refuse_to_send(self) -> None:
        self._check_open()
        if self._settings.transactional_id is not None:
            self._manager.require("send", IN_TRANSACTION)
        assert self._manager.error is not None
        raise self._manager.error

    def _linger(self, now_ms: int) -> None:
        """Leave the record to the background thread, unless lingering batches are due now."""
        linger_ms = self._settings.linger_ms
        with contextlib.suppress(StorageError):  # If no thread starts, the next call sends.
            self._driver.start()
        if self._linger_due_ms is None:
            self._linger_due_ms = now_ms + linger_ms
        elif now_ms >= self._linger_due_ms:
            self._linger_due_ms = now_ms + (self._sender.run_once(now_ms) or linger_ms)

    def flush(self, timeout_ms: int | None = None) -> None:
        """Send all waiting records; all futures are done when this returns.

        Raises RequestTimedOutError if that takes longer than `timeout_ms`, and IllegalStateError inside a
        delivery callback.
        """
        self._timed("flush", self._driver.flush, timeout_ms)

    def _make_room(self, size: int) -> None:
        """Send until the buffer has room, as Kafka's `send` blocks on buffer.memory."""
        if size > self._settings.max_request_size:
            raise too_large(size, self._settings.max_request_size)
        self._driver.flush_until(
            lambda: self._sender.is_running or self._accumulator.buffered_bytes < _BUFFER_BYTES,
            self._settings.max_block_ms,
            self._no_room,
        )

    def _no_room(self) -> EosdbError:
        error = timed_out("send: the buffer is full", self._settings.max_block_ms)
        error.outcome = "not written"
        return error

    def close(self) -> None:
        """Send waiting records, or abort the open transaction. Idempotent; raises no errors of the
        broker."""
        with self._lock:
            if not self._closed:
                with contextlib.suppress(EosdbError):
                    if self._manager.may_end:
                        self._transactions.close()
                    else:
                        self._driver.flush(self._settings.delivery_timeout_ms)
                self._sender.drop_waiting(
                    TransactionAbortableError(
                        "the producer was closed before the record was stored"
                    )
                )
                self._closed = True
        self._driver.stop()  # An interrupt may have ended an earlier `close` before this.

    def metrics(self) -> dict[str, float]:
        """Return counters, averages and rates under Kafka's names, since this producer was created."""
        return self._metrics.snapshot()

    def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of the topic. Raises UnknownTopicOrPartitionError."""
        return self._chooser.partition_count(topic)

    # -- small steps ----------------------------------------------------------------------------

    def _timed(self, name: str, call: Callable[..., T], *args: object) -> T:
        """Make the call of an open producer under the lock, and add its time to `…-time-ns-total`."""
        with self._lock:
            self._check_open()
            start = self._metrics.now_ns()
            try:
                return call(*args)
            finally:
                self._metrics.count(f"{name}-time-ns", self._metrics.now_ns() - start)

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the producer has been closed")
