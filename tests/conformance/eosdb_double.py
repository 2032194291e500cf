"""eosdb as a system under test: a real file, and a clock that moves only when a check waits."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import cast

import eosdb
from eosdb.model.values import IsolationLevel
from tests.conformance.double import READ_COMMITTED, TOPIC, Identity, Producer, Requests, Settings

_START_MS = 1_700_000_000_000
_TP = eosdb.TopicPartition(TOPIC, 0)


class EosdbDouble:
    """`Double` on a database in a temporary folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._clock = eosdb.ManualClock(_START_MS)
        self._open()
        self.db.admin.create_topic(TOPIC, partitions=2)

    def producer(self, settings: Settings) -> Producer:
        return _EosdbProducer(self, settings)

    def read(self, partition: int = 0, isolation: str = READ_COMMITTED) -> list[str]:
        with self._consumer(isolation) as consumer:
            consumer.assign([eosdb.TopicPartition(TOPIC, partition)])
            return _values(consumer)

    def end_offset(self, isolation: str) -> int:
        with self._consumer(isolation) as consumer:
            return consumer.end_offsets([_TP])[_TP]

    def offset_at(self, timestamp: int, isolation: str) -> int | None:
        with self._consumer(isolation) as consumer:
            found = consumer.offsets_for_times({_TP: timestamp})[_TP]
        return None if found is None else found.offset

    def commit_offset(self, group: str, offset: int) -> None:
        with self._consumer(READ_COMMITTED, group) as consumer:
            consumer.commit({_TP: eosdb.OffsetAndMetadata(offset)})

    def committed_offset(self, group: str, *, stable: bool = False) -> int | None:
        found = self.db.broker.offset_fetch(group, [_TP], require_stable=stable).get(_TP)
        return None if found is None else found.offset

    def read_on(self, group: str) -> list[str]:
        with self._consumer(READ_COMMITTED, group) as consumer:
            consumer.assign([_TP])
            values = _values(consumer)
            consumer.commit()
        return values

    def member(self, group: str) -> object:
        with self._consumer(READ_COMMITTED, group) as consumer:
            return consumer.group_metadata()

    def departed_member(self, group: str) -> object:
        """It joins, and leaves when the block ends."""
        with self._consumer(READ_COMMITTED, group) as consumer:
            consumer.subscribe(TOPIC)
            return consumer.group_metadata()

    def requests(self) -> Requests:
        return _EosdbRequests(self.db.broker)

    def wait(self, ms: int) -> None:
        self._clock.advance(ms)

    def restart(self) -> None:
        self.db.close()
        self._open()

    def error_name(self, error: Exception) -> str:
        return error.name if isinstance(error, eosdb.ApiError) else type(error).__name__

    def close(self) -> None:
        self.db.close()
        self._folder.cleanup()

    def _open(self) -> None:
        self.db = eosdb.connect(Path(self._folder.name) / "sheet.db", clock=self._clock)

    def _consumer(self, isolation: str, group: str | None = None) -> eosdb.Consumer:
        level = cast(IsolationLevel, isolation)
        return self.db.consumer(group, isolation_level=level, auto_offset_reset="earliest")


class _EosdbProducer:
    def __init__(self, double: EosdbDouble, settings: Settings) -> None:
        self._double = double
        self._transactional_id = settings.transactional_id
        self._producer = double.db.producer(
            transactional_id=settings.transactional_id,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            enable_idempotence=settings.idempotence is not False,
            acks=settings.acks or "all",
            max_in_flight_requests_per_connection=settings.max_in_flight or 5,
        )

    def init(self) -> None:
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, value: str, partition: int = 0, timestamp: int | None = None) -> None:
        self._producer.send(TOPIC, value, partition=partition, timestamp=timestamp).result()

    def send_offset(self, offset: int, member: object) -> None:
        assert isinstance(member, eosdb.ConsumerGroupMetadata)
        self._producer.send_offsets_to_transaction({_TP: eosdb.OffsetAndMetadata(offset)}, member)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def identity(self) -> Identity:
        assert self._transactional_id is not None
        described = self._double.db.broker.describe_transactions([self._transactional_id])
        known = described[self._transactional_id]
        return Identity(known.producer_id, known.producer_epoch)


class _EosdbRequests:
    def __init__(self, broker: eosdb.Broker) -> None:
        self._broker = broker

    def identity(self, transactional_id: str | None = None) -> Identity:
        return Identity(*self._broker.init_producer_id(transactional_id))

    def add_partition(self, transactional_id: str, identity: Identity) -> None:
        self._broker.add_partitions_to_txn(transactional_id, *identity, [_TP])

    def append(
        self,
        identity: Identity,
        sequence: int,
        values: list[str],
        transactional_id: str | None = None,
    ) -> int:
        records = [eosdb.Record(value=value.encode()) for value in values]
        batch = eosdb.RecordBatch(records, *identity, sequence, transactional_id is not None)
        return self._broker.append(_TP, batch, transactional_id=transactional_id).base_offset

    def end(self, transactional_id: str, identity: Identity, *, committed: bool) -> Identity:
        return Identity(*self._broker.end_txn(transactional_id, *identity, committed))


def _values(consumer: eosdb.Consumer) -> list[str]:
    values: list[str] = []
    while records := consumer.poll():
        values += [bytes(record.value).decode() for record in records]
    return values
