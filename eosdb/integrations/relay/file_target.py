"""An eosdb file as the target of a relay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from eosdb.client.producer.accumulator import ProduceFuture
from eosdb.client.producer.producer import Producer
from eosdb.database import Database
from eosdb.errors import EosdbError, MessageTooLargeError
from eosdb.integrations.relay import planning
from eosdb.integrations.relay.failure import TooLargeError, translating
from eosdb.integrations.relay.positions import POSITIONS_CONFIG
from eosdb.integrations.relay.values import Outgoing, RelayRecord, TopicFacts
from eosdb.model.config import INT32_MAX
from eosdb.model.topic_config import TOPIC_SETTINGS
from eosdb.model.values import TimestampType, TopicPartition


class FileTarget:
    """Writes with a transactional producer of the file."""

    def __init__(self, db: Database, positions_topic: str) -> None:
        self._db: Final = db
        self._positions: Final = TopicPartition(positions_topic, 0)
        self.where: Final = db.path
        self._producer: Producer | None = None

    def id(self) -> str:
        return self._db.broker.cluster_id()

    def ready(self) -> None:
        self._db.admin.create_topic(self._positions.topic, 1, POSITIONS_CONFIG, exist_ok=True)

    def take_over(self, transactional_id: str, stopped: Callable[[], bool]) -> None:
        self._producer = self._db.producer(
            transactional_id=transactional_id, max_request_size=INT32_MAX
        )
        translating(self.where, self._producer.init_transactions)

    def position_records(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        with self._db.consumer() as consumer:
            consumer.assign([self._positions])
            consumer.seek_to_beginning()
            end = self._db.broker.offsets(self._positions).high_watermark
            while consumer.position(self._positions) < end:
                for record in translating(self.where, lambda: consumer.poll(1_000)):
                    yield record.key, record.value

    def facts(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        existing = {result.name: result for result in self._db.broker.topic_metadata()}
        result = {}
        for name in topics:
            if name in existing:
                config = self._db.admin._topic_config(name)
                append_time = config.timestamp_type is TimestampType.LOG_APPEND_TIME
                result[name] = TopicFacts(
                    existing[name].partitions,
                    append_time,
                    config.max_message_bytes,
                    str(existing[name].topic_id),
                )
        return result

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        settings = planning.config_to_copy(config, TOPIC_SETTINGS)
        self._db.admin.create_topic(name, partitions, settings, exist_ok=True)

    def write(self, records: Sequence[Outgoing]) -> None:
        translating(self.where, lambda: self._write(records))

    def _write(self, records: Sequence[Outgoing]) -> None:
        producer = self._producer
        assert producer is not None, "no transactional id has been taken"
        producer.begin_transaction()
        sent: list[tuple[Outgoing, ProduceFuture]] = []
        try:
            for record in records:
                future = producer.send(
                    record.topic,
                    record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=record.headers,
                    timestamp=record.timestamp,
                )
                sent.append((record, future))
            producer.commit_transaction()
        except MessageTooLargeError as error:
            producer.abort_transaction()
            raise TooLargeError(f"{self.where}: {error}", _refused(sent)) from error

    def release(self) -> None:
        if self._producer is not None:
            with contextlib.suppress(EosdbError):
                self._producer.abort_transaction()
            with contextlib.suppress(EosdbError):
                self._producer.close()
            self._producer = None

    def close(self) -> None:
        self.release()


def _refused(sent: Iterable[tuple[Outgoing, ProduceFuture]]) -> list[RelayRecord]:
    """The records that were too large. A batch of several records is never larger than a topic allows by
    default."""
    return [
        record.origin
        for record, future in sent
        if record.origin is not None
        and future.done()
        and isinstance(future.exception(), MessageTooLargeError)
    ]
