"""What tests put into a source, and find in a target."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

import eosdb
from eosdb.integrations.relay import Relay, RelayStatus
from tests.waiting import eventually

PATIENCE_S = 120
Headers = tuple[tuple[str, bytes | None], ...]


class Content(NamedTuple):
    """A record without its offset, which is each log's own."""

    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def contents(db: eosdb.Database, topic: str = "orders") -> list[Content]:
    """What a read_committed reader finds, partition by partition, in order."""
    return list(placed(db, topic).values())


def placed(db: eosdb.Database, topic: str) -> dict[tuple[int, int], Content]:
    """The same by partition and offset."""
    found: dict[tuple[int, int], Content] = {}
    for partition in range(db.broker.partitions_for(topic)):
        tp = eosdb.TopicPartition(topic, partition)
        end = db.broker.offsets(tp).last_stable_offset
        offset = db.broker.offsets(tp).log_start_offset
        while offset < end:
            data = db.broker.fetch_data(tp, offset, isolation_level="read_committed")
            headers = data.rows.headers or [()] * len(data.rows.offset)
            columns = zip(data.rows.timestamp, data.rows.key, data.rows.value, headers, strict=True)
            for at, fields in zip(data.rows.offset, columns, strict=True):
                found[partition, at] = Content(partition, *fields)
            offset = data.stop
    return found


def values(db: eosdb.Database, topic: str = "orders") -> list[bytes | None]:
    return [content.value for content in contents(db, topic)]


def fill(db: eosdb.Database, numbers: Iterable[int], topic: str = "orders") -> None:
    """One transaction with a record for each number, over all partitions."""
    count = db.broker.partitions_for(topic)
    with db.producer(transactional_id="filling") as producer:
        producer.init_transactions()
        with producer.transaction():
            for number in numbers:
                producer.send(topic, f"{number}", key=f"k{number}", partition=number % count)


class Running:
    """A relay that runs in a thread; leaving the block stops it, and raises what it raised."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.relay.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.relay.stop()
        self.join()
        self.relay.close()

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), self.relay.status()

    def until(self, holds: Callable[[RelayStatus], bool]) -> None:
        eventually(lambda: holds(self.relay.status()) or self.error is not None)
        assert self.error is None, self.error
