"""The producer: settings, sends, states, and what an error leaves behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.client.transport import DirectTransport
from eosdb.model.requests import Request
from eosdb.model.threads import Fate
from tests.cases import each
from tests.client.producer.answers import transactional
from tests.readers import committed_values

pytestmark = pytest.mark.both_roads

TP = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def _topic(db: eosdb.Database) -> None:
    db.admin.create_topic("t")


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.slow
@each(
    ("config", "named"),
    [
        ({"acks": 1}, "acks"),
        ({"acks": "0"}, "acks"),
        ({"acks": "some"}, "acks"),
        ({"retries": 0}, "retries"),
        ({"max_in_flight_requests_per_connection": 6}, "max_in_flight"),
        ({"transactional_id": "a", "enable_idempotence": False}, "enable_idempotence"),
        ({"transactional_id": ""}, "transactional_id"),
        ({"delivery_timeout_ms": 29_999}, "delivery_timeout_ms"),
        ({"batch_size": -1}, "batch_size"),
        ({"linger_ms": "soon"}, "linger_ms"),
        ({"transaction_timeout_ms": "1"}, "transaction_timeout_ms"),
        ({"enable_idempotence": None}, "enable_idempotence"),
        ({"enable_idempotence": "false"}, "enable_idempotence"),
        ({"value_serializer": "utf-8"}, "value_serializer"),
        ({"compression": "zstd"}, "compression"),
    ],
)
def test_a_setting_that_breaks_the_promise_is_refused(
    db: eosdb.Database, config: dict[str, Any], named: str
) -> None:
    with pytest.raises(eosdb.ConfigError, match=named):
        db.producer(**config)


def test_without_idempotence_anything_goes(db: eosdb.Database) -> None:
    producer = db.producer(enable_idempotence=False, acks=1, retries=0)
    assert producer.send("t", b"v").result().offset == 0
    (record,) = db.broker.fetch(TP, 0).records
    assert (record.producer_id, record.sequence) == (-1, -1)


# -- sending -------------------------------------------------------------------------------------


def test_a_plain_record_is_stored_when_send_returns(db: eosdb.Database) -> None:
    future = db.producer().send("t", "wert", key="k", headers=[("h", b"1")], timestamp=5)
    assert future.done()
    assert future.result() == eosdb.RecordMetadata("t", 0, 0, 5)
    (record,) = db.broker.fetch(TP, 0).records
    assert (record.key, record.value, record.headers) == (b"k", b"wert", (("h", b"1"),))


def test_lingering_records_leave_together(db: eosdb.Database, clock: ManualClock) -> None:
    producer = db.producer(linger_ms=50)
    first = producer.send("t", b"1")
    assert not first.done()
    assert db.broker.offsets(TP).log_end_offset == 0
    clock.advance(50)
    producer.send("t", b"2")
    assert first.done()
    assert producer.metrics()["batch-total"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "ms", "warnings"), [({}, 0, 1), ({}, 20, 0), ({"linger_ms": 5}, 0, 0)]
)
def test_a_loop_that_commits_each_record_is_told_once_what_is_faster(
    db: eosdb.Database, clock: ManualClock, caplog: pytest.LogCaptureFixture,
    config: dict[str, Any], ms: int, warnings: int,
) -> None:  # fmt: skip
    """A thousand of them within ten seconds; fewer are a program's normal work."""
    producer = db.producer(**config)
    for _ in range(999):
        producer.send("t", b"v")
        clock.advance(ms)
    assert not caplog.records
    for _ in range(1_500):
        producer.send("t", b"v")
        clock.advance(ms)
    producer.flush()
    assert [record.message.split(" were")[0] for record in caplog.records] == [
        "1000 records"
    ] * warnings


def test_asking_a_future_sends_what_waits(db: eosdb.Database) -> None:
    producer = db.producer(linger_ms=10_000)
    futures = [producer.send("t", b"%d" % i) for i in range(3)]
    assert futures[1].result().offset == 1
    assert all(future.done() for future in futures)


def test_sequences_go_on_from_batch_to_batch(db: eosdb.Database) -> None:
    producer = db.producer(linger_ms=10_000, batch_size=10)
    for i in range(5):
        producer.send("t", b"x" * 6 + b"%d" % i)
    producer.flush()
    records = db.broker.fetch(TP, 0).records
    assert [record.sequence for record in records] == [0, 1, 2, 3, 4]
    assert {record.producer_id for record in records} == {0}


@each("value", [5, 1.5, ["a"], object(), bytearray(b"x")])
def test_what_is_not_bytes_or_text_needs_a_serializer(db: eosdb.Database, value: object) -> None:
    with pytest.raises(TypeError, match="value_serializer"):
        db.producer().send("t", value)
    assert db.broker.offsets(TP).log_end_offset == 0


def test_serializers_are_used(db: eosdb.Database) -> None:
    producer = db.producer(value_serializer=lambda value: str(value).encode())
    assert producer.send("t", 42).result().offset == 0
    assert db.broker.fetch(TP, 0).records[0].value == b"42"


def test_text_that_a_serializer_returns_is_encoded(db: eosdb.Database) -> None:
    with db.producer(value_serializer=json.dumps, key_serializer=str) as producer:
        producer.send("t", {"total": 99}, key=7)
        producer.send_many("t", [(8, {"total": "ä"}), (9, None)])
    records = db.broker.fetch(TP, 0).records
    assert [(record.key, record.value) for record in records] == [
        (b"7", b'{"total": 99}'), (b"8", b'{"total": "\\u00e4"}'), (b"9", None),
    ]  # fmt: skip


def test_a_serializer_that_returns_something_else_is_named(db: eosdb.Database) -> None:
    def as_rows(value: object) -> list[object]:
        return [value]

    producer = db.producer(value_serializer=as_rows)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"value_serializer: .*as_rows returned list, expected bytes"
    ):
        producer.send("t", 5)
    with pytest.raises(
        TypeError, match=r"value_serializer: .*as_rows returned list, expected bytes"
    ):
        producer.send_many("t", [5])
    assert db.broker.offsets(TP).log_end_offset == 0


@each("acks", ["all", "ALL", " All ", -1, "-1"])
def test_acks_may_be_spelled_as_in_kafka(db: eosdb.Database, acks: str | int) -> None:
    assert db.producer(acks=acks).send("t", b"v").exception() is None


def test_a_bad_timestamp_fails_at_its_own_send_and_not_the_records_beside_it(
    db: eosdb.Database,
) -> None:
    producer = db.producer(linger_ms=1_000)
    first = producer.send("t", b"1")
    for timestamp in (-1, 1.5, "now", True, 2**63):
        with pytest.raises(eosdb.errors.InvalidTimestampError):
            producer.send("t", b"v", timestamp=timestamp)  # type: ignore[arg-type]
    second = producer.send("t", b"2")
    producer.flush()
    assert [future.result().offset for future in (first, second)] == [0, 1]


def test_a_partition_that_was_added_is_found(db: eosdb.Database) -> None:
    producer = db.producer()
    producer.send("t", b"v")
    db.admin.create_partitions("t", 2)
    assert producer.send("t", b"v", partition=1).result().partition == 1


def test_what_the_broker_refuses_is_the_futures_error(db: eosdb.Database) -> None:
    db.admin.create_topic("small", config={"max.message.bytes": 10})
    told: list[object] = []
    future = db.producer().send("small", b"x" * 11, on_delivery=lambda e, m: told.append((e, m)))
    with pytest.raises(eosdb.MessageTooLargeError):
        future.result()
    assert isinstance(future.exception(), eosdb.MessageTooLargeError)
    assert told == [(future.exception(), None)]


def test_on_delivery_and_callbacks_are_told_where_the_record_is(db: eosdb.Database) -> None:
    told: list[object] = []
    producer = db.producer(linger_ms=10_000)
    future = producer.send("t", b"v", on_delivery=lambda error, where: told.append(where))
    future.add_done_callback(lambda done: told.append(done.result().offset))
    producer.flush()
    future.add_done_callback(lambda done: told.append("at once"))
    assert told == [future.result(), 0, "at once"]


def test_after_close_nothing_is_sent(db: eosdb.Database) -> None:
    producer = db.producer(linger_ms=10_000)
    future = producer.send("t", b"v")
    producer.close()
    producer.close()
    assert future.result().offset == 0
    with pytest.raises(eosdb.IllegalStateError):
        producer.send("t", b"v")


# -- transactions --------------------------------------------------------------------------------


def test_a_block_that_raises_is_aborted(db: eosdb.Database) -> None:
    producer = transactional(db)
    with pytest.raises(ZeroDivisionError), producer.transaction():
        future = producer.send("t", b"1")
        producer.flush()
        unsent = producer.send("t", b"2")
        raise ZeroDivisionError
    assert future.result().offset == 0
    with pytest.raises(eosdb.TransactionAbortableError):
        unsent.result()
    assert committed_values(db, TP) == []
    with producer.transaction():
        producer.send("t", b"3")
    assert committed_values(db, TP) == [b"3"]


def test_an_empty_transaction_sends_nothing(db: eosdb.Database) -> None:
    producer = transactional(db)
    with producer.transaction():
        pass
    assert db.broker.describe_transactions(["a"])["a"].state == "Empty"


@pytest.mark.parametrize("generation", [1, 2])
def test_a_generation_without_a_member_is_refused_before_anything_is_asked(
    db: eosdb.Database, generation: int
) -> None:
    """Kafka: KafkaProducer.throwIfInvalidGroupMetadata."""
    producer = transactional(db)
    producer.begin_transaction()
    producer.send("t", "v")
    stranger = eosdb.ConsumerGroupMetadata("g", generation, "")
    with pytest.raises(
        eosdb.InvalidRequestError, match=f"generation {generation} without a member"
    ):
        producer.send_offsets_to_transaction({TP: OffsetAndMetadata(7)}, stranger)
    assert producer.state == "IN_TRANSACTION", "nothing has happened"
    producer.commit_transaction()


def test_generation_0_is_the_coordinators_to_refuse(db: eosdb.Database) -> None:
    producer = transactional(db)
    producer.begin_transaction()
    nobody = eosdb.ConsumerGroupMetadata("g", 0, "")
    with pytest.raises(eosdb.GroupIdNotFoundError):
        producer.send_offsets_to_transaction({TP: OffsetAndMetadata(7)}, nobody)
    assert producer.state == "ABORTABLE_ERROR"


def test_closing_aborts_what_is_open(db: eosdb.Database) -> None:
    producer = transactional(db)
    producer.begin_transaction()
    producer.send("t", b"1")
    producer.flush()
    producer.close()
    assert db.broker.describe_transactions(["a"])["a"].state == "CompleteAbort"


def test_a_timeout_beyond_the_brokers_limit_is_fatal(db: eosdb.Database) -> None:
    producer = db.producer(transactional_id="a", transaction_timeout_ms=900_001)
    with pytest.raises(eosdb.InvalidTransactionTimeoutError):
        producer.init_transactions()
    assert producer.state == "FATAL_ERROR"


def test_whichever_request_notices_it_a_fenced_producer_is_told_so(db: eosdb.Database) -> None:
    def offsets(producer: eosdb.Producer) -> None:
        producer.send_offsets_to_transaction({TP: OffsetAndMetadata(1)}, "g")

    def flush(producer: eosdb.Producer) -> None:
        producer.send("t", b"2")
        producer.flush()

    for act in (offsets, flush):
        old = transactional(db)
        with pytest.raises(eosdb.ProducerFencedError), old.transaction():
            offsets(old)
            flush(old)
            transactional(db)
            act(old)
        assert old.state == "FATAL_ERROR"


class Interrupts(DirectTransport):
    """Carries the request out, and is interrupted before the answer is there."""

    def __init__(self, db: eosdb.Database) -> None:
        super().__init__(db.broker)
        self.armed = True

    def ask(
        self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
    ) -> list[Any]:
        answers = super().ask(requests, sync=sync, fate=fate)
        if self.armed and requests[0].name == "produce":
            self.armed = False
            raise KeyboardInterrupt
        return answers


def test_an_interrupted_send_is_repeated_and_not_doubled(db: eosdb.Database) -> None:
    producer = db.producer(transport=Interrupts(db))
    with pytest.raises(KeyboardInterrupt):
        producer.send("t", "one")
    assert producer.send("t", "two").result().offset == 1
    assert committed_values(db, TP) == [b"one", b"two"]


def test_what_a_callback_sends_is_sent(db: eosdb.Database) -> None:
    producer = db.producer()

    def again(error: object, metadata: object) -> None:
        producer.send("t", "reaction")

    producer.send("t", "action", on_delivery=again)
    assert committed_values(db, TP) == [b"action", b"reaction"]


def test_a_callback_must_not_wait_for_itself(db: eosdb.Database) -> None:
    producer = db.producer()
    with pytest.raises(eosdb.IllegalStateError, match="callback"):
        producer.send(
            "t", "v", on_delivery=lambda error, metadata: producer.send("t", "w").result()
        )
    producer.flush()
    assert committed_values(db, TP) == [b"v", b"w"]


@pytest.mark.parametrize("end", ["abort", "close"])
def test_whoever_waits_for_a_record_that_is_not_sent_is_told(db: eosdb.Database, end: str) -> None:
    told: list[object] = []
    producer = transactional(db)
    producer.begin_transaction()
    producer.send("t", "v", on_delivery=lambda error, metadata: told.append(type(error)))
    producer.abort_transaction() if end == "abort" else producer.close()
    assert told == [eosdb.TransactionAbortableError]
