"""`send_many`: the same records as by a loop of `send`, and what is told of them when it ends early.

Goal: however the call ends – an iterable that raises, a record that is refused at once or by the broker, a
fenced or aborted transaction – `sent` says which records the producer has taken over, and going on behind
them stores each once.
"""

from __future__ import annotations

import contextlib
import gc
import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import chain, pairwise
from typing import Any

import pandas
import pyarrow
import pytest

import eosdb
from eosdb import ManualClock, ProducerRecord, SentRecords, TopicPartition, errors
from eosdb.client.producer.bulk import CHUNK_RECORDS
from eosdb.testing import FaultyTransport
from tests.chaos.interrupting import Interrupt
from tests.client.producer.answers import transactional
from tests.client.producer.test_bad_network import BAD, stored
from tests.inside import Commits
from tests.readers import committed_values

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)
MANY = 2 * CHUNK_RECORDS + 700
H = (("h", b"1"), ("none", None))


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, last)]


def read(db: eosdb.Database, topic: str) -> list[tuple[Any, ...]]:
    """What a consumer gets, without the topic, by partition and offset."""
    consumer = db.consumer(auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, i) for i in range(consumer.partitions_for(topic))])
    found = list(chain.from_iterable(iter(lambda: consumer.poll(max_records=10_000), [])))
    return sorted(tuple(record[1:]) for record in found)


# -- what may be sent ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        [b"a", b"b", None, b""],
        ["a", "b", "ü"],
        ["a", b"b", None],
        [("k1", "a"), ("k2", b"b"), (b"k1", None)],
        [(None, b"a"), (None, b"b")],
        [(b"k", b"a"), (None, b"b"), b"c"],
        [ProducerRecord(value="a", key="k", headers=H, timestamp=7, partition=2), ProducerRecord()],
        [b"a", ProducerRecord(value="a", headers=H), (b"k", "b"), ProducerRecord(partition=1, topic="x")],
        [],
    ],
    ids=["bytes", "text", "mixed", "pairs", "no keys", "some keys", "records", "all kinds", "none"],
)  # fmt: skip
@pytest.mark.parametrize("partition", [None, 1])
def test_the_same_records_as_by_a_loop(
    db: eosdb.Database, given: list[Any], partition: int | None
) -> None:
    for topic in ("x", "y"):
        db.admin.create_topic(topic, partitions=1 if partition is None else 3)
    is_keyless = partition is None
    if is_keyless and any(getattr(one, "partition", None) for one in given):
        given = [one for one in given if not getattr(one, "partition", None)]
    producer = db.producer()
    for one in given:
        record = one if isinstance(one, ProducerRecord) else ProducerRecord(value=one)
        if isinstance(one, tuple):
            record = ProducerRecord(key=one[0], value=one[1])
        producer.send(
            "y", record.value, key=record.key, headers=record.headers, timestamp=record.timestamp,
            partition=partition if record.partition is None else record.partition,
        )  # fmt: skip
    sent = producer.send_many("x", given, partition=partition)
    assert read(db, "x") == read(db, "y")
    assert (sent.accepted, sent.stored, sent.failed) == (len(given), len(given), {})


def test_keys_and_serializers_are_used_as_by_send(db: eosdb.Database) -> None:
    for topic in ("x", "y"):
        db.admin.create_topic(topic, partitions=5)
    producer = db.producer(
        partitioner="murmur2_random",
        key_serializer=lambda key: str(key).encode(),
        value_serializer=lambda value: json.dumps(value).encode(),
    )
    pairs = [(i % 37, {"n": [i]}) for i in range(700)]
    for key, value in pairs:
        producer.send("y", value, key=key)
    producer.send_many("x", iter(pairs))
    assert read(db, "x") == read(db, "y")
    assert len({record[0] for record in read(db, "x")}) == 5


def test_records_without_a_key_fill_one_partition_after_the_other(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=4)
    db.producer(batch_size=1_000).send_many("t", numbers(10_000, 30_000))
    found = [list(map(int, values)) for values in stored(db, 4)]
    assert sorted(chain.from_iterable(found)) == list(range(10_000, 30_000))
    assert all(values == sorted(values) and values for values in found)
    breaks = sum(b != a + 1 for values in found for a, b in pairwise(values))
    assert 30 < breaks < 110, "another partition is drawn after each 200 records"


def test_many_records_take_few_commits_and_their_offsets_are_one_range(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    producer = db.producer()
    producer.send_many("t", [b"first"])
    with Commits(db) as commits:
        sent = producer.send_many("t", (b"%d" % i for i in range(MANY)))
    assert commits.all == 3
    assert sent.offsets == {TP: [range(1, MANY + 1)]}
    assert committed_values(db, TP) == [b"first", *numbers(0, MANY)]


def test_large_records_are_sent_by_the_megabyte(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    with Commits(db) as commits:
        sent = db.producer().send_many("t", [bytes([i]) * 300_000 for i in range(20)])
    assert commits.all == 3, "a chunk ends with the record that fills its mebibyte"
    assert sent.offsets == {TP: [range(20)]}
    assert [value[0] for value in committed_values(db, TP) if value] == list(range(20))


def test_others_write_between_two_chunks_and_ranges_leave_out_what_is_theirs(
    db: eosdb.Database,
) -> None:
    db.admin.create_topic("t", partitions=2)
    other = db.producer()

    def with_others() -> Iterator[bytes]:
        for i in range(MANY):
            if i % 2_000 == 0:
                other.send("t", b"other", partition=0).result()
            yield b"%d" % i

    sent = db.producer().send_many("t", with_others(), partition=0)
    values = committed_values(db, TP)
    assert sent.offsets == {TP: [range(3, 5_019), range(5_022, MANY + 6)]}
    own = [values[offset] for run in sent.offsets[TP] for offset in run]
    assert own == numbers(0, MANY)
    assert values.count(b"other") == len(values) - MANY == 6


def test_inside_a_transaction_all_of_it_goes_with_the_commit(db: eosdb.Database) -> None:
    db.admin.create_topic("t", partitions=2)
    producer = transactional(db)
    with Commits(db) as commits, producer.transaction():
        before = producer.send("t", b"before", partition=0)
        sent = producer.send_many("t", [("a", b"1"), ("b", b"2"), ("c", b"3")])
        after = producer.send("t", b"after", partition=0)
        assert (sent.accepted, sent.stored, sent.offsets) == (3, 0, {})
    assert commits.all == 1
    assert sent.stored == 3
    own = {committed_values(db, tp)[at] for tp, runs in sent.offsets.items() for at in chain(*runs)}
    assert own == {b"1", b"2", b"3"}
    assert committed_values(db, TP)[0] == b"before"
    assert before.result().offset == 0
    assert committed_values(db, TP)[-1] == b"after"
    assert after.done()


def test_a_transaction_may_be_larger_than_memory_should_hold(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    producer = transactional(db)
    with producer.transaction():
        sent = producer.send_many("t", numbers(0, MANY))
        assert sent.stored >= 2 * CHUNK_RECORDS
        assert committed_values(db, TP) == []
    assert committed_values(db, TP) == numbers(0, MANY)
    assert sent.offsets == {TP: [range(MANY)]}


@pytest.mark.parametrize(
    "records",
    [
        {"k": "v"}, Counter("ab"), "ab", b"ab", bytearray(b"ab"), memoryview(b"ab"),
        ProducerRecord(value=b"v", key=b"k"), pandas.DataFrame({"a": [1]}),
        pyarrow.table({"a": ["v"]}), pyarrow.record_batch({"a": ["v"]}),
    ],
    ids=lambda records: type(records).__name__,
)  # fmt: skip
def test_what_gives_keys_or_names_when_it_is_iterated_is_refused(
    db: eosdb.Database, records: Any
) -> None:
    db.admin.create_topic("t")
    with pytest.raises(TypeError, match="expected an iterable of records"):
        db.producer().send_many("t", records)
    assert committed_values(db, TP) == []


# -- what ends it early -------------------------------------------------------------------------


def raising(count: int, error: Exception) -> Iterator[bytes]:
    yield from numbers(0, count)
    raise error


@pytest.mark.parametrize("count", [0, 7, 600, MANY])
def test_what_an_iterable_gave_before_it_raised_is_stored(db: eosdb.Database, count: int) -> None:
    db.admin.create_topic("t")
    producer, sent = db.producer(), SentRecords()
    with pytest.raises(ZeroDivisionError) as raised:
        producer.send_many("t", raising(count, ZeroDivisionError("mine")), sent=sent)
    assert committed_values(db, TP) == numbers(0, count)
    assert (sent.accepted, sent.stored) == (count, count)
    assert f"accepted={count}, stored={count}" in raised.value.__notes__[0]
    producer.send_many("t", numbers(count, count + 5), sent=sent)
    assert committed_values(db, TP) == numbers(0, count + 5)
    assert sent.accepted == count + 5


def test_an_iterable_that_raises_aborts_the_block_it_is_in(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    producer, sent = transactional(db), SentRecords()
    error = errors.MessageTooLargeError("not the producer's")
    with pytest.raises(errors.MessageTooLargeError), producer.transaction():
        try:
            producer.send_many("t", raising(MANY, error), sent=sent)
        finally:
            assert producer.state == "IN_TRANSACTION", "it lacks nothing that was handed over"
    assert committed_values(db, TP) == []
    assert sent.accepted == MANY
    assert sent.stored + len(sent.failed) == MANY
    with producer.transaction():
        producer.send_many("t", numbers(0, 3))
    assert committed_values(db, TP) == numbers(0, 3)


REFUSED: list[object] = [
    pytest.param(5, TypeError, "IN_TRANSACTION", id="no bytes"),
    pytest.param((b"k", b"v", b"w"), TypeError, "IN_TRANSACTION", id="no pair"),
    pytest.param((5, b"v"), TypeError, "IN_TRANSACTION", id="key"),
    pytest.param("\ud800", errors.InvalidRecordError, "ABORTABLE_ERROR", id="no UTF-8"),
    pytest.param(b"v" * 700_001, errors.MessageTooLargeError, "ABORTABLE_ERROR", id="too large"),
    pytest.param(
        ProducerRecord(partition=1), errors.UnknownTopicOrPartitionError, "ABORTABLE_ERROR",
        id="no such partition",
    ),
    pytest.param(
        ProducerRecord(topic="u"), errors.InvalidRequestError, "ABORTABLE_ERROR", id="topic"
    ),
    pytest.param(
        ProducerRecord(headers=((1, b""),)),  # type: ignore[arg-type]
        errors.InvalidRecordError, "ABORTABLE_ERROR", id="header",
    ),
    pytest.param(
        ProducerRecord(timestamp=-1), errors.InvalidTimestampError, "ABORTABLE_ERROR", id="timestamp"
    ),
    pytest.param((b"bad", b"v"), errors.ConfigError, "IN_TRANSACTION", id="partitioner's choice"),
    pytest.param((b"no", b"v"), errors.ConfigError, "IN_TRANSACTION", id="partitioner's False"),
    pytest.param((b"worse", b"v"), KeyError, "IN_TRANSACTION", id="partitioner's error"),
]  # fmt: skip
CHOICES = {b"bad": 1, b"no": False, b"k": 0}


@pytest.mark.parametrize(("record", "error", "state"), REFUSED)
@pytest.mark.parametrize("before", [0, 3, 900])
def test_the_records_before_one_that_is_refused_at_once_are_sent(
    db: eosdb.Database, record: object, error: type[Exception], state: str, before: int
) -> None:
    db.admin.create_topic("t")
    config: dict[str, Any] = {
        "partitioner": lambda key, _: CHOICES[key], "max_request_size": 700_000
    }  # fmt: skip
    given = [*numbers(0, before), record, *numbers(before, 1_000)]
    producer, sent = db.producer(**config), SentRecords()
    with pytest.raises(error):
        producer.send_many("t", given, sent=sent)
    assert (sent.accepted, sent.stored, sent.failed) == (before, before, {})
    producer.send_many("t", given[sent.accepted + 1 :], sent=sent)
    assert committed_values(db, TP) == numbers(0, 1_000)

    producer = transactional(db, **config)
    producer.begin_transaction()
    with pytest.raises(error):
        producer.send_many("t", given)
    assert producer.state == state, "as after a `send` of the same record"
    producer.abort_transaction()
    assert committed_values(db, TP) == numbers(0, 1_000)


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_record_that_the_broker_refuses_does_not_keep_the_others_out(
    db: eosdb.Database, is_transactional: bool
) -> None:
    """The batch is split until the one that is too large for the topic is alone."""
    db.admin.create_topic("t", config={"max.message.bytes": "60000"})
    producer = transactional(db) if is_transactional else db.producer()
    sent, bad = SentRecords(), 600
    given = [*numbers(0, bad), b"v" * 60_001, *numbers(bad, 1_000)]
    if is_transactional:
        producer.begin_transaction()
        producer.send("t", b"sent before, in the same batch")
        producer.send_many("t", given, sent=sent)
        producer.send("t", b"sent after")
        with pytest.raises(errors.MessageTooLargeError):
            producer.commit_transaction()
        producer.abort_transaction()
        assert committed_values(db, TP) == []
        assert next(iter(sent.failed)) == bad
        return
    with pytest.raises(errors.MessageTooLargeError):
        producer.send_many("t", given, sent=sent)
    assert (sent.accepted, sent.stored, list(sent.failed)) == (1_001, 1_000, [bad])
    assert isinstance(sent.failed[bad], errors.MessageTooLargeError)
    assert sent.offsets == {TP: [range(1_000)]}
    assert committed_values(db, TP) == numbers(0, 1_000)
    producer.send_many("t", [*given, b"on"][sent.accepted :], sent=sent)
    assert sent.offsets == {TP: [range(1_001)]}
    db.admin.alter_topic_config("t", {"max.message.bytes": "70000"})
    producer.send_many("t", [given[number] for number in sent.failed])
    assert {*committed_values(db, TP)} == {*given, b"on"}, "the page's way loses none"


def test_what_was_split_goes_on_behind_the_record_that_was_refused(
    db: eosdb.Database, clock: ManualClock
) -> None:
    """It waited for delivery_timeout_ms, and failed then."""
    db.admin.create_topic("t", config={"max.message.bytes": "1000"})
    producer = db.producer(linger_ms=60_000, batch_size=1_000_000)
    futures = [producer.send("t", value) for value in (b"1", b"2", b"v" * 1_001, b"3", b"4", b"5")]
    before = clock.time_ms()
    producer.flush()
    assert [future.exception() is None for future in futures] == [True] * 2 + [False] + [True] * 3
    assert committed_values(db, TP) == numbers(1, 6)
    assert clock.time_ms() - before < 1_000


@pytest.mark.parametrize("how", ["fenced", "timed out"])
def test_a_transaction_that_is_aborted_meanwhile_ends_it_and_nothing_of_it_is_visible(
    db: eosdb.Database, clock: ManualClock, how: str
) -> None:
    db.admin.create_topic("t")
    producer, sent = transactional(db), SentRecords()

    def overtaken() -> Iterator[bytes]:
        yield from numbers(0, CHUNK_RECORDS + 600)
        if how == "fenced":
            with transactional(db).transaction():
                pass
        else:
            clock.advance(60_001)
            db.housekeeping()
        yield from numbers(0, MANY)

    error = errors.ProducerFencedError if how == "fenced" else errors.ApiError
    with pytest.raises(error), producer.transaction():
        producer.send_many("t", overtaken(), sent=sent)
    assert committed_values(db, TP) == []
    assert sent.failed
    assert CHUNK_RECORDS <= sent.stored < sent.accepted < CHUNK_RECORDS + 600 + MANY


def test_what_cannot_be_sent_is_refused_also_without_records(db: eosdb.Database) -> None:
    sent = SentRecords()
    for records in ([], [b"v"]):
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            db.producer().send_many("t", records, sent=sent)
    db.admin.create_topic("t")
    no_iterables: list[Any] = [b"bytes", "text", 5]
    for no_records in no_iterables:
        with pytest.raises(TypeError):
            db.producer().send_many("t", no_records, sent=sent)
    closed = db.producer()
    closed.close()
    with pytest.raises(errors.IllegalStateError):
        closed.send_many("t", [b"v"], sent=sent)
    producer = transactional(db)
    with Commits(db) as commits, producer.transaction():
        producer.send_many("t", [])
    assert (commits.all, sent.accepted, committed_values(db, TP)) == (0, 0, [])


# -- bad networks, and interrupts ---------------------------------------------------------------


def test_on_a_bad_network_each_arrives_once_in_order_where_it_is_said_to_be(
    db: eosdb.Database,
) -> None:
    db.admin.create_topic("t", partitions=3)
    network = FaultyTransport(db.broker, seed=5, **BAD, delay_ms=(0, 30))
    producer = db.producer(transport=network, batch_size=500)
    given = [(b"%d" % (i % 50), b"%d" % i) for i in range(MANY)]
    sent = producer.send_many("t", iter(given))
    network.deliver_all()
    assert all(network.counts[fault] > 3 for fault in BAD)
    assert sent.stored == MANY
    found = stored(db)
    assert sorted(map(int, chain.from_iterable(found))) == list(range(MANY))
    for partition, values in enumerate(found):
        assert list(map(int, values)) == sorted(map(int, values))
        runs = sent.offsets[TopicPartition("t", partition)]
        assert all(run.stop <= len(values) for run in runs)
        assert sum(map(len, runs)) == len(values), "the answers of duplicates say where, too"


@pytest.fixture
def memory() -> Iterator[eosdb.Database]:
    """A database on which Python's collector does not run where an interrupt could not leave it."""
    gc.disable()
    try:
        with eosdb.connect(":memory:", clock=ManualClock(start_ms=1)) as opened:
            opened.admin.create_topic("t", partitions=2)
            yield opened
    finally:
        gc.enable()


def test_a_flush_sends_what_an_interrupted_send_had_in_its_hands(
    memory: eosdb.Database, seeds: list[int]
) -> None:
    """It returned with the record unsent."""
    step = max(1, 5 // len(seeds))
    is_reached, number = True, seeds[0] % step
    while is_reached:
        producer = memory.producer()
        producer.send("t", b"warm", partition=1).result()
        interrupt = Interrupt(number)
        with contextlib.suppress(KeyboardInterrupt):
            interrupt.run(partial(producer.send, "t", b"%d" % number, partition=0))
        producer.flush()
        before = memory.broker.offsets(TP)
        producer.send("t", b"next", partition=1).result()
        assert memory.broker.offsets(TP) == before, f"at place {number}"
        is_reached, number = interrupt.reached, number + step
    values = committed_values(memory, TP)
    assert len(values) == len(set(values)) > number / step / 2


@pytest.mark.parametrize(("size", "step"), [(3, 6), (40, 180)])
def test_after_an_interrupt_going_on_behind_what_was_accepted_stores_each_once(
    memory: eosdb.Database, size: int, step: int, seeds: list[int]
) -> None:
    """At some of the places where CPython can raise it; the batches are small, so there are many."""
    step = max(1, step // len(seeds))
    is_reached, number, expected = True, seeds[0] % step, []
    while is_reached:
        producer, sent = memory.producer(batch_size=30), SentRecords()
        producer.send_many("t", [(b"k", f"{number} warm")])
        given = [(b"%d" % (i % 7), f"{number}:{i}") for i in range(size)]
        interrupt = Interrupt(number)
        with contextlib.suppress(KeyboardInterrupt):
            interrupt.run(partial(producer.send_many, "t", given, sent=sent))
        producer.send_many("t", given[sent.accepted :], sent=sent)
        assert (sent.accepted, sent.stored, sent.failed) == (size, size, {}), f"at place {number}"
        expected += [f"{number} warm", *(value for _, value in given)]
        is_reached, number = interrupt.reached, number + step
    assert Counter(chain.from_iterable(stored(memory, 2))) == Counter(expected)
