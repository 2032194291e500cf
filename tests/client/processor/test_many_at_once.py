"""`workers`: several records at once, each key in order, and offsets up to the lowest unfinished one."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ConsumerRecord, ProducerRecord, TopicPartition
from tests.client.processor.work import Run, fails_for, read, upper, values
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.slow

TP = TopicPartition("in", 0)
MOST = 400


@pytest.fixture(autouse=True)
def _topics(db: eosdb.Database) -> Iterator[None]:
    for topic in ("in", "out"):
        db.admin.create_topic(topic, partitions=2)
    yield
    assert not workers()


def workers() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("eosdb-worker")]


def send(db: eosdb.Database, *records: tuple[bytes | None, bytes], partition: int = 0) -> None:
    """Keys and values, all in one partition."""
    with db.producer(linger_ms=10_000) as producer:
        for key, value in records:
            producer.send("in", value, key=key, partition=partition)


def keyed(*words: str) -> list[tuple[bytes | None, bytes]]:
    """Words as records; the first letter is the key, and `-` says that there is none."""
    return [(None if word[0] == "-" else word[:1].encode(), word.encode()) for word in words]


def committed(db: eosdb.Database, tp: TopicPartition = TP) -> tuple[int, str]:
    stored = db.broker.offset_fetch("g").get(tp)
    return (0, "") if stored is None else (stored.offset, stored.metadata)


class Gates:
    """A handler whose records wait until they are let go by name."""

    def __init__(self, *closed: str) -> None:
        self.closed = {name.encode(): threading.Event() for name in closed}
        self.begun: list[str] = []
        self.ended: list[str] = []

    def __call__(self, record: ConsumerRecord) -> bytes:
        name = record.value.decode()
        self.begun.append(name)
        if (gate := self.closed.get(record.value)) is not None:
            assert gate.wait(PATIENCE_S)
        self.ended.append(name)
        return upper(record)

    def let_go(self, *names: str) -> None:
        for name in names:
            self.closed[name.encode()].set()


@contextmanager
def running(db: eosdb.Database, handler: Any, **settings: Any) -> Iterator[eosdb.Processor]:
    """A processor in a thread of its own, which is stopped at the end; its error is raised."""
    settings = {"workers": 4, "transaction_interval_ms": 20, **settings}
    processor = db.processor("in", handler, "out", group_id="g", **settings)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            processor.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield processor
    finally:
        processor.stop()
        thread.join(PATIENCE_S)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.fixture
def timed(db_path: Path, db: eosdb.Database) -> Iterator[eosdb.Database]:
    """The same file with the system's clock: a waiting thread does not stop the time."""
    with eosdb.connect(db_path) as opened:
        yield opened


def test_a_slow_record_holds_only_its_key(timed: eosdb.Database) -> None:
    """What is behind it is read, processed and committed; what has its key waits."""
    handler = Gates("a1")
    send(timed, *keyed("a1", "a2", "b1", "b2", "-1", "-2"))
    with running(timed, handler):
        eventually(lambda: committed(timed) == (0, "eosdb:0 6 1"))
        send(timed, *keyed("b3", "a3", "c1"))
        eventually(lambda: committed(timed) == (0, "eosdb:0 9 1 6"))
        assert "a2" not in handler.begun
        handler.let_go("a1")
        eventually(lambda: committed(timed) == (9, ""))
    assert [each for each in handler.begun if each[0] == "a"] == ["a1", "a2", "a3"]
    assert values(timed) == [b"-1", b"-2", b"A1", b"A2", b"A3", b"B1", b"B2", b"B3", b"C1"]


def test_records_without_a_key_wait_for_nobody(timed: eosdb.Database) -> None:
    handler = Gates("-1", "-2", "-3")
    send(timed, *keyed("-1", "-2", "-3", "-4"))
    with running(timed, handler):
        eventually(lambda: committed(timed) == (0, "eosdb:0 4 1 1"))
        handler.let_go("-1", "-2", "-3")
        eventually(lambda: committed(timed) == (4, ""))


def test_no_more_run_at_once_than_there_are_workers(db: eosdb.Database, run: Run) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def handle(record: ConsumerRecord) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1

    send(db, *keyed(*(f"-{number}" for number in range(60))))
    assert run(handle, None, workers=3).processed == 60
    assert most == 3


def test_each_key_has_its_order_and_each_record_one_result(
    db: eosdb.Database, run: Run, seeds: list[int]
) -> None:
    """Whatever the handlers take, and however small the transactions are."""
    for seed in seeds[:3]:
        rng = random.Random(seed)
        words = [f"{rng.choice('abcdefgh')}{seed}.{number}" for number in range(300)]
        for partition in (0, 1):
            send(db, *keyed(*words[partition::2]), partition=partition)
        handler = OneOfAKeyAtATime(rng)
        assert run(handler, workers=4, transaction_size=rng.choice([3, 50, 500])).failed == 0
    found = defaultdict[tuple[object, int, int], list[int]](list)
    for record in read(db):
        seed, number = map(int, record.value[1:].split(b"."))
        found[record.key, seed, number % 2].append(number)
    assert sum(map(len, found.values())) == 300 * len(seeds[:3])
    assert all(numbers == sorted(set(numbers)) for numbers in found.values())


class OneOfAKeyAtATime:
    """A handler that fails when two records of one key are processed at once."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._lock = rng, threading.Lock()
        self._busy = set[tuple[int, object]]()

    def __call__(self, record: ConsumerRecord) -> bytes:
        lane = record.partition, record.key
        with self._lock:
            assert lane not in self._busy
            self._busy.add(lane)
            is_slow = self._rng.random() < 0.1
        if is_slow:
            time.sleep(0.001)
        with self._lock:
            self._busy.remove(lane)
        value: bytes = record.value
        return value


def test_retries_hold_only_their_key_and_come_before_what_is_behind(
    timed: eosdb.Database,
) -> None:
    tried: list[str] = []
    failing = fails_for(b"a1")
    is_seen = threading.Event()

    def handle(record: ConsumerRecord) -> bytes:
        tried.append(record.value.decode())
        if tried[-1] == "a1" and tried.count("a1") == 2:
            assert is_seen.wait(PATIENCE_S)
        return failing(record)

    send(timed, *keyed("a1", "a2", "b1", "-1"))
    settings: Any = {"max_attempts": 2, "dead_letter_topic": "dead", "retry_backoff_ms": 300}
    with running(timed, handle, workers=2, **settings):
        eventually(lambda: committed(timed)[1] == "eosdb:0 4 1")
        assert "a2" not in tried
        is_seen.set()
        eventually(lambda: committed(timed) == (4, ""))
    assert [each for each in tried if each[0] == "a"] == ["a1", "a1", "a2"]
    assert values(timed, "dead") == [b"a1"]
    assert values(timed) == [b"-1", b"A2", b"B1"]


def test_the_records_of_a_retry_topic_are_many_at_once_too(db: eosdb.Database, run: Run) -> None:
    failed = Counter[object]()

    def handle(record: ConsumerRecord) -> bytes:
        failed[record.value] += 1
        if failed[record.value] == 1:
            raise ValueError("at first")
        return upper(record)

    send(db, *keyed("a1", "a2", "b1", "b2"))
    run(handle, workers=3, max_attempts=1, retry_delays_ms=(500,), dead_letter_topic="dead")
    assert values(db) == [b"A1", b"A2", b"B1", b"B2"]
    assert set(failed.values()) == {2}


def test_a_foreign_record_in_a_retry_topic_is_processed_once(timed: eosdb.Database) -> None:
    """It has no headers of a failure, and its partition's first record is unfinished."""
    timed.admin.create_topic("__eosdb.postponed.g")
    with timed.producer() as producer:
        for word in ("a1", "b1"):
            producer.send("__eosdb.postponed.g", word, key=word[0])
    settings: Any = {"retry_delays_ms": (1,), "dead_letter_topic": "dead", "workers": 2}
    retries = TopicPartition("__eosdb.postponed.g", 0)
    with (
        pytest.raises(KeyboardInterrupt),
        running(timed, interrupted_at("a1"), **settings),
    ):
        eventually(lambda: committed(timed, retries) == (0, "eosdb:0 2"))
        interrupted.set()
    with running(timed, upper, **settings):
        eventually(lambda: committed(timed, retries) == (2, ""))
    assert values(timed) == [b"A1", b"B1"]


def test_the_hand_is_full_before_an_offsets_metadata_is(timed: eosdb.Database) -> None:
    """All in hand wait for one slow key, and the member lives on meanwhile."""
    handler = Gates("a0")
    send(timed, *keyed(*(f"{key}{number}" for number in range(2 * MOST) for key in "ab")))
    consumer = {"max_poll_interval_ms": 600, "session_timeout_ms": 6_000}
    with running(timed, handler, consumer=consumer, transaction_size=10_000):
        full = f"eosdb:0 {2 * MOST - 2}" + " 2" * (MOST - 2)
        eventually(lambda: committed(timed) == (0, full))
        begun = time.monotonic()
        eventually(
            lambda: time.monotonic() - begun > 1
        )  # Longer than a member may go without a poll.
        assert len(handler.ended) == MOST - 1
        assert timed.broker.describe_group("g").state == "Stable"
        assert timed.broker.describe_group("g").generation_id == 1
        handler.let_go("a0")
        eventually(lambda: committed(timed) == (4 * MOST, ""))
    assert len(read(timed)) == 4 * MOST


def test_what_was_complete_before_a_restart_is_not_processed_again(timed: eosdb.Database) -> None:
    handler = Gates("a1")
    send(timed, *keyed("a1", "b1", "a2", "b2", "c1"))
    with (
        pytest.raises(KeyboardInterrupt),
        running(timed, interrupted_at("a1"), workers=2),
    ):
        eventually(lambda: committed(timed)[1] == "eosdb:0 5 2")
        interrupted.set()
    handler.let_go("a1")
    with running(timed, handler):
        eventually(lambda: committed(timed) == (5, ""))
    assert handler.begun == ["a1", "a2"]
    assert values(timed) == [b"A1", b"A2", b"B1", b"B2", b"C1"]


interrupted = threading.Event()


def interrupted_at(name: str) -> Callable[[ConsumerRecord], bytes]:
    """A handler that is interrupted at this record when `interrupted` is set."""
    interrupted.clear()

    def handle(record: ConsumerRecord) -> bytes:
        if record.value == name.encode():
            assert interrupted.wait(PATIENCE_S)
            raise KeyboardInterrupt
        return upper(record)

    return handle


def test_stopping_waits_for_running_handlers_keeps_their_results_and_begins_none(
    timed: eosdb.Database,
) -> None:
    handler = Gates("a1", "b1")
    send(timed, *keyed("a1", "b1", "c1", "a2", "d1"))
    with running(timed, handler, workers=2) as processor:
        eventually(lambda: len(handler.begun) == 2)
        processor.stop()
        handler.let_go("b1")
        eventually(lambda: "b1" in handler.ended)
        # Longer than the processor waits for a result between two polls.
        threading.Timer(0.2, handler.let_go, ["a1"]).start()
    assert sorted(handler.begun) == ["a1", "b1"]
    assert values(timed) == [b"A1", b"B1"]
    assert committed(timed) == (2, "")
    with running(timed, handler):
        eventually(lambda: committed(timed) == (5, ""))
    assert values(timed) == [b"A1", b"A2", b"B1", b"C1", b"D1"]


def test_a_record_that_fails_for_good_ends_the_run_when_the_others_have_returned(
    timed: eosdb.Database,
) -> None:
    handler = Gates("b1")

    def handle(record: ConsumerRecord) -> bytes:
        if record.value == b"a1":
            eventually(lambda: "b1" in handler.begun)
            threading.Timer(0.1, handler.let_go, ["b1"]).start()
            raise ValueError("never")
        return handler(record)

    send(timed, *keyed("a1", "b1", "c1"))
    with (
        pytest.raises(eosdb.HandlerFailedError, match="offset 0: failed 1 time,"),
        running(timed, handle, max_attempts=1, transaction_interval_ms=60_000) as processor,
    ):
        eventually(lambda: "b1" in handler.ended and not workers())
    assert processor.metrics()["failed-total"] == 1
    assert committed(timed) == (0, "")
    assert not read(timed)


def test_a_transaction_that_is_lost_under_way_is_processed_again_once(
    db: eosdb.Database, run: Run
) -> None:
    """Results that were sent, returned, and still come: each enters once."""
    lock, calls = threading.Lock(), Counter[object]()

    def handle(record: ConsumerRecord) -> bytes:
        with lock:
            calls[record.value] += 1
            if record.value in (b"c1", b"e1") and calls[record.value] == 1:
                for listing in db.broker.list_transactions():
                    db.broker.init_producer_id(listing.transactional_id)
        return upper(record)

    words = [f"{key}{number}" for number in range(10) for key in "abcdef"]
    send(db, *keyed(*words))
    report = run(handle, workers=4)
    assert [record.value for record in sorted(read(db), key=lambda each: each.value)] == sorted(
        word.upper().encode() for word in words
    )
    for key in b"abcdef":
        found = [each.value for each in read(db) if each.key == b"%c" % key]
        assert found == sorted(found)
    assert report.processed == 60


def test_a_call_whose_record_was_read_again_ends_before_the_next_of_its_key(
    timed: eosdb.Database,
) -> None:
    """Its own result enters nowhere."""
    handler, calls = Gates("a1"), 0

    def handle(record: ConsumerRecord) -> bytes:
        nonlocal calls
        if record.value == b"a1":
            calls += 1
            return b"%d of %s" % (calls, handler(record))
        return handler(record)

    send(timed, *keyed("a1", "b1"))
    with running(timed, handle, transaction_interval_ms=200) as processor:
        eventually(lambda: handler.ended == ["b1"])
        eventually(lambda: timed.broker.list_transactions())
        for listing in timed.broker.list_transactions():
            timed.broker.init_producer_id(listing.transactional_id)
        eventually(lambda: handler.ended.count("b1") == 2)
        assert handler.begun.count("a1") == 1
        handler.let_go("a1")
        eventually(lambda: committed(timed) == (2, ""))
    assert processor.metrics()["abort-total"] == 1
    assert values(timed) == [b"2 of A1", b"B1"]


def test_partitions_move_to_another_copy_while_their_records_are_in_hand(
    timed: eosdb.Database, db_path: Path
) -> None:
    slow = Gates("a1")
    send(timed, *keyed("a1", "b1"), partition=0)
    send(timed, *keyed("a1", "b1"), partition=1)
    with running(timed, slow), eosdb.connect(db_path) as other:
        eventually(lambda: slow.begun.count("a1") == 2)
        with running(other, upper):
            eventually(lambda: len(values(timed)) == 3)
            slow.let_go("a1")
            eventually(lambda: len(values(timed)) == 4)
            eventually(
                lambda: {committed(timed, TopicPartition("in", n)) for n in (0, 1)} == {(2, "")}
            )
    assert values(timed) == [b"A1", b"A1", b"B1", b"B1"]


def test_a_result_that_is_refused_late_fails_its_record_alone(db: eosdb.Database, run: Run) -> None:
    def handle(record: ConsumerRecord) -> ProducerRecord:
        is_bad = record.value == b"c1"
        return ProducerRecord(value=record.value, topic="nowhere" if is_bad else "out")

    send(db, *keyed("a1", "b1", "c1", "c2", "d1"))
    run(handle, workers=4, max_attempts=2, dead_letter_topic="dead")
    assert values(db) == [b"a1", b"b1", b"c2", b"d1"]
    assert values(db, "dead") == [b"c1"]


def test_a_topic_made_anew_while_its_records_are_in_hand_begins_anew(
    timed: eosdb.Database,
) -> None:
    handler = Gates("a1")
    send(timed, *keyed("a1", "a2", "b1"))
    with running(timed, handler):
        eventually(lambda: committed(timed)[1] == "eosdb:0 3 1")
        timed.admin.delete_topic("in")
        timed.admin.create_topic("in", partitions=2)
        send(timed, *keyed("x1", "y1"))
        eventually(lambda: committed(timed) == (2, ""))
        handler.let_go("a1")
        send(timed, *keyed("z1"))
        eventually(lambda: committed(timed) == (3, ""))
    assert values(timed) == [b"B1", b"X1", b"Y1", b"Z1"]


def test_a_clock_that_stands_at_zero_is_a_clock(tmp_path: Path) -> None:
    with eosdb.connect(tmp_path / "zero.db", clock=eosdb.ManualClock(0)) as db:
        for topic in ("in", "out"):
            db.admin.create_topic(topic)
        send(db, *keyed("a1", "b1"))
        eosdb.process(db, "in", upper, "out", group_id="g", workers=2, until_idle_ms=50)
        assert values(db) == [b"A1", b"B1"]


def test_a_handler_in_a_worker_sees_what_its_caller_has_set(db: eosdb.Database, run: Run) -> None:
    name = ContextVar("name", default="nobody")
    seen: list[str] = []
    name.set("ann")
    send(db, *keyed("a1", "b1"))
    run(lambda _: seen.append(name.get()), None, workers=2)
    assert seen == ["ann", "ann"]


def test_a_block_of_the_file_is_refused_in_a_worker_too(db: eosdb.Database, run: Run) -> None:
    def handle(_: ConsumerRecord) -> None:
        with db.begin():
            pass

    send(db, *keyed("a1"))
    with pytest.raises(eosdb.HandlerFailedError, match=r"db\.begin\(\) in a handler"):
        run(handle, None, workers=2)


@pytest.mark.parametrize(
    ("handler", "settings", "said"),
    [
        (upper, {"workers": 0}, "workers: got 0"),
        (upper, {"workers": 2, "batch": True}, "with batch=True.*leave one of the two out"),
        (lambda record, tx: None, {"workers": 2}, "holds the file's write lock.*do slow work in"),
    ],
)
def test_what_cannot_go_together_is_refused(
    db: eosdb.Database, run: Run, handler: Any, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(eosdb.ConfigError, match=said):
        run(handler, **settings)
