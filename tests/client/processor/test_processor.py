"""The consume–process–produce loop: exactly once, whatever handlers, groups and coordinators do."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import eosdb
from eosdb import ConsumerRecord, ManualClock, ProducerRecord, TopicPartition
from eosdb.client.consumer.consumer import Consumer
from eosdb.client.processor import handlers
from eosdb.client.processor.failure import read_failure
from tests.cases import each
from tests.chaos.interrupting import Interrupt
from tests.client.processor.work import Run, fails_for, feed, read, upper, values


@pytest.fixture(autouse=True)
def _topics(db: eosdb.Database) -> None:
    db.admin.create_topic("in", partitions=2)
    db.admin.create_topic("out", partitions=2)


def test_each_record_becomes_its_result_under_its_key(db: eosdb.Database, run: Run) -> None:
    feed(db, b"a", b"b")
    report = run(upper)
    assert [(r.key, r.value) for r in read(db)] == [(b"ka", b"A"), (b"kb", b"B")]
    assert report.processed == 2
    assert db.broker.offset_fetch("g") == {TopicPartition("in", 0): eosdb.OffsetAndMetadata(2)}


def test_a_second_run_goes_on_where_the_first_ended(db: eosdb.Database, run: Run) -> None:
    feed(db, b"a")
    run(upper)
    feed(db, b"b")
    run(upper)
    assert values(db) == [b"A", b"B"]


def test_handlers_may_return_nothing_several_things_and_records_for_any_topic(
    db: eosdb.Database, run: Run
) -> None:
    db.admin.create_topic("audit")

    def handle(record: ConsumerRecord) -> Any:
        if record.value == b"nothing":
            return None
        return several(record)

    def several(record: ConsumerRecord) -> Iterator[bytes | str | ProducerRecord]:
        yield b"bytes"
        yield "text"
        yield ProducerRecord(
            topic="audit", value=b"seen", key=record.key, headers=(("h", b"1"),), timestamp=5
        )

    feed(db, b"nothing", b"several")
    run(handle)
    assert values(db) == [b"bytes", b"text"]
    (audited,) = read(db, "audit")
    assert (audited.key, audited.headers, audited.timestamp) == (b"kseveral", (("h", b"1"),), 5)


def test_keys_and_values_pass_through_the_users_serializers(db: eosdb.Database, run: Run) -> None:
    feed(db, b"1", b"2")

    def double(record: ConsumerRecord) -> ProducerRecord:
        assert isinstance(record.value, int)
        return ProducerRecord(value=record.value * 2, key=record.key)

    run(
        double,
        key_deserializer=bytes.decode,
        value_deserializer=int,
        key_serializer=lambda key: str(key).encode(),
        value_serializer=lambda value: b"%d" % value,
    )
    assert [(r.key, r.value) for r in read(db)] == [(b"k1", b"2"), (b"k2", b"4")]


def test_a_record_that_fails_at_first_is_tried_again_and_done_once(
    db: eosdb.Database, run: Run
) -> None:
    calls: list[object] = []

    def handle(record: ConsumerRecord) -> bytes:
        calls.append(record.value)
        if calls.count(b"b") == 1 and record.value == b"b":
            raise ValueError("not yet")
        return upper(record)

    feed(db, b"a", b"b", b"c")
    run(handle)
    assert values(db) == [b"A", b"B", b"C"]
    assert calls == [b"a", b"b", b"b", b"c"]


def test_what_fails_for_good_goes_to_the_dead_letters_with_the_reason(
    db: eosdb.Database, run: Run, clock: ManualClock
) -> None:
    feed(db, b"a", b"bad", b"c")
    report = run(fails_for(b"bad"), dead_letter_topic="dlq", max_attempts=2)
    assert values(db) == [b"A", b"C"]
    (letter,) = read(db, "dlq")
    assert (letter.key, letter.value) == (b"kbad", b"bad")
    failure = read_failure(letter.headers)
    assert failure is not None
    assert (failure.group_id, failure.topic, failure.partition, failure.offset) == ("g", "in", 0, 1)
    assert (failure.attempts, failure.error) == (2, "ValueError")
    assert failure.message == "cannot do b'bad'"
    assert "in handle" in failure.stacktrace
    assert failure.failed_ms <= clock.time_ms()
    assert (report.failed, report.dead_lettered) == (2, 1)


def test_without_dead_letters_a_record_that_fails_for_good_stops_the_run_and_is_met_again(
    db: eosdb.Database, run: Run
) -> None:
    feed(db, b"a", b"bad", b"c")
    with pytest.raises(eosdb.HandlerFailedError, match=r"in-0 offset 1: failed 3 times.*cannot do"):
        run(fails_for(b"bad"))
    assert db.broker.describe_group("g").state == "Empty"
    run(upper)
    assert values(db) == [b"A", b"BAD", b"C"]


def test_what_leaving_the_group_meets_hides_neither_the_cause_nor_keeps_the_transaction(
    db: eosdb.Database, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise eosdb.DatabaseFullError("no room")

    feed(db, b"bad")
    monkeypatch.setattr(Consumer, "unsubscribe", refuses)
    with pytest.raises(eosdb.HandlerFailedError) as raised:
        run(fails_for(b"bad"))
    assert raised.value.__notes__ == ["closing failed, too: DatabaseFullError: no room"]
    assert db.admin.open_transactions() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "result"),
    [
        ({}, 3.5),
        ({}, [b"fine", object()]),
        ({"sink": None}, b"no sink"),
        ({}, ProducerRecord(value=object())),
        ({}, ProducerRecord(topic="nowhere", value=b"x")),
        ({}, [b"sent first", ProducerRecord(topic="nowhere", value=b"x")]),
        ({}, [b"sent first", b"x" * 2_000_000]),
        ({"value_deserializer": int}, b"never called"),
    ],
    ids=["number", "object", "no sink", "no bytes", "no topic", "second", "too large", "poison"],
)
def test_results_that_cannot_be_sent_are_failures_of_their_record_alone(
    db: eosdb.Database, run: Run, config: dict[str, Any], result: Any
) -> None:
    """What `send` refuses is known by its record, which is tried no oftener than any that fails."""
    tried = []

    def handle(record: ConsumerRecord) -> Any:
        if record.value != b"bad":
            return ProducerRecord(topic="out", value=b"fine")
        tried.append(record.offset)
        return result

    feed(db, b"1", b"bad", b"3")
    run(handle, **{"dead_letter_topic": "dlq", "max_attempts": 2, **config})
    assert values(db) == [b"fine", b"fine"]
    assert values(db, "dlq") == [b"bad"]
    assert tried == [1, 1] or "nowhere" not in str(result)


@pytest.mark.slow
def test_retries_wait_for_their_time_in_the_topic_of_the_group(
    db: eosdb.Database, clock: ManualClock, run: Run
) -> None:
    tried: list[tuple[int, str, int]] = []
    start = clock.time_ms()

    def handle(record: ConsumerRecord) -> bytes:
        if record.value == b"bad":
            tried.append((clock.time_ms() - start, record.topic, record.offset))
            if len(tried) < 4:
                raise ValueError("not yet")
        return upper(record)

    feed(db, b"a", b"bad", b"c")
    run(
        handle,
        dead_letter_topic="dlq",
        max_attempts=1,
        retry_delays_ms=(1_000, 5_000, 20_000),
        transaction_interval_ms=0,
    )
    assert values(db) == [b"A", b"BAD", b"C"]
    assert values(db, "dlq") == []
    assert [(topic, offset) for _, topic, offset in tried] == [("in", 1)] * 4
    waits = [later[0] - earlier[0] for earlier, later in itertools.pairwise(tried)]
    assert [round(wait, -2) for wait in waits] == [1_000, 5_000, 20_000]
    retried = [read_failure(record.headers) for record in read(db, "__eosdb.postponed.g")]
    assert [(each.attempts, each.retries) for each in retried if each] == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize(
    ("attempts", "delays", "pauses"),
    [
        (3, (), [0, 0]),
        (1, (), []),
        (3, (1_000, 5_000), [1_000, 5_000]),
        (5, (1_000, 5_000), [0, 0, 1_000, 5_000]),
        (2, (1_000, 5_000, 9_000), [1_000, 5_000, 9_000]),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_attempts_are_all_calls_and_delays_stand_before_the_last_ones(
    run: Run, db: eosdb.Database, clock: ManualClock,
    attempts: int, delays: tuple[int, ...], pauses: list[int], workers: int,
) -> None:  # fmt: skip
    calls: list[int] = []

    def fail(record: ConsumerRecord) -> None:
        calls.append(clock.time_ms())
        raise ValueError

    feed(db, b"bad")
    run(
        fail, dead_letter_topic="dlq", max_attempts=attempts, retry_delays_ms=delays,
        retry_backoff_ms=1, workers=workers,
    )  # fmt: skip
    waits = [round(later - earlier, -3) for earlier, later in itertools.pairwise(calls)]
    assert waits == pauses
    (letter,) = read(db, "dlq")
    failure = read_failure(letter.headers)
    assert failure is not None
    assert failure.attempts == len(calls) == len(pauses) + 1


@pytest.mark.parametrize("second", ["g", "h"])
def test_a_short_retry_does_not_wait_for_a_longer_one_of_its_group_or_of_another(
    db: eosdb.Database, clock: ManualClock, second: str
) -> None:
    """Its group has a shorter delay since a deployment, or another group has the dead letter topic, too."""
    calls: list[tuple[bytes, int]] = []

    def handle(record: ConsumerRecord) -> None:
        calls.append((record.value, clock.time_ms()))
        if len(calls) == 1:
            processor.stop()
        if [value for value, _ in calls].count(record.value) == 1:
            raise ValueError("later")

    for group, value, delay_ms in (("g", b"long", 20_000), (second, b"short", 200)):
        feed(db, value)
        processor = db.processor(
            "in", handle, group_id=group, max_attempts=1, dead_letter_topic="dlq",
            retry_delays_ms=(delay_ms,),
        )  # fmt: skip
        processor.run(until_idle_ms=50)
    first, again = (at for value, at in calls if value == b"short")
    assert again - first < 1_000


@pytest.mark.slow
def test_a_retry_survives_a_restart_and_what_fails_in_the_last_one_is_dead(
    db: eosdb.Database, clock: ManualClock
) -> None:
    settings: dict[str, Any] = {
        "group_id": "g",
        "transactional_id": "tx",
        "dead_letter_topic": "dlq",
        "max_attempts": 3,
        "retry_delays_ms": (60_000,),
    }
    feed(db, b"bad", b"c")

    def stop_after_c(record: ConsumerRecord) -> bytes:
        if record.value == b"c":
            first.stop()
        return fails_for(b"bad")(record)

    first = db.processor("in", stop_after_c, "out", **settings)
    first.run()
    assert [waiting.value for waiting in db.admin.list_scheduled()] == [b"bad"]
    before = clock.time_ms()
    db.processor("in", fails_for(b"bad"), "out", **settings).run(until_idle_ms=50)
    assert clock.time_ms() - before > 50_000
    (letter,) = read(db, "dlq")
    failure = read_failure(letter.headers)
    assert failure is not None
    assert (failure.attempts, failure.topic, failure.offset) == (3, "in", 0)


def test_another_groups_retries_are_left_to_it(db: eosdb.Database) -> None:
    settings: dict[str, Any] = {
        "dead_letter_topic": "dlq",
        "max_attempts": 1,
        "retry_delays_ms": (1_000,),
        "until_idle_ms": 50,
    }
    feed(db, b"bad")
    eosdb.process(
        db, "in", fails_for(b"bad"), "out", group_id="g", transactional_id="a", **settings
    )
    eosdb.process(db, "in", upper, "out", group_id="h", transactional_id="b", **settings)
    assert values(db) == [b"BAD"]
    assert len(read(db, "dlq")) == 1


def test_a_pattern_takes_new_topics_and_never_the_dead_letters(
    db: eosdb.Database, run: Run
) -> None:
    feed(db, b"a", b"bad")
    pattern = re.compile("in.*")
    run(fails_for(b"bad"), topics=pattern, dead_letter_topic="in.dlq", max_attempts=1)
    db.admin.create_topic("in2")
    feed(db, b"b", topic="in2")
    run(upper, topics=pattern, dead_letter_topic="in.dlq")
    assert values(db) == [b"A", b"B"]
    assert values(db, "in.dlq") == [b"bad"]


@pytest.mark.slow
def test_copies_in_threads_share_the_work(db_path: Path) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        feed(db, *(b"%d" % i for i in range(500)), partition=0)
        feed(db, *(b"%d" % i for i in range(500, 1000)), partition=1)
        processors = [
            db.processor(
                "in",
                upper,
                "out",
                group_id="g",
                transactional_id="tx",
                transaction_size=20,
                consumer={"heartbeat_interval_ms": 50},
            )
            for _ in range(3)
        ]
        threads = [threading.Thread(target=processor.run, args=(500,)) for processor in processors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert values(db) == sorted(b"%d" % i for i in range(1000))


def test_a_result_refused_at_the_commit_is_found_and_becomes_a_dead_letter(
    db: eosdb.Database, run: Run
) -> None:
    db.admin.alter_topic_config("out", {"max.message.bytes": 200})

    def handle(record: ConsumerRecord) -> bytes:
        return b"x" * 500 if record.value == b"bad" else upper(record)

    feed(db, b"a", b"b", b"bad", b"c", b"d")
    report = run(handle, dead_letter_topic="dlq", max_attempts=2)
    assert values(db) == [b"A", b"B", b"C", b"D"]
    (letter,) = read(db, "dlq")
    failure = read_failure(letter.headers)
    assert failure is not None
    assert (failure.error, failure.attempts, failure.offset) == ("MessageTooLargeError", 2, 2)
    assert report.dead_lettered == 1


def test_a_large_result_that_is_refused_early_is_not_blamed_on_the_next_record(
    db: eosdb.Database, run: Run
) -> None:
    def handle(record: ConsumerRecord) -> bytes:
        return b"x" * 2_000_000 if record.value == b"bad" else upper(record)

    feed(db, b"bad", b"a", b"b")
    run(handle, dead_letter_topic="dlq", max_attempts=1)
    assert values(db) == [b"A", b"B"]
    assert values(db, "dlq") == [b"bad"]


def test_a_source_that_is_deleted_under_way_ends_nothing_else(db: eosdb.Database, run: Run) -> None:
    db.admin.create_topic("in2")
    feed(db, b"gone", topic="in2")

    def handle(record: ConsumerRecord) -> bytes:
        if record.topic == "in2" and "in2" in db.admin.list_topics():
            db.admin.delete_topic("in2")
            feed(db, b"a")
        return upper(record)

    run(handle, topics=["in2", "in"])
    assert values(db) == [b"A"]


def test_an_interrupt_in_a_handler_leaves_nothing_half_done(db: eosdb.Database, run: Run) -> None:
    def handle(record: ConsumerRecord) -> bytes:
        if record.value == b"b":
            raise KeyboardInterrupt
        return upper(record)

    feed(db, b"a", b"b")
    with pytest.raises(KeyboardInterrupt):
        run(handle)
    run(upper)
    assert values(db) == [b"A", b"B"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("has_transaction", [False, True])
def test_a_signal_ends_the_run_after_the_record_in_hand(
    db: eosdb.Database, number: signal.Signals, has_transaction: bool
) -> None:
    def alone(record: ConsumerRecord) -> bytes:
        if record.value == b"b":
            os.kill(os.getpid(), number)
        return upper(record)

    def in_transaction(record: ConsumerRecord, tx: eosdb.UserTransaction) -> bytes:
        return alone(record)

    handle = in_transaction if has_transaction else alone
    feed(db, b"a", b"b", b"c")
    before = signal.getsignal(number)
    eosdb.process(db, "in", handle, "out", group_id="g", transactional_id="tx")
    assert values(db) == [b"A", b"B"]
    assert db.broker.describe_group("g").state == "Empty"
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_the_run_did_not_survive_has_its_usual_effect(
    db: eosdb.Database, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that runs again after an error would never end by SIGTERM."""

    def handle(_: ConsumerRecord) -> bytes:
        os.kill(os.getpid(), number)
        raise ValueError("unreadable")

    received: list[int] = []
    feed(db, b"a")
    before = signal.signal(number, lambda which, _: received.append(which))
    try:
        with pytest.raises(eosdb.HandlerFailedError):
            eosdb.process(db, "in", handle, group_id="g", max_attempts=1)
    finally:
        signal.signal(number, before)
    assert received == [number]
    assert f"the run failed after {number.name}, which is sent again" in caplog.text
    assert values(db) == []


def test_stop_ends_a_run_that_waits(db_path: Path) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        processor = db.processor("in", upper, "out", group_id="g", transactional_id="tx")
        thread = threading.Thread(target=processor.run)
        thread.start()
        processor.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_a_static_copy_that_is_replaced_ends_with_the_groups_error(
    db: eosdb.Database, clock: ManualClock
) -> None:
    settings: dict[str, Any] = {
        "group_id": "g",
        "transactional_id": "tx",
        "consumer": {"group_instance_id": "one"},
    }
    replaced = False

    def handle(record: ConsumerRecord) -> bytes:
        nonlocal replaced
        if not replaced:
            replaced = True
            db.processor("in", upper, "out", **settings).run(until_idle_ms=50)
        return upper(record)

    feed(db, b"a")
    with pytest.raises((eosdb.FencedInstanceIdError, eosdb.ProducerFencedError)):
        db.processor("in", handle, "out", **settings).run(until_idle_ms=5_000)
    assert values(db) == [b"A"]


@each(
    ("config", "told"),
    [
        ({"transaction_size": 0}, "transaction_size"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"retry_delays_ms": (5,)}, "dead_letter_topic"),
        ({"retry_delays_ms": (0,), "dead_letter_topic": "dlq"}, "retry_delays_ms"),
        ({"consumer": {"enable_auto_commit": True}}, "enable_auto_commit"),
        ({"producer": {"transactional_id": "x"}}, "transactional_id"),
        ({"producer": {"linger": 1}}, "linger"),
        ({"consumer": {"fetch": 1}}, "fetch"),
        ({"dead_letter_topic": "in"}, "topics"),
        ({"batch": 1}, "expected True or False"),
        ({"batch": True, "max_batch": 0}, "max_batch"),
        ({"max_batch": 500}, "got 500 without batch=True"),
        ({"max_batch": 9, "batch": False}, "add batch=True"),
        ({"batches": True}, "did you mean 'batch'"),
        ({"until_idle": 100}, "did you mean 'until_idle_ms'"),
        ({"until_idle_ms": 100}, "give it to run"),
        ({"retry_delays_ms": 1_000, "dead_letter_topic": "dlq"}, "got 1000, expected delays in ms"),
    ],
)
def test_bad_settings_are_refused(db: eosdb.Database, config: dict[str, Any], told: str) -> None:
    with pytest.raises(eosdb.ConfigError, match=told):
        db.processor("in", upper, "out", group_id="g", transactional_id="tx", **config)


def test_ids_and_sink_are_checked_before_anything_runs(db: eosdb.Database, tmp_path: Path) -> None:
    with pytest.raises(eosdb.ConfigError, match="transactional_id"):
        db.processor("in", upper, "out", group_id="g", transactional_id="")
    for group_id in ("", None, 5):
        with pytest.raises(eosdb.ConfigError, match=f"group_id: got {group_id!r}"):
            db.processor("in", upper, "out", group_id=cast("str", group_id))
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        db.processor("in", upper, "nowhere", group_id="g", transactional_id="tx")
    with pytest.raises(eosdb.ConfigError, match="topics: got none"):
        db.processor([], upper, "out", group_id="g")
    for idle_ms in (-1, "1"):
        with pytest.raises(eosdb.ConfigError, match=f"until_idle_ms: got {idle_ms!r}"):
            db.processor("in", upper, "out", group_id="g").run(cast("int", idle_ms))


def test_a_handler_that_is_interrupted_anywhere_leaves_no_mark(db_path: Path) -> None:
    """Else `db.begin()` would be refused in this thread for ever."""
    record, at, interrupt = cast("ConsumerRecord", None), 0, Interrupt(0)

    def run() -> None:
        handlers.call(lambda _: [b"a", b"b"], record, None, str(db_path))

    while at == 0 or interrupt.reached:
        interrupt, at = Interrupt(at), at + 1
        with contextlib.suppress(KeyboardInterrupt):
            interrupt.run(run)
        handlers.check_may_begin(str(db_path))
    assert at > 3


def test_a_path_will_do(db: eosdb.Database, db_path: Path) -> None:
    feed(db, b"a")
    eosdb.process(
        db_path, "in", upper, "out", group_id="g", transactional_id="tx", until_idle_ms=10
    )
    assert values(db) == [b"A"]
