"""`raise RetryAt(when)`: the record comes again then, in its group alone, and has not failed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import eosdb
from eosdb import (
    Acl,
    BatchFailed,
    BrokerConfig,
    ConsumerRecord,
    ManualClock,
    OffsetAndMetadata,
    RetryAt,
    TopicPartition,
    UserTransaction,
)
from eosdb.errors import ConfigError, InvalidTimestampError, TopicAuthorizationFailedError
from eosdb.model.failpoints import Failpoint, watched
from eosdb.model.records.failure_headers import postponed_topic
from tests.client.processor.work import Run, fails_for, feed, read, upper, values

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
WAITS = "__eosdb.postponed.g"


@pytest.fixture(autouse=True)
def _topics(db: eosdb.Database) -> None:
    for topic in ("in", "out"):
        db.admin.create_topic(topic, partitions=2)
    with db.begin() as tx:
        tx.connection.exec_driver_sql("CREATE TABLE done (value TEXT)")


@dataclass
class Postponing:
    """Makes a row and a result of each record; those in `late` only when it is time."""

    clock: ManualClock
    when: int
    late: bytes = b"b"
    names_it: bool = True
    """Whether it says which record of a batch is to wait."""
    calls: list[bytes] = field(default_factory=list)
    seen: list[ConsumerRecord] = field(default_factory=list)

    def check(self, records: list[ConsumerRecord]) -> None:
        self.calls.append(b"".join(record.value for record in records))
        for index, record in enumerate(records):
            self.seen += [record] if record.value in self.late else []
            if record.value in self.late and self.clock.time_ms() < self.when:
                again = RetryAt(self.when)
                raise BatchFailed(index, again) if self.names_it and len(records) > 1 else again

    def plain(self, record: ConsumerRecord) -> bytes:
        self.check([record])
        return upper(record)

    def rows(self, record: ConsumerRecord, tx: UserTransaction) -> bytes:
        return self.batch_rows([record], tx)[0]

    def batch(self, records: list[ConsumerRecord]) -> list[bytes]:
        self.check(records)
        return [upper(record) for record in records]

    def batch_rows(self, records: list[ConsumerRecord], tx: UserTransaction) -> list[bytes]:
        for record in records:
            row = (record.value.decode(),)
            tx.connection.exec_driver_sql("INSERT INTO done VALUES (?)", row)
            tx.publish("out", b"by tx")
        return self.batch(records)


FACES = ("plain", "workers", "rows", "batch", "batch_rows")


def run_face(run: Run, handler: Postponing, face: str, **config: Any) -> eosdb.ProcessReport:
    if face == "workers":
        return run(handler.plain, workers=3, **config)
    return run(getattr(handler, face), batch=face.startswith("batch"), **config)


def rows(db: eosdb.Database) -> list[str]:
    return [value for (value,) in db.query("SELECT value FROM done ORDER BY 1").rows]


@pytest.mark.parametrize("face", FACES)
def test_it_comes_again_then_as_it_was_and_nothing_of_the_first_attempt_stays(
    db: eosdb.Database, run: Run, clock: ManualClock, face: str
) -> None:
    handler = Postponing(clock, clock.time_ms() + HOUR)
    feed(db, b"a", b"b", b"c")
    report = run_face(run, handler, face, max_attempts=1)
    assert (report.processed, report.postponed, report.failed, report.retried) == (2, 1, 0, 0)
    assert report.metrics["postponed-total"] == 1
    assert (values(db), rows(db)) == (made := expected(face, "ac"))
    assert db.broker.offset_fetch("g")[TopicPartition("in", 0)].offset == 3
    (waiting,) = db.admin.list_scheduled()
    assert (waiting.topic, waiting.value, waiting.deliver_at) == (WAITS, b"b", handler.when)
    clock.advance(HOUR - MINUTE)
    assert run_face(run, handler, face).processed == 0
    assert (values(db), rows(db)) == made
    clock.advance(MINUTE)
    assert run_face(run, handler, face).processed == 1
    assert (values(db), rows(db)) == expected(face, "abc")
    first, *_, last = handler.seen
    assert last._replace(headers=()) == first
    assert run_face(run, handler, face).processed == 0
    assert db.admin.list_scheduled() == []
    assert db.verify().ok


def expected(face: str, text: str) -> tuple[list[bytes], list[str]]:
    """The records in `out`, and the rows."""
    results = [each.upper().encode() for each in text]
    has_rows = face.endswith("rows")
    return results + [b"by tx"] * len(text) * has_rows, list(text) * has_rows


@pytest.mark.parametrize(
    ("names_it", "calls"), [(True, [b"abcd", b"a", b"cd"]), (False, [b"abcd"])]
)
@pytest.mark.parametrize("face", ["batch", "batch_rows"])
def test_a_batch_postpones_the_record_that_it_names_or_all_of_its_list(
    db: eosdb.Database, run: Run, clock: ManualClock, face: str, names_it: bool, calls: list[bytes]
) -> None:
    handler = Postponing(clock, clock.time_ms() + HOUR, names_it=names_it)
    feed(db, b"a", b"b", b"c", b"d")
    report = run_face(run, handler, face)
    assert handler.calls == calls
    assert report.postponed == 1 if names_it else 4
    clock.advance(HOUR)
    run_face(run, handler, face)
    assert handler.calls[len(calls) :] == [b"b" if names_it else b"abcd"]
    assert (values(db), rows(db)) == expected(face, "abcd")


@pytest.mark.parametrize("face", FACES)
def test_it_counts_no_attempt_and_needs_no_dead_letter_topic(
    db: eosdb.Database, run: Run, clock: ManualClock, face: str
) -> None:
    """Seven times later, and an attempt that fails before and behind them."""
    calls = 0

    def moody(record: ConsumerRecord) -> bytes:
        nonlocal calls
        calls += 1
        if calls in (1, 9):
            raise ValueError("no")
        if calls < 9:
            raise RetryAt(clock.time_ms() + HOUR)
        return upper(record)

    handlers: dict[str, Callable[..., Any]] = {
        "plain": moody,
        "workers": moody,
        "rows": lambda record, tx: moody(record),
        "batch": lambda records: [moody(each) for each in records],
        "batch_rows": lambda records, tx: [moody(each) for each in records],
    }
    feed(db, b"a")
    for _ in range(8):
        workers = 3 if face == "workers" else 1
        run(handlers[face], batch=face.startswith("batch"), workers=workers, max_attempts=2)
        clock.advance(HOUR)
    assert (calls, values(db)) == (10, [b"A"])


def test_the_attempts_before_it_stay_in_the_dead_letter(
    db: eosdb.Database, run: Run, clock: ManualClock
) -> None:
    calls: list[str] = []

    def handle(record: ConsumerRecord) -> None:
        calls.append(record.topic)
        if len(calls) == 3:
            raise RetryAt(clock.time_ms() + HOUR)
        raise ValueError("no")

    feed(db, b"a")
    settings: dict[str, Any] = {
        "max_attempts": 1,
        "retry_delays_ms": (500, 700),
        "dead_letter_topic": "dlq",
    }
    report = run(handle, **settings)
    assert (report.retried, report.postponed, report.dead_lettered) == (2, 1, 0)
    clock.advance(HOUR)
    assert run(handle, **settings).dead_lettered == 1
    assert calls == ["in"] * 6  # From the first retry topic on, and each time under its own name.
    (letter,) = db.dead_letters("dlq").letters()
    assert letter.failure is not None
    assert (letter.failure.attempts, letter.failure.error) == (5, "ValueError")
    assert letter.failure.timestamp == read(db, "in")[0].timestamp


def test_only_its_own_group_reads_it_again(
    db: eosdb.Database, run: Run, clock: ManualClock
) -> None:
    handler = Postponing(clock, clock.time_ms() + HOUR)
    seen: list[tuple[str, bytes]] = []
    feed(db, b"b")
    run(handler.plain)

    def note(record: ConsumerRecord) -> None:
        seen.append((record.topic, record.value))

    def beside(group_id: str, topics: Any) -> None:
        eosdb.process(db, topics, note, group_id=group_id, until_idle_ms=50)

    clock.advance(HOUR)
    beside("h", re.compile(".*"))
    assert seen == [("in", b"b")]
    run(handler.plain, topics=re.compile("i.*"))
    assert [record.topic for record in handler.seen] == ["in", "in"]
    # These two share a topic; the header tells whose a record is.
    assert postponed_topic("g/1") == postponed_topic("g:1")
    late = Postponing(clock, clock.time_ms() + HOUR)
    eosdb.process(db, "in", late.plain, "out", group_id="g/1", until_idle_ms=50)
    clock.advance(HOUR)
    seen.clear()
    beside("g:1", "in")
    assert seen == [("in", b"b")]
    eosdb.process(db, "in", late.plain, "out", group_id="g/1", until_idle_ms=50)
    assert values(db) == [b"B", b"B"]


def test_a_group_id_that_is_no_topics_name_postpones_too(
    db: eosdb.Database, clock: ManualClock
) -> None:
    for group_id in ("ü und ß", "x" * 1_000, "."):
        handler = Postponing(clock, clock.time_ms() + HOUR)
        feed(db, b"b")
        process = {"group_id": group_id, "until_idle_ms": 50}
        eosdb.process(db, "in", handler.plain, "out", **process)  # type: ignore[arg-type]
        clock.advance(HOUR)
        handler.seen.clear()
        eosdb.process(db, "in", handler.plain, "out", **process)  # type: ignore[arg-type]
        assert handler.seen


@pytest.mark.slow
def test_a_copy_that_started_before_the_topic_was_made_takes_over(tmp_path: Path) -> None:
    """The copy that has postponed the record is gone when it is due."""
    seen, is_gone = list[tuple[str, int]](), Event()
    postponed: list[tuple[str, int]] = []

    def old(record: ConsumerRecord) -> None:
        seen.append((record.topic, record.offset))
        if is_gone.is_set() and seen[-1] in postponed:
            copy.stop()

    def new(record: ConsumerRecord) -> None:
        postponed.append((record.topic, record.offset))
        raise RetryAt(eosdb.SystemClock().time_ms() + 1_500)

    with eosdb.connect(tmp_path / "pair.db", durability="off") as db, ThreadPoolExecutor(2) as pool:
        db.admin.create_topic("in", partitions=2)
        feed(db, b"a")
        copy = db.processor("in", old, group_id="g")
        running = pool.submit(copy.run)
        while not seen:
            time.sleep(0.01)
        beside = db.processor("in", new, group_id="g")
        beside_running = pool.submit(beside.run)
        while not db.admin.list_scheduled():
            feed(db, b"b")
            feed(db, b"b", partition=1)
            time.sleep(0.05)
        beside.stop()
        beside_running.result(60)
        assert db.admin.list_scheduled()
        is_gone.set()
        running.result(60)


def test_a_copy_under_load_reads_its_topic_as_soon_as_it_is_made(
    db: eosdb.Database, run: Run, clock: ManualClock
) -> None:
    """Its clock stands, so no metadata_max_age_ms is over."""
    calls: list[bytes] = []

    def handle(record: ConsumerRecord) -> None:
        calls.append(record.value)
        if len(calls) == 1:
            raise RetryAt(0)
        if record.value != b"b":
            feed(db, b"more")

    feed(db, b"b", b"more")

    def stopping(record: ConsumerRecord) -> None:
        handle(record)
        if calls.count(b"b") == 2 or len(calls) == 100:
            processor.stop()

    processor = db.processor("in", stopping, group_id="g", transaction_size=2)
    processor.run()
    assert calls.count(b"b") == 2


@pytest.mark.parametrize("face", FACES)
def test_what_waits_outlives_the_retention_of_its_topic_and_its_own_age(
    db: eosdb.Database, run: Run, clock: ManualClock, face: str
) -> None:
    handler = Postponing(clock, clock.time_ms() + 30 * DAY)
    feed(db, b"b")
    clock.advance(20 * DAY)
    run_face(run, handler, face)
    db.admin.alter_topic_config("in", {"retention.ms": 1})
    db.housekeeping()
    clock.advance(10 * DAY)
    db.housekeeping()
    run_face(run, handler, face)
    assert values(db)[:1] == [b"B"]
    assert handler.seen[0].timestamp == handler.seen[-1].timestamp


@pytest.mark.parametrize("setting", ["retention.ms", "retention.bytes"])
def test_what_has_come_stays_until_its_group_has_handled_it(
    db: eosdb.Database, run: Run, clock: ManualClock, setting: str
) -> None:
    """Nobody of the group runs when it comes, and longer than its topic keeps records."""
    handler = Postponing(clock, clock.time_ms() + HOUR, late=b"bc")
    feed(db, b"a", b"b", b"c")
    run(handler.plain)
    db.admin.alter_topic_config(WAITS, {setting: 1})
    clock.advance(30 * DAY)
    for _ in range(2):
        db.housekeeping()
        db.admin.alter_topic_config("in", {"retention.ms": 1})
    assert run(handler.plain).processed == 2
    assert values(db) == [b"B", b"C"]
    clock.advance(1)
    db.housekeeping()
    assert len(read(db, WAITS)) <= (setting == "retention.bytes")


def test_a_retry_outlives_its_age_too(db: eosdb.Database, clock: ManualClock) -> None:
    calls: list[ConsumerRecord] = []

    def handle(record: ConsumerRecord) -> bytes:
        calls.append(record)
        processor.stop()
        if len(calls) == 1:
            raise ValueError("once")
        return upper(record)

    feed(db, b"a")
    db.admin.alter_topic_config("in", {"retention.ms": -1})
    clock.advance(30 * DAY)
    for _ in range(2):
        processor = db.processor(
            "in", handle, "out", group_id="g", max_attempts=1, dead_letter_topic="dlq",
            retry_delays_ms=(1_000,),
        )  # fmt: skip
        processor.run()
        db.housekeeping()
        clock.advance(1_000)
    assert [record.timestamp for record in calls] == [calls[0].timestamp] * 2
    assert values(db) == [b"A"]


@pytest.mark.parametrize("reset", ["latest", "none"])
@pytest.mark.parametrize("way", ["postponed", "retried"])
def test_what_comes_again_is_read_from_the_beginning_of_its_topic(
    db: eosdb.Database, run: Run, clock: ManualClock, reset: str, way: str
) -> None:
    """Without a committed offset there: auto_offset_reset is for the topics of others."""
    calls: list[bytes] = []

    def handle(record: ConsumerRecord) -> bytes:
        calls.append(record.value)
        if len(calls) == 1:
            processor.stop()
            raise RetryAt(clock.time_ms() + MINUTE) if way == "postponed" else ValueError("once")
        return upper(record)

    with db.consumer("g") as group:
        group.assign(places := [TopicPartition("in", number) for number in (0, 1)])
        group.commit(dict.fromkeys(places, OffsetAndMetadata(0)))
    feed(db, b"a")
    settings: dict[str, Any] = {
        "consumer": {"auto_offset_reset": reset},
        "max_attempts": 1,
        "dead_letter_topic": "dlq",
        "retry_delays_ms": (MINUTE,),
    }
    processor = db.processor("in", handle, "out", group_id="g", **settings)
    processor.run()
    clock.advance(MINUTE)
    db.housekeeping()
    run(handle, **settings)
    assert values(db) == [b"A"]


def test_a_record_without_a_key_is_postponed_also_where_topics_are_compacted(
    tmp_path: Path, clock: ManualClock
) -> None:
    config = BrokerConfig(log_cleanup_policy="compact")
    with eosdb.connect(tmp_path / "c.db", clock=clock, config=config) as db:
        db.admin.create_topic("in", config={"cleanup.policy": "delete"})
        db.admin.create_topic("out")
        db.producer().send("in", b"b").result()
        handler = Postponing(clock, clock.time_ms() + HOUR)
        for _ in range(2):
            eosdb.process(db, "in", lambda one: handler.check([one]), group_id="g", until_idle_ms=9)
            clock.advance(HOUR)
        assert handler.calls == [b"b", b"b"]


def test_a_time_that_is_over_is_at_once_and_then_after_a_pause(
    db: eosdb.Database, run: Run, clock: ManualClock
) -> None:
    times: list[Any] = [978_307_200_000, clock.time_ms(), datetime(1990, 1, 1, tzinfo=UTC)]
    called: list[int] = []

    def handle(record: ConsumerRecord) -> bytes:
        called.append(clock.time_ms() - start)
        if times:
            raise RetryAt(times.pop())
        return upper(record)

    feed(db, b"a")
    start = clock.time_ms()
    assert run(handle, retry_backoff_ms=1_000).postponed == 3
    assert values(db) == [b"A"]
    assert called[1] < 1_000 <= called[2] <= called[3] - 1_000


@pytest.mark.parametrize(
    "when", [datetime(2030, 1, 2), "noon", 1.5, True, -1, 2**63, None, 0, 60_000, 1_795_909_233]
)
def test_anything_but_a_time_fails_the_record(db: eosdb.Database, run: Run, when: Any) -> None:
    def handle(record: ConsumerRecord) -> None:
        raise RetryAt(when)

    feed(db, b"a")
    assert run(handle, dead_letter_topic="dlq", max_attempts=1).postponed == 0
    (letter,) = db.dead_letters("dlq").letters()
    assert letter.failure is not None
    assert letter.failure.error == InvalidTimestampError.__name__
    assert letter.failure.message.startswith(f"RetryAt: got {when!r}")
    assert "expected ms since" in letter.failure.message


def test_a_member_of_the_group_that_may_not_write_its_topic_is_told(tmp_path: Path) -> None:
    path, config = tmp_path / "rights.db", BrokerConfig(super_users="User:root")
    of_topic = [Acl("User:ann", each, "topic", WAITS) for each in ("create", "read", "write")]

    def later(record: ConsumerRecord) -> None:
        raise RetryAt(eosdb.SystemClock().time_ms() + HOUR)

    with eosdb.connect(path, principal="User:root", config=config) as db:
        db.admin.create_topic("in")
        feed(db, b"b")
        reads = [Acl("User:ann", "read", "topic", "in"), Acl("User:ann", "read", "group", "g")]
        may_write = Acl("User:ann", "write", "transactional_id", "g", pattern_type="prefixed")
        db.admin.create_acls([*reads, may_write])
        with eosdb.connect(path, principal="User:ann", config=config) as anns:
            with pytest.raises(TopicAuthorizationFailedError, match=WAITS):
                eosdb.process(anns, "in", later, group_id="g", until_idle_ms=9)
            db.admin.create_acls(of_topic)
            assert eosdb.process(anns, "in", later, group_id="g", until_idle_ms=9).postponed == 1


def test_its_topic_may_be_deleted_and_is_made_again(
    db: eosdb.Database, run: Run, clock: ManualClock
) -> None:
    handler = Postponing(clock, clock.time_ms() + HOUR)
    feed(db, b"b")
    run(handler.plain)
    db.admin.delete_topic(WAITS)
    feed(db, b"b")
    assert run(handler.plain).postponed == 1
    clock.advance(HOUR)
    assert run(handler.plain).processed == 1
    assert values(db) == [b"B"]


def test_no_processor_is_given_its_own_topic_of_postponed_records(db: eosdb.Database) -> None:
    with pytest.raises(ConfigError, match=re.escape(WAITS)):
        db.processor(["in", WAITS], upper, group_id="g")


def test_one_that_is_cancelled_does_not_come(
    db: eosdb.Database, run: Run, clock: ManualClock
) -> None:
    handler = Postponing(clock, clock.time_ms() + HOUR)
    feed(db, b"b")
    run(handler.plain)
    (waiting,) = db.admin.list_scheduled()
    assert db.admin.cancel_scheduled([waiting.id]) == 1
    clock.advance(HOUR)
    assert run(handler.plain).processed == 0


@pytest.mark.parametrize("face", FACES)
def test_it_waits_from_the_commit_on_that_completes_it(
    db: eosdb.Database, run: Run, clock: ManualClock, face: str
) -> None:
    """As seen at each point at which a process may be killed."""
    handler = Postponing(clock, clock.time_ms() + HOUR, late=b"a")
    seen = set[tuple[int, int]]()

    def look(_: Failpoint) -> None:
        offsets = [stored.offset for stored in db.broker.offset_fetch("g").values()]
        seen.add((sum(offsets), len(db.admin.list_scheduled())))

    feed(db, b"a")
    with watched(look):
        run_face(run, handler, face)
    look(Failpoint.UNIT_COMMITTED)
    assert seen == {(0, 0), (1, 1)}


def test_the_record_of_a_commit_that_fails_is_postponed_once(
    db: eosdb.Database, run: Run, clock: ManualClock
) -> None:
    """A later record ends the run: the open transaction, and with it the postponement, is undone."""
    handler = Postponing(clock, clock.time_ms() + HOUR)

    def handle(record: ConsumerRecord) -> bytes:
        return fails_for(b"x")(record) if record.value == b"x" else handler.plain(record)

    feed(db, b"b", b"x")
    with pytest.raises(eosdb.HandlerFailedError):
        run(handle)
    run(handler.plain)
    assert [one.value for one in db.admin.list_scheduled()] == [b"b"]
