"""A processor's position survives the rewriting and the age of its offset, and its lag is what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions as Partitions
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

import eosdb
from eosdb import (
    BrokerConfig,
    ConsumerRecord,
    ManualClock,
    OffsetAndMetadata,
    Record,
    RecordBatch,
    TopicPartition,
)
from eosdb.client.processor.failure import Failure
from tests.client.processor.work import Run, feed, read, upper, values

DAY = 86_400_000
IN = TopicPartition("in", 0)
LETTERS = [letter.encode() for letter in "abcdefghij"]


@pytest.fixture(autouse=True)
def _topics(db: eosdb.Database) -> None:
    for topic in ("in", "out"):
        db.admin.create_topic(topic, config={"retention.ms": -1})


def leave_unfinished(db: eosdb.Database, *names: bytes) -> None:
    """End a run of several workers in which these records have not been processed."""

    def handle(record: ConsumerRecord) -> bytes:
        if record.value in names:
            raise ValueError("not now")
        return upper(record)

    processor = db.processor("in", handle, "out", group_id="g", workers=4, max_attempts=10**6)
    left = len(LETTERS) - len(names)
    transaction = processor._transaction
    commit = transaction.commit

    def stopping() -> Mapping[TopicPartition, OffsetAndMetadata]:
        offsets = commit()
        if transaction.committed["processed"] == left:
            processor.stop()
        return offsets

    transaction.commit = stopping  # type: ignore[method-assign]
    processor.run()


def by_reset(**target: Any) -> Callable[[eosdb.Database], object]:
    return lambda db: db.admin.reset_offsets("g", [IN], execute=True, **target)


def by_an_admin_client(db: eosdb.Database) -> None:
    with db.serve() as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        listed = admin.list_consumer_group_offsets([Partitions("g")])["g"].result(10)
        again = [Place(tp.topic, tp.partition, tp.offset) for tp in listed.topic_partitions]
        admin.alter_consumer_group_offsets([Partitions("g", again)])["g"].result(10)


def by_a_transaction(db: eosdb.Database) -> None:
    with db.producer(transactional_id="other") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({IN: OffsetAndMetadata(1, "mine")}, "g")


WAYS: dict[str, tuple[Callable[[eosdb.Database], object], bytes]] = {
    # how the offset is rewritten, and the records that are processed then; b and d are unfinished
    "nothing": (lambda db: None, b"BD"),
    "to_current": (by_reset(to_current=True), b"BD"),
    "shift_by 0": (by_reset(shift_by=0), b"BD"),
    "shift_by 1": (by_reset(shift_by=1), b"D"),
    "to_offset 1": (by_reset(to_offset=1), b"BD"),
    "to_latest": (by_reset(to_latest=True), b""),
    "shift_by -1": (by_reset(shift_by=-1), b"ABCDEFGHIJ"),
    "to_earliest": (by_reset(to_earliest=True), b"ABCDEFGHIJ"),
    "request": (lambda db: db.broker.offset_commit("g", {IN: OffsetAndMetadata(1)}), b"BD"),
    "request past it": (
        lambda db: db.broker.offset_commit("g", {IN: OffsetAndMetadata(2, "mine")}), b"D",
    ),
    "transaction": (by_a_transaction, b"BD"),
    "admin client": (by_an_admin_client, b"BD"),
}  # fmt: skip


@pytest.mark.slow
def test_whoever_rewrites_its_offset_only_a_move_back_repeats_what_is_finished(
    tmp_path: Any,
) -> None:
    for name, (rewrite, expected) in WAYS.items():
        with eosdb.connect(tmp_path / f"{name}.db") as db:
            for topic in ("in", "out"):
                db.admin.create_topic(topic)
            feed(db, *LETTERS)
            leave_unfinished(db, b"b", b"d")
            rewrite(db)
            lag = db.admin.describe_group_offsets("g").partitions[0].lag
            (behind,) = db.query("SELECT readable_lag FROM consumer_offsets").all()[0]
            (figures,) = db.admin.overview().groups
            before = len(read(db))
            eosdb.process(db, "in", upper, "out", group_id="g", workers=2, until_idle_ms=50)
            again = sorted(record.value for record in read(db)[before:])
            assert (name, b"".join(again)) == (name, expected)
            assert (name, lag, behind, figures.behind) == (name, *[len(expected)] * 3)
            assert db.verify().ok


def test_its_offsets_do_not_expire_and_go_with_their_group(
    db: eosdb.Database, run: Run, clock: ManualClock
) -> None:
    """Before, a week without members made the next run process everything again."""
    feed(db, *LETTERS)
    run(upper)
    db.broker.offset_commit("plain", {IN: OffsetAndMetadata(3)})
    by_reset(shift_by=-2)(db)
    for _ in range(9):
        clock.advance(DAY)
        db.housekeeping()
    assert db.broker.offset_fetch("plain") == {}
    assert run(upper).processed == 2
    db.broker.delete_group("g")
    assert db.broker.offset_fetch("g") == {}
    assert db.verify().ok


def test_a_small_limit_of_metadata_does_not_end_a_run(tmp_path: Any) -> None:
    config = BrokerConfig(offset_metadata_max_bytes=3)
    with eosdb.connect(tmp_path / "small.db", config=config) as db:
        for topic in ("in", "out"):
            db.admin.create_topic(topic)
        feed(db, *LETTERS)
        leave_unfinished(db, b"b", b"d", b"h")
        assert values(db) == [b"A", b"C", b"E", b"F", b"G", b"I", b"J"]
        with pytest.raises(eosdb.errors.OffsetMetadataTooLargeError):
            db.broker.offset_commit("other", {IN: OffsetAndMetadata(1, "long")})


@pytest.mark.slow
def test_a_batch_among_records_of_another_group_needs_little_metadata(
    db: eosdb.Database, run: Run
) -> None:
    """Groups share a topic if their ids differ only in characters that no topic's name may have."""
    db.admin.create_topic("__eosdb.postponed.g")
    origin = ConsumerRecord("in", 0, 0, 0, 0, None, b"", ())
    other, own = (Failure.of(origin, ValueError(), group, 1, 0).mark(()) for group in "?g")
    for _ in range(4):
        records = [Record(b"k", b"", (other, own)[number % 2]) for number in range(1_000)]
        db.broker.append(TopicPartition("__eosdb.postponed.g", 0), RecordBatch(records))

    def handle(records: list[ConsumerRecord]) -> None:
        db.clock.sleep_ms(1)
        if len(records) > 1_000:
            raise eosdb.BatchFailed(1, ValueError("the second"))

    settings: Any = {"dead_letter_topic": "dlq", "transaction_interval_ms": 0}
    report = run(handle, batch=True, max_batch=5_000, transaction_size=5_000, **settings)
    assert (report.processed, report.aborts) == (2_000, 0)
