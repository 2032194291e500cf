"""A poll that has found the end of every partition waits for a change of the file before it reads again. It
still finds everything that a poll without memory would find, at a few statements for a record."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.model.protocol.consumer_questions import Moved
from eosdb.model.requests import Idle

WAIT_MS = 30_000
TPS = [TopicPartition("t", number) for number in range(12)]
Change = Callable[[eosdb.Database, eosdb.Consumer], None]


@pytest.fixture(params=["g", None])
def consumer(db: eosdb.Database, request: pytest.FixtureRequest) -> eosdb.Consumer:
    """It has read all that is in "t" and "u", and knows so."""
    for topic, partitions in (("t", 12), ("u", 1)):
        db.admin.create_topic(topic, partitions=partitions)
    consumer = db.consumer(request.param, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.subscribe(["t", "u"])
    send(db, TPS[0], "first", "second")
    assert polled(consumer) + polled(consumer) == ["first", "second"]
    while consumer._version is None:
        assert consumer.poll(1) == []
    if request.param is not None:
        consumer.commit()  # A rebalance begins there.
    return consumer


def send(db: eosdb.Database, tp: TopicPartition, *values: str) -> None:
    with db.producer() as producer:
        for value in values:
            producer.send(tp.topic, value, partition=tp.partition)


def polled(consumer: eosdb.Consumer, max_records: int = 1) -> list[str]:
    """The values of one poll, which need not wait for long: what it must find is there."""
    return [str(r.value, "utf-8") for r in consumer.poll(WAIT_MS, max_records)]


def by_a_record(db: eosdb.Database, consumer: eosdb.Consumer) -> None:
    send(db, TPS[7], "new")


def by_a_seek(db: eosdb.Database, consumer: eosdb.Consumer) -> None:
    send(db, TPS[7], "new")
    assert polled(consumer) == ["new"]
    assert consumer.poll(1) == []
    consumer.seek(TPS[7], 0)


def by_a_resumed_partition(db: eosdb.Database, consumer: eosdb.Consumer) -> None:
    consumer.pause([TPS[7]])
    send(db, TPS[7], "new")
    assert consumer.poll(1) == consumer.poll(1) == []
    consumer.resume([TPS[7]])


def by_a_new_partition(db: eosdb.Database, consumer: eosdb.Consumer) -> None:
    db.admin.create_partitions("t", 13)
    send(db, TopicPartition("t", 12), "new")


def by_a_topic_made_anew_of_the_same_length(db: eosdb.Database, consumer: eosdb.Consumer) -> None:
    db.admin.delete_topic("t")
    db.admin.create_topic("t", partitions=12)
    send(db, TPS[0], "new", "newer")


def by_a_poll_without_waiting(db: eosdb.Database, consumer: eosdb.Consumer) -> None:
    send(db, TPS[7], "before")
    assert [r.value for r in consumer.poll()] == [b"before"]
    send(db, TPS[7], "new")


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        by_a_record,
        by_a_seek,
        by_a_resumed_partition,
        by_a_new_partition,
        by_a_topic_made_anew_of_the_same_length,
        by_a_poll_without_waiting,
    ],
)
def test_what_has_come_between_two_polls_is_found(
    db: eosdb.Database, consumer: eosdb.Consumer, change: Change
) -> None:
    change(db, consumer)
    assert polled(consumer) == ["new"]


def test_records_of_several_partitions_beyond_the_limit_are_all_found(
    db: eosdb.Database, consumer: eosdb.Consumer
) -> None:
    for tp in TPS[:3]:
        send(db, tp, tp.topic)
    found = [polled(consumer) for _ in range(3)]
    assert found == [["t"]] * 3


def test_a_record_that_has_become_due_between_two_polls_is_delivered(
    db: eosdb.Database, clock: ManualClock, consumer: eosdb.Consumer
) -> None:
    with db.producer() as producer:
        producer.send("u", "later", deliver_at=clock.time_ms() + 100)
    assert consumer.poll(1) == []
    clock.advance(1_000)
    assert [r.value for r in consumer.poll(50)] == [b"later"]


def test_a_partition_that_another_id_or_no_right_hides_counts_as_moved(db: eosdb.Database) -> None:
    for topic in ("t", "u", "v"):
        db.admin.create_topic(topic)
    ids = {topic: db.broker.topic(topic).topic_id for topic in ("t", "u", "v")}
    positions = {topic: {0: 0} for topic in ids}
    ask = db.broker.ask

    def moved() -> list[str]:
        return sorted(tp.topic for tp in ask(Moved(positions, ids, "read_committed")))

    assert moved() == []
    send(db, TopicPartition("t", 0), "x")
    assert moved() == ["t"]
    db.admin.delete_topic("u")
    db.admin.create_topic("u")
    db.admin.delete_topic("v")
    assert moved() == ["t", "u", "v"]
    assert ask(Idle({TopicPartition("u", 0): 0}, "read_committed")).keys() == {("u", 0)}


@pytest.mark.slow
def test_a_record_that_arrives_costs_its_member_few_statements(tmp_path: Path) -> None:
    """Without those that ask for the data version: their number depends on how long a commit takes."""
    statements: list[str] = []
    me = threading.get_ident()
    db, own = eosdb.connect(tmp_path / "f.db"), eosdb.connect(tmp_path / "f.db")
    db.admin.create_topic("t")
    with db.producer() as producer, own.consumer("g", auto_offset_reset="earliest") as consumer:

        def send_one() -> None:
            producer.send("t", "x")
            producer.flush()

        consumer.subscribe("t")
        send_one()
        assert len(consumer.poll(WAIT_MS)) == 1
        while consumer._version is None:
            assert consumer.poll(1) == []

        def note(statement: str) -> None:
            if threading.get_ident() == me and "data_version" not in statement:
                statements.append(statement)

        for connection in own._store._readers._opened:
            connection.set_trace_callback(note)
        later = threading.Timer(0.05, send_one)
        later.start()
        assert len(consumer.poll(WAIT_MS)) == 1
        later.join()
        count = len(statements)
    own.close()
    db.close()
    assert 0 < count <= 18, statements
