"""The producer: Kafka's, by its settings, calls, states and errors.

Inline and synchronous: whoever calls sends. Outside of transactions a record with `linger_ms=0` is stored
when `send` returns; inside one, and with `linger_ms`, records gather into batches and leave when there is
enough, at `flush`, at the end of the transaction, or when a future is asked for its result.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Unpack

from eosdb.client.accumulator import (
    OnDelivery,
    ProduceFuture,
    RecordAccumulator,
)
from eosdb.client.config import ProducerConfig, ProducerSettings, Serializer
from eosdb.client.partitioner import partitioner_of
from eosdb.client.sender import Sender
from eosdb.client.transaction_manager import ClientState, TransactionManager
from eosdb.client.transport import Transport
from eosdb.clock import Clock
from eosdb.errors import (
    ConfigError,
    EosdbError,
    IllegalStateError,
    InvalidRequestError,
    MessageTooLargeError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from eosdb.model import (
    ConsumerGroupMetadata,
    Header,
    OffsetAndMetadata,
    Record,
    TopicPartition,
    TransactionToken,
)

_BUFFER_BYTES: Final = 1_048_576
"""How much gathers in memory before it is sent on its own."""


class Producer:
    """Sends records; exactly once with a transactional id. Threads may share it."""

    def __init__(
        self, transport: Transport, clock: Clock, /, **config: Unpack[ProducerConfig]
    ) -> None:
        try:
            self._settings = ProducerSettings(**config)
        except TypeError as error:
            raise ConfigError(f"a producer has no such setting: {error}") from None
        self._transport = transport
        self._clock = clock
        self._partitioner = partitioner_of(self._settings.partitioner)
        self._manager = TransactionManager(self._settings.transactional_id)
        self._accumulator = RecordAccumulator(self._settings.batch_size)
        self._sender = Sender(transport, clock, self._settings, self._manager, self._accumulator)
        self._lock = threading.RLock()
        self._counts: dict[str, int] = {}
        self._sticky: dict[str, int] = {}
        self._closed = False

    @property
    def state(self) -> str:
        """The producer's state by Kafka's name, such as `IN_TRANSACTION`."""
        return self._manager.state.name

    # -- transactions ---------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Take the transactional id: fence whoever had it, and end what it left open.

        Raises IllegalStateError on a second call, ProducerFencedError and the coordinator's other
        errors; all of them are fatal for this producer.
        """
        with self._lock:
            self._check_open()
            self._manager.require("init_transactions", ClientState.UNINITIALIZED)
            self._sender.initialize()

    def begin_transaction(self) -> TransactionToken:
        """Begin a transaction; local, nothing is sent. Raises IllegalStateError."""
        with self._lock:
            self._check_open()
            self._manager.require("begin_transaction", ClientState.READY)
            self._manager.transition(ClientState.IN_TRANSACTION)
            identity = self._sender.identity()
            assert self._manager.transactional_id is not None
            return TransactionToken(self._manager.transactional_id, *identity)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit a group's offsets with the transaction (KIP-447 with the group's metadata).

        Raises IllegalStateError outside a transaction, and the coordinator's errors, after which the
        transaction must be aborted or the producer closed.
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
        with self._lock:
            self._check_open()
            self._manager.require("send_offsets_to_transaction", ClientState.IN_TRANSACTION)
            if not offsets:
                return
            identity = self._sender.identity()
            with self._sender.coordinator_errors():
                if group.group_id not in self._manager.groups:
                    self._transport.add_offsets_to_txn(
                        self._sender.transactional_id(), *identity, group.group_id
                    )
                    self._manager.groups.add(group.group_id)
                self._transport.txn_offset_commit(
                    self._sender.transactional_id(),
                    group.group_id,
                    *identity,
                    offsets,
                    generation_id=group.generation_id,
                    member_id=group.member_id,
                    group_instance_id=group.group_instance_id,
                )

    def commit_transaction(self) -> None:
        """Send what is waiting, then commit. Durable and visible when this returns.

        Raises the error of any send of the transaction that failed (then abort), or the coordinator's.
        After an error that may be retried (the database was locked) the call may be repeated.
        """
        with self._lock:
            self._check_open()
            self._manager.require(
                "commit_transaction",
                ClientState.IN_TRANSACTION,
                ClientState.COMMITTING_TRANSACTION,
            )
            if self._manager.state is ClientState.IN_TRANSACTION:
                self._sender.send_all()
                if self._manager.error is not None:
                    raise self._manager.error
                self._manager.transition(ClientState.COMMITTING_TRANSACTION)
            self._sender.end(committed=True)

    def abort_transaction(self) -> None:
        """Take the transaction back; records that were not sent yet fail.

        Raises IllegalStateError without a transaction, and the error of a fatal state.
        """
        with self._lock:
            self._check_open()
            self._manager.require(
                "abort_transaction",
                ClientState.IN_TRANSACTION,
                ClientState.ABORTABLE_ERROR,
                ClientState.ABORTING_TRANSACTION,
            )
            if self._manager.state is not ClientState.ABORTING_TRANSACTION:
                self._manager.transition(ClientState.ABORTING_TRANSACTION)
            self._sender.fail_waiting("the transaction was aborted before the record was sent")
            self._sender.end(committed=False)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[TransactionToken]:
        """A transaction around the block: committed at its end, aborted when it raises."""
        token = self.begin_transaction()
        try:
            yield token
            self.commit_transaction()
        except BaseException as error:
            self._abort_after(error)
            raise

    def _abort_after(self, error: BaseException) -> None:
        """Abort what `error` interrupted. That a newer producer has taken over shows only now, and
        is the better thing to tell; any other failure of the abort shows at the next call."""
        if self._manager.state in (ClientState.IN_TRANSACTION, ClientState.ABORTABLE_ERROR):
            try:
                self.abort_transaction()
            except ProducerFencedError as fenced:
                raise fenced from error
            except EosdbError:
                return

    # -- records --------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> ProduceFuture:
        """Send one record; `str` is UTF-8 encoded, other types need a serializer.

        Returns a future of its RecordMetadata. Raises TypeError for what cannot be serialized,
        IllegalStateError, UnknownTopicOrPartitionError and MessageTooLargeError at once; what the
        broker refuses later is the future's error.
        """
        settings = self._settings
        key_bytes = _serialized("key", key, settings.key_serializer)
        value_bytes = _serialized("value", value, settings.value_serializer)
        size = len(key_bytes or b"") + len(value_bytes or b"")
        if headers:
            size += sum(len(name) + len(data or b"") for name, data in headers)
        if size > settings.max_request_size:
            raise MessageTooLargeError(
                f"the record has {size} bytes, max_request_size is {settings.max_request_size}"
            )
        with self._lock:
            self._check_open()
            if settings.transactional_id is not None:
                self._manager.require("send", ClientState.IN_TRANSACTION)
            elif self._manager.error is not None:
                raise self._manager.error
            now = self._clock.time_ms()
            tp = TopicPartition(topic, self._partition(topic, partition, key_bytes))
            record = Record(
                key_bytes, value_bytes, headers, now if timestamp is None else timestamp
            )
            batch = self._accumulator.append(tp, record, size, now, self.flush)
            future = ProduceFuture(batch, len(batch.records) - 1)
            if on_delivery is not None:
                batch.callbacks.append((future, on_delivery))
            if self._is_time_to_send(now):
                self._sender.send_all()
            return future

    def flush(self, timeout_ms: int | None = None) -> None:
        """Send everything that waits; afterwards every future is done."""
        with self._lock:
            self._check_open()
            self._sender.send_all()

    def close(self) -> None:
        """Send what waits, or abort the open transaction; idempotent, never raises a broker error."""
        with self._lock:
            if self._closed:
                return
            with contextlib.suppress(EosdbError):
                if self._manager.state in (
                    ClientState.COMMITTING_TRANSACTION,
                    ClientState.ABORTING_TRANSACTION,
                ):
                    self._sender.end(
                        committed=self.state == ClientState.COMMITTING_TRANSACTION.name
                    )
                elif self._manager.state in (
                    ClientState.IN_TRANSACTION,
                    ClientState.ABORTABLE_ERROR,
                ):
                    self.abort_transaction()
                else:
                    self._sender.send_all()
            self._sender.fail_waiting("the producer was closed before the record was sent")
            self._closed = True

    def metrics(self) -> dict[str, int]:
        """Counters under Kafka's names, from this producer's beginning on."""
        with self._lock:
            return dict(self._sender.metrics)

    def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has. Raises UnknownTopicOrPartitionError."""
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._transport.partitions_for(topic)
        return count

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- small steps ----------------------------------------------------------------------------

    def _is_time_to_send(self, now_ms: int) -> bool:
        if self._accumulator.buffered_bytes >= _BUFFER_BYTES:
            return True
        if self._settings.transactional_id is not None:
            return False
        if self._settings.linger_ms == 0:
            return True
        oldest = self._accumulator.oldest_ms()
        return oldest is not None and now_ms - oldest >= self._settings.linger_ms

    def _partition(self, topic: str, partition: int | None, key: bytes | None) -> int:
        count = self.partitions_for(topic)
        if partition is not None:
            if not isinstance(partition, int) or not 0 <= partition < count:
                self._counts.pop(topic, None)
                if isinstance(partition, int) and 0 <= partition < self.partitions_for(topic):
                    return partition
                raise UnknownTopicOrPartitionError(
                    f"topic {topic!r} has partitions 0 to {count - 1}, got {partition!r}"
                )
            return partition
        if key is not None:
            chosen = self._partitioner(key, count)
            if not 0 <= chosen < count:
                raise ConfigError(
                    f"the partitioner chose {chosen!r} for a topic of {count} partitions"
                )
            return chosen
        sticky = self._sticky.get(topic)
        if sticky is None or not self._accumulator.has_room(TopicPartition(topic, sticky)):
            sticky = self._sticky[topic] = random.randrange(count)
        return sticky

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the producer has been closed")


def _serialized(what: str, given: object, serializer: Serializer | None) -> bytes | None:
    data: object = given
    if (type(data) is bytes or data is None) and (serializer is None or data is None):
        return data
    if serializer is not None:
        data = serializer(given)
    elif isinstance(data, str):
        data = data.encode()
    if type(data) is not bytes:
        raise TypeError(
            f"{what}: got {type(given).__name__}, expected bytes, str or None; give the producer a "
            f"{what}_serializer"
        )
    return data
