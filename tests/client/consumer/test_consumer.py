"""The consumer: where it begins, what it hands out, what it remembers."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.client.transport import DirectTransport
from eosdb.model.requests import Request
from eosdb.model.threads import Fate
from tests.cases import each

pytestmark = pytest.mark.both_roads

TPS = [TopicPartition("t", i) for i in range(3)]


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=3)


def fill(db: eosdb.Database, count: int, partition: int = 0, topic: str = "t") -> None:
    producer = db.producer(linger_ms=10_000)
    for i in range(count):
        producer.send(topic, b"%d" % i, partition=partition)
    producer.flush()


def reader(db: eosdb.Database, group: str | None = None, **config: Any) -> eosdb.Consumer:
    consumer = db.consumer(group, auto_offset_reset="earliest", **config)
    consumer.subscribe("t")
    return consumer


def values(records: Iterable[eosdb.ConsumerRecord]) -> list[object]:
    return [record.value for record in records]


def test_it_begins_where_auto_offset_reset_says(db: eosdb.Database) -> None:
    fill(db, 3)
    latest = db.consumer()
    latest.assign([TPS[0]])
    assert latest.poll() == []
    assert latest.position(TPS[0]) == 3
    assert values(reader(db).poll()) == [b"0", b"1", b"2"]
    none = db.consumer(auto_offset_reset="none")
    none.assign([TPS[0]])
    with pytest.raises(eosdb.OffsetOutOfRangeError, match="seek first"):
        none.poll()


def test_a_poll_leaves_the_garbage_collector_as_it_was(db: eosdb.Database) -> None:
    """It is held off while the list is made, not when something of the user's is called."""
    fill(db, 10)
    found = []

    def look(value: bytes) -> bytes:
        found.append(gc.isenabled())
        return value

    class Looks(DirectTransport):
        def ask(
            self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
        ) -> list[Any]:
            if requests[0].name == "fetch":
                found.append(gc.isenabled())
            return super().ask(requests, sync=sync, fate=fate)

    def looked(limit: int, **config: Any) -> set[bool]:
        found.clear()
        consumer = reader(db, transport=Looks(db.broker), **config)
        assert len(consumer.poll(max_records=limit)) == 10
        return set(found)

    assert gc.isenabled()
    assert looked(10) == {False}, "also for a short list 2,000 rows are fetched"
    assert gc.isenabled()
    assert looked(10_000, value_deserializer=look) == {True}
    consumer = db.consumer(transport=FailsOnce(db, 1), auto_offset_reset="earliest")
    consumer.assign([TPS[0]])
    with pytest.raises(eosdb.errors.StorageError):
        consumer.poll(max_records=10_000)
    assert gc.isenabled()
    gc.disable()
    try:
        assert looked(10_000) == {False}
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_partitions_take_turns(db: eosdb.Database) -> None:
    for partition in range(3):
        fill(db, 10, partition)
    consumer = reader(db, max_poll_records=5)
    assert {record.partition for _ in range(3) for record in consumer.poll()} == {0, 1, 2}


def test_everything_is_handed_out_once_and_in_order(db: eosdb.Database) -> None:
    fill(db, 5_000)
    consumer, got = reader(db), []
    while records := consumer.poll(max_records=999):
        got += values(records)
    assert got == [b"%d" % i for i in range(5_000)]


def test_read_committed_waits_for_the_outcome_and_skips_what_was_aborted(
    db: eosdb.Database,
) -> None:
    producer = db.producer(transactional_id="a")
    producer.init_transactions()
    consumer = reader(db)
    eager = reader(db, isolation_level="read_uncommitted")
    for i, commit in enumerate([True, False, True]):
        producer.begin_transaction()
        producer.send("t", b"%d" % i, partition=0)
        producer.flush()
        assert consumer.poll() == []
        assert values(eager.poll()) == [b"%d" % i]
        producer.commit_transaction() if commit else producer.abort_transaction()
        assert values(consumer.poll()) == ([b"%d" % i] if commit else [])
    assert consumer.position(TPS[0]) == 6
    assert consumer.lag()[TPS[0]] == 0


def test_a_group_goes_on_where_it_committed(db: eosdb.Database) -> None:
    fill(db, 10)
    with reader(db, "g") as consumer:
        consumer.poll(max_records=4)
        consumer.commit()
    with reader(db, "g") as consumer:
        assert values(consumer.poll(max_records=2)) == [b"4", b"5"]
        consumer.commit({TPS[0]: OffsetAndMetadata(9, "by hand")})
        assert consumer.committed([TPS[0]]) == {TPS[0]: OffsetAndMetadata(9, "by hand")}
    assert values(reader(db, "g").poll()) == [b"9"]


def test_without_a_group_nothing_can_be_committed(db: eosdb.Database) -> None:
    fill(db, 1)
    consumer = reader(db)
    consumer.poll()
    with pytest.raises(eosdb.InvalidGroupIdError, match="group_id"):
        consumer.commit()


def test_a_restart_waits_for_a_transaction_that_holds_its_offsets(db: eosdb.Database) -> None:
    fill(db, 10)
    producer = db.producer(transactional_id="a")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({TPS[0]: OffsetAndMetadata(5)}, "g")
    consumer = reader(db, "g")
    assert consumer.poll(timeout_ms=1_000) == []
    producer.close()
    assert consumer.poll(max_records=1)[0].offset == 0


def test_whoever_asks_for_an_offset_waits_until_it_is_certain(
    db: eosdb.Database, clock: ManualClock
) -> None:
    producer = db.producer(transactional_id="a")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({TPS[0]: OffsetAndMetadata(5)}, "g")
    consumer = db.consumer("g", default_api_timeout_ms=30_000)
    consumer.assign([TPS[0]])
    before = clock.time_ms()
    for ask in (lambda: consumer.committed([TPS[0]]), lambda: consumer.position(TPS[0])):
        with pytest.raises(eosdb.UnstableOffsetCommitError):
            ask()
    assert clock.time_ms() >= before + 60_000
    producer.abort_transaction()
    assert consumer.committed([TPS[0]]) == {}


def test_seeking(db: eosdb.Database) -> None:
    fill(db, 10)
    consumer = reader(db)
    consumer.seek(TPS[0], 7)
    assert values(consumer.poll()) == [b"7", b"8", b"9"]
    consumer.seek_to_beginning([TPS[0]])
    assert values(consumer.poll(max_records=1)) == [b"0"]
    consumer.seek_to_end()
    assert consumer.poll() == []
    with pytest.raises(eosdb.InvalidRequestError):
        consumer.seek(TPS[0], -1)
    with pytest.raises(eosdb.IllegalStateError, match="not assigned"):
        consumer.seek(TopicPartition("other", 0), 0)


def test_a_position_that_retention_has_passed_is_reset(db: eosdb.Database) -> None:
    fill(db, 10)
    consumer = reader(db)
    consumer.poll(max_records=1)
    db.broker.delete_records(TPS[0], 5)
    fresh = reader(db, isolation_level="read_uncommitted")
    fresh.seek(TPS[0], 2)
    assert values(fresh.poll(max_records=1)) == [b"5"]
    strict = db.consumer(auto_offset_reset="none")
    strict.assign([TPS[0]])
    strict.seek(TPS[0], 2)
    with pytest.raises(eosdb.OffsetOutOfRangeError):
        strict.poll()


def test_pausing(db: eosdb.Database) -> None:
    fill(db, 1, 0)
    fill(db, 1, 1)
    consumer = reader(db)
    consumer.pause([TPS[0]])
    assert consumer.paused() == {TPS[0]}
    assert [record.partition for record in consumer.poll()] == [1]
    consumer.resume([TPS[0]])
    assert [record.partition for record in consumer.poll()] == [0]


def test_subscriptions_by_pattern_notice_new_topics(db: eosdb.Database) -> None:
    changes: list[tuple[str, list[TopicPartition]]] = []
    consumer = db.consumer(auto_offset_reset="earliest")
    consumer.subscribe(
        re.compile("t.*"),
        on_assign=lambda tps: changes.append(("assigned", tps)),
        on_revoke=lambda tps: changes.append(("revoked", tps)),
    )
    db.admin.create_topic("t2")
    fill(db, 1, topic="t2")
    assert [record.topic for record in consumer.poll()] == ["t2"]
    consumer.close()
    t2 = TopicPartition("t2", 0)
    assert changes == [("assigned", TPS), ("assigned", [t2]), ("revoked", [*TPS, t2])]


def test_offsets_by_time(db: eosdb.Database, clock: ManualClock) -> None:
    producer = db.producer()
    for _ in range(3):
        producer.send("t", b"v", partition=0)
        clock.advance(1_000)
    start = clock.time_ms() - 3_000
    consumer = reader(db)
    found = consumer.offsets_for_times({TPS[0]: start + 1, TPS[1]: start})
    assert found == {TPS[0]: eosdb.OffsetAndTimestamp(1, start + 1_000), TPS[1]: None}
    assert consumer.beginning_offsets([TPS[0]]) == {TPS[0]: 0}
    assert consumer.end_offsets([TPS[0]]) == {TPS[0]: 3}


def test_auto_commit(db: eosdb.Database, clock: ManualClock) -> None:
    fill(db, 10)
    consumer = reader(db, "g", enable_auto_commit=True)
    consumer.poll(max_records=3)
    clock.advance(5_000)
    consumer.poll(max_records=1)
    assert db.broker.offset_fetch("g")[TPS[0]].offset == 3
    consumer.close()
    assert db.broker.offset_fetch("g")[TPS[0]].offset == 4


def test_deserializers(db: eosdb.Database) -> None:
    fill(db, 2)
    consumer = reader(db, value_deserializer=lambda data: int(data) * 10)
    assert values(consumer.poll()) == [0, 10]


def test_iteration_hands_out_record_after_record(db: eosdb.Database) -> None:
    fill(db, 3)
    consumer, got = reader(db), []
    for record in consumer:
        got.append(record.value)
        if len(got) == 3:
            consumer.close()
    assert got == [b"0", b"1", b"2"]


def test_waiting_ends_with_the_timeout(db: eosdb.Database, clock: ManualClock) -> None:
    before = clock.time_ms()
    assert reader(db).poll(timeout_ms=200) == []
    assert clock.time_ms() >= before + 200


@each(
    "config",
    [
        {"isolation_level": "serializable"},
        {"auto_offset_reset": "middle"},
        {"partition_assignment_strategy": "stickiest"},
        {"max_poll_records": 0},
        {"heartbeat_interval_ms": 45_000},
        {"fetch_min_bytes": 1},
        {"enable_auto_commit": "no"},
        {"value_deserializer": "utf-8"},
        {"group_id": ""},
    ],
)
def test_bad_settings_are_refused(db: eosdb.Database, config: dict[str, Any]) -> None:
    with pytest.raises(eosdb.ConfigError):
        db.consumer(**config)


def test_a_single_partition_is_no_collection_of_them(db: eosdb.Database) -> None:
    """A TopicPartition is a tuple, so its topic and its number were looked up, and nothing was found."""
    consumer, given = db.consumer("g"), TopicPartition("t", 0)
    db.broker.offset_commit("g", {given: OffsetAndMetadata(1)})
    for bad in (given, ["t"], [TopicPartition("t", -1)]):
        with pytest.raises(eosdb.UnknownTopicOrPartitionError):
            consumer.committed(bad)  # type: ignore[arg-type]
    assert consumer.committed([given]) == {given: OffsetAndMetadata(1)}


def test_calls_out_of_order(db: eosdb.Database) -> None:
    consumer = db.consumer()
    with pytest.raises(eosdb.IllegalStateError, match="subscribe"):
        consumer.poll()
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        consumer.subscribe("nope")
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        consumer.assign([TopicPartition("t", 3)])
    consumer.close()
    consumer.close()
    with pytest.raises(eosdb.IllegalStateError, match="closed"):
        consumer.poll()


def test_a_drained_partition_is_not_asked_again_in_the_same_poll(db: eosdb.Database) -> None:
    fill(db, 3)
    consumer = db.consumer(auto_offset_reset="earliest")
    consumer.assign([TPS[0]])
    assert values(consumer.poll()) == [b"0", b"1", b"2"]
    assert consumer.metrics()["fetch-total"] == 1
    fill(db, 1)
    assert values(consumer.poll()) == [b"0"]
    assert consumer.metrics()["fetch-total"] == 2
    assert consumer.poll() == []


def test_records_of_a_full_buffer_are_handed_out_without_the_file(db: eosdb.Database) -> None:
    fill(db, 20)
    consumer = db.consumer(auto_offset_reset="earliest", max_poll_records=3)
    consumer.assign([TPS[0]])
    found = [value for _ in range(6) for value in values(consumer.poll())]
    assert found == [b"%d" % i for i in range(18)]
    requests = {name: n for name, n in consumer.metrics().items() if name.endswith("-total")}
    assert requests["fetch-total"] == 1
    assert sum(requests.values()) - requests["records-consumed-total"] <= 3
    assert consumer.position(TPS[0]) == 18
    consumer.seek(TPS[0], 5)
    assert [record.offset for record in consumer.poll()] == [5, 6, 7]


class FailsOnce(DirectTransport):
    """The n-th fetch gets no answer."""

    def __init__(self, db: eosdb.Database, at: int) -> None:
        super().__init__(db.broker)
        self.left = at

    def ask(
        self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
    ) -> list[Any]:
        if requests[0].name == "fetch":
            self.left -= 1
            if self.left == 0:
                return [eosdb.errors.StorageError("the disk")]
        return super().ask(requests, sync=sync, fate=fate)


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_poll_that_fails_loses_nothing(db: eosdb.Database, at: int) -> None:
    """The error comes after what was taken before it, and that is handed out."""
    db.admin.create_topic("two", partitions=2)
    for partition in range(2):
        for i in range(3):
            db.producer().send("two", f"{partition}.{i}", partition=partition)
    consumer = db.consumer(transport=FailsOnce(db, at), auto_offset_reset="earliest")
    consumer.assign([TopicPartition("two", 0), TopicPartition("two", 1)])
    got: list[Any] = []
    failures = 0
    for _ in range(6):
        try:
            got += [record.value for record in consumer.poll()]
        except eosdb.errors.StorageError:
            failures += 1
    assert sorted(filter(None, got)) == [b"0.0", b"0.1", b"0.2", b"1.0", b"1.1", b"1.2"]
    assert failures <= 1


def test_a_record_that_cannot_be_deserialized_is_met_again_and_the_others_are_not_lost(
    db: eosdb.Database,
) -> None:
    db.admin.create_topic("numbers")
    for value in ("1", "2", "three", "4"):
        db.producer().send("numbers", value)
    tp = TopicPartition("numbers", 0)
    consumer = db.consumer(auto_offset_reset="earliest", value_deserializer=int)
    consumer.assign([tp])
    assert [record.value for record in consumer.poll()] == [1, 2]
    for _ in range(2):
        with pytest.raises(ValueError, match="three"):
            consumer.poll()
    assert consumer.position(tp) == 2
    consumer.seek(tp, 3)
    assert [record.value for record in consumer.poll()] == [4]
