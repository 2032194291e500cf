"""Groups on the double: sessions expire when the test says so, and what is processed is so once, whatever
happens to the cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from eosdb.testing import KafkaDouble
from tests.testing.clients import (
    PATIENCE_S,
    confluent_consumer,
    leaves_sockets,
    read,
    stored,
)
from tests.testing.workers import SINK, SOURCE, WORKERS
from tests.waiting import eventually

pytestmark = pytest.mark.slow

every_client = pytest.mark.parametrize("work", WORKERS.values(), ids=WORKERS)
COUNT = 40


def filled(cluster: KafkaDouble) -> list[str]:
    """Both topics, and the source's values."""
    values = [f"value {number}" for number in range(COUNT)]
    cluster.db.admin.create_topic(SOURCE, partitions=2)
    cluster.db.admin.create_topic(SINK)
    with cluster.db.producer() as producer:
        for number, value in enumerate(values):
            producer.send(SOURCE, value, partition=number % 2)
    return values


def test_a_session_expires_when_the_clock_is_advanced(eosdb_kafka: KafkaDouble) -> None:
    """The other consumer stands still, as a process that is suspended; nobody waits for it."""
    values = filled(eosdb_kafka)
    suspended = confluent_consumer(
        eosdb_kafka, session_timeout_ms=45_000, heartbeat_interval_ms=40_000
    )
    suspended.subscribe([SOURCE])
    assert len(read(suspended, 1)) == 1
    group = eosdb_kafka.db.broker.describe_group
    (gone,) = group("g").members
    other = confluent_consumer(
        eosdb_kafka, session_timeout_ms=1_000_000, max_poll_interval_ms=1_000_000
    )
    other.subscribe([SOURCE])
    eventually(lambda: other.poll(0.01) is None and group("g").state == "PreparingRebalance")
    eosdb_kafka.clock.advance(45_001)
    assert sorted(read(other, COUNT)) == sorted(values)
    assert gone.member_id not in [member.member_id for member in group("g").members]
    other.close()
    suspended.close()


@leaves_sockets
@every_client
def test_each_value_is_processed_once_though_the_cluster_dies(
    eosdb_kafka: KafkaDouble, work: Callable[[KafkaDouble, Callable[[], bool]], None]
) -> None:
    values = filled(eosdb_kafka)
    ended = threading.Event()
    # kafka-python may wait for ever for a commit whose broker has gone: Python is to end nevertheless.
    worker = threading.Thread(target=work, args=(eosdb_kafka, ended.is_set), daemon=True)
    worker.start()
    try:
        for count in (1, COUNT // 2):
            eventually(lambda count=count: len(stored(eosdb_kafka, SINK)) >= count)  # type: ignore[misc]
            eosdb_kafka.lose_response("end_txn")
            eosdb_kafka.restart()
        eventually(lambda: len(stored(eosdb_kafka, SINK)) >= COUNT)
    finally:
        ended.set()
        worker.join(PATIENCE_S)
    assert sorted(stored(eosdb_kafka, SINK)) == sorted(value.upper() for value in values)
    assert eosdb_kafka.db.verify().ok
