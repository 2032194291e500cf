"""A transaction over the user's own tables and the log: one that `Database.begin` opens, or the program's
own (`join`). It is one unit of the file, authorised and recorded as events like any request. Kafka's
transactions are not involved.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Never, overload

from eosdb.broker.core import Core, Rules
from eosdb.broker.group_offsets import checked, commit_offsets
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.projection import apply
from eosdb.errors import ConfigError, EosdbError, InvalidRequestError
from eosdb.events.kinds import IdempotencyKeyUsed
from eosdb.log import append as log_append
from eosdb.log import once, partition_rows, scheduled, topics
from eosdb.log.batch import prepare
from eosdb.model.clock import Clock, DeliverAt, SystemClock, later_ms
from eosdb.model.config import BrokerConfig
from eosdb.model.records.partitioner import consistent_random
from eosdb.model.records.serializing import check_key_is_named, serialized
from eosdb.model.requests import OffsetCommit
from eosdb.model.validation import as_headers, check_group_id, check_text, check_topic_partition
from eosdb.model.values import (
    ConsumerGroupMetadata,
    Headers,
    OffsetAndMetadata,
    Record,
    RecordBatch,
    RecordMetadata,
    TopicPartition,
    waiting_partition,
)
from eosdb.store.writing.held_unit import HeldUnit
from eosdb.store.writing.joined_unit import driver_connection, joined
from eosdb.store.writing.unit import Unit

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session, scoped_session

    Joinable = sqlite3.Connection | Session | scoped_session[Session] | Connection


Offsets = Mapping[TopicPartition, OffsetAndMetadata]

_BLOCK: Final = "the block of db.begin() is over, and its transaction with it; begin a new one"
_HANDLER: Final = (
    "the handler has returned, and its transaction is over; use `tx` only while the handler runs, and in "
    "its own thread"
)


def offsets_first(offsets: object, group: object) -> tuple[Any, Any]:
    """The offsets and the group, in this order. They may be given in either order: only offsets are a
    mapping."""
    is_swapped = isinstance(group, Mapping) and not isinstance(offsets, Mapping)
    return (group, offsets) if is_swapped else (offsets, group)


class LogTransaction(ABC):
    """The writes to the log of a transaction over the user's own tables."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    @abstractmethod
    def _unit(self) -> AbstractContextManager[Unit]:
        """Write to eosdb's tables: everything in the block or, if it raises, nothing."""

    def publish(
        self,
        topic: str,
        value: object = None,
        *misplaced: Never,
        key: object = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        idempotency_key: str | None = None,
        deliver_at: DeliverAt | None = None,
    ) -> RecordMetadata:
        """Append a record; readers see it when the transaction is committed, or at the time `deliver_at`.

        `str` is UTF-8 encoded. Without `partition`, the partition is chosen by the key, as by a producer.
        An `idempotency_key` counts once for each topic, in all processes. A repeat appends nothing,
        whatever it contains, and returns the position of the first record with `duplicate=True`. Raises
        UnknownTopicOrPartitionError, MessageTooLargeError, InvalidRecordError, InvalidTimestampError,
        TypeError and the authorization errors; the transaction can go on after any of them.
        """
        check_key_is_named("publish", misplaced)
        record = Record(
            serialized("key", key, None),
            serialized("value", value, None),
            as_headers(headers),
            timestamp,
        )
        due = later_ms(deliver_at, timestamp, self._rules.clock.time_ms())
        with self._unit() as unit:
            return _publish(self._rules, unit, topic, record, partition, idempotency_key, due)

    @overload
    def commit_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None: ...
    @overload
    def commit_offsets(self, group: str | ConsumerGroupMetadata, offsets: Offsets, /) -> None: ...
    def commit_offsets(self, offsets: Any, group: Any) -> None:
        """Commit offsets of the group, such as `consumer.position_offsets()`, in the same transaction.
        The offsets come first, as in `Producer.send_offsets_to_transaction`; either order works.

        A member of a group passes `consumer.group_metadata()` instead of the group's name. Then its
        commit is refused once it has lost its partitions (KIP-447). Raises the errors of
        `Broker.offset_commit`.
        """
        offsets, group = offsets_first(offsets, group)
        with self._unit() as unit:
            _commit(self._rules, unit, group, offsets)


class UserTransaction(LogTransaction):
    """The operations inside a block of `db.begin()`, or in a handler of two parameters; unusable after the
    block has ended or the handler has returned."""

    def __init__(self, held: HeldUnit, rules: Rules, over: str = _BLOCK) -> None:
        super().__init__(rules)
        self._held: HeldUnit | None = held
        self._over = over
        self._lock = threading.RLock()

    @property
    def connection(self) -> Connection:
        """A SQLAlchemy connection inside the transaction, for tables of your own.

        `begin_nested` makes savepoints; for an ORM session use
        `Session(tx.connection, join_transaction_mode="create_savepoint")`. Writing to eosdb's own tables
        is refused, and so is ending the transaction by hand.
        """
        return self._open().connection

    def end(self) -> None:
        """Make the object unusable: the block has ended."""
        with self._lock:
            self._held = None

    @contextlib.contextmanager
    def _unit(self) -> Iterator[Unit]:
        with self._lock, self._open().ours() as unit:
            yield unit

    def _open(self) -> HeldUnit:
        if self._held is None:
            raise InvalidRequestError(self._over)
        return self._held


class UnitOfParts:
    """A unit for several records of a processor; each attempt is a part that can be rolled back."""

    def __init__(self, held: HeldUnit, rules: Rules) -> None:
        self._held = held
        self._rules = rules

    @property
    def is_whole(self) -> bool:
        """False after SQLite itself has rolled back the whole unit."""
        return self._held.is_whole

    @property
    def failure(self) -> EosdbError | None:
        """The error of the file or its disk, if any."""
        return self._held.failure

    @contextlib.contextmanager
    def part(self) -> Iterator[UserTransaction]:
        """A transaction for the block, rolled back to the beginning of the block if the block raises."""
        transaction = UserTransaction(self._held, self._rules, _HANDLER)
        with self._held.part():
            try:
                yield transaction
            finally:
                transaction.end()

    def commit_offsets(self, group: ConsumerGroupMetadata, offsets: Offsets) -> None:
        """As `UserTransaction.commit_offsets`."""
        with self._held.ours() as unit:
            _commit(self._rules, unit, group, offsets)


@contextlib.contextmanager
def begin(core: Core) -> Iterator[UserTransaction]:
    """Begin a transaction over the user's own tables and the log."""
    with _unit(core) as held:
        transaction = UserTransaction(held, core)
        try:
            yield transaction
        finally:
            transaction.end()


@contextlib.contextmanager
def begin_parts(core: Core) -> Iterator[UnitOfParts]:
    with _unit(core) as held:
        yield UnitOfParts(held, core)


@contextlib.contextmanager
def _unit(core: Core) -> Iterator[HeldUnit]:
    """Do due work, such as ending expired transactions, then hold a unit for the block."""
    core.coordinator.do_what_is_due()
    with core.store.begin() as held:
        yield held
    core.coordinator.after_write()


def _publish(
    rules: Rules,
    unit: Unit,
    topic: str,
    record: Record,
    partition: int | None,
    idempotency_key: str | None,
    due: int | None,
) -> RecordMetadata:
    """Append one record without a producer id, or nothing if its idempotency key has been used. With `due`
    it waits until then."""
    now = rules.clock.time_ms()
    batch = prepare(RecordBatch([record if due is None else record._replace(timestamp=due)]), now)
    check_topic_partition((topic, 0))
    rules.authorizer.check(unit, "write", "topic", topic)
    if idempotency_key is not None:
        once.check_key(idempotency_key)
        if (first := once.find_key(unit, topic, idempotency_key)) is not None:
            return first
    tp = check_topic_partition((topic, _partition_for(rules, unit, topic, record.key, partition)))
    if due is not None:
        tp = TopicPartition(topic, waiting_partition(tp.partition))
    row = scheduled.load(unit, tp, now)
    config = partition_rows.config(unit, row.topic_id, rules.config)
    result = log_append.append(unit, row, batch, config, now)
    timestamp = batch.timestamps[0] if result.log_append_time < 0 else result.log_append_time
    if idempotency_key is not None:
        unit.record(
            IdempotencyKeyUsed(
                timestamp=now,
                topic=topic,
                partition=tp.partition,
                idempotency_key=idempotency_key,
                offset=result.base_offset,
                record_timestamp=timestamp,
            )
        )
    return RecordMetadata(topic, tp.partition, result.base_offset, timestamp)


def _commit(rules: Rules, unit: Unit, group: str | ConsumerGroupMetadata, offsets: Offsets) -> None:
    if not isinstance(group, ConsumerGroupMetadata):
        group = ConsumerGroupMetadata(group)
    check_group_id(group.group_id)
    request = OffsetCommit(group=group, offsets=offsets)
    commit_offsets(rules, unit, request, checked(request))


def _partition_for(
    rules: Rules, unit: Unit, topic: str, key: bytes | None, partition: int | None
) -> object:
    if rules.config.auto_create_topics_enable:
        rules.ensure_topic(unit, topic)
    if partition is not None:
        return partition
    count = topics.partition_count(unit, topic)
    if count is None:
        raise topics.unknown(unit, topic)
    return random.randrange(count) if key is None else consistent_random(key, count)


class JoinedTransaction(LogTransaction):
    """The open transaction on a program's own connection; unusable outside of a transaction."""

    def __init__(self, connection: sqlite3.Connection, rules: Rules) -> None:
        super().__init__(rules)
        self._connection: Final = connection

    @contextlib.contextmanager
    def _unit(self) -> Iterator[Unit]:
        with joined(self._connection, apply) as unit:
            yield unit


def join(
    connection: Joinable,
    *,
    principal: str = "User:ANONYMOUS",
    config: BrokerConfig | None = None,
    clock: Clock | None = None,
) -> JoinedTransaction:
    """Publish, and commit offsets, in the transaction that is open on a connection to a file with eosdb's
    tables: a `sqlite3.Connection`, or a SQLAlchemy `Session` or `Connection`.

    It is yours to commit or to roll back, also to a savepoint: records and offsets share the fate of your
    rows. The file need not be open in eosdb; `principal`, `config` and `clock` are those of `connect`.
    Raises ConfigError for anything that is not such a connection.
    """
    return JoinedTransaction(driver_connection(connection), rules_of(principal, config, clock))


def rules_of(
    principal: str, config: BrokerConfig | None = None, clock: Clock | None = None
) -> Rules:
    """Make the `Rules` of a program that has not opened the file."""
    config = config or BrokerConfig()
    authorizer = Authorizer(check_text("principal", principal, ConfigError), config.super_users)
    return Rules(clock or SystemClock(), config, authorizer)
