"""Handlers of batches: one call and one commit for many records, and the guilty ones are found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

import eosdb
from eosdb import BatchFailed, ConsumerRecord, ProducerRecord, TopicPartition, UserTransaction
from eosdb.model.failpoints import Failpoint, watched
from tests.client.processor.work import Run, feed, read, values

TP = TopicPartition("in", 0)


@pytest.fixture(autouse=True)
def _topics(db: eosdb.Database) -> None:
    for topic in ("in", "out"):
        db.admin.create_topic(topic, partitions=2)
    with db.begin() as tx:
        tx.connection.exec_driver_sql("CREATE TABLE done (value TEXT)")


def text_of(records: list[ConsumerRecord]) -> str:
    return b"".join(record.value for record in records).decode()


@dataclass
class Handler:
    """Stores a row and returns a result for each record of a batch. Fails at a batch with a bad record."""

    bad: str = ""
    names_it: bool = True
    """Whether it says which record is the guilty one."""
    heals_after: int = 1_000
    """The failures after which nothing is bad any more."""
    index: int | None = None
    """A wrong index to name."""
    calls: list[str] = field(default_factory=list)
    failures: int = 0

    def check(self, records: list[ConsumerRecord]) -> None:
        self.calls.append(text_of(records))
        for index, record in enumerate(records):
            if record.value.decode() in self.bad and self.failures < self.heals_after:
                self.failures += 1
                error = ValueError(f"no {record.value!r}")
                index = index if self.index is None else self.index
                raise BatchFailed(index, error) if self.names_it else error

    def plain(self, records: list[ConsumerRecord]) -> list[ProducerRecord]:
        results = [ProducerRecord(value=record.value.upper(), key=record.key) for record in records]
        self.check(records)
        return results

    def storing(self, records: list[ConsumerRecord], tx: UserTransaction) -> list[ProducerRecord]:
        for record in records:
            row = (record.value.decode(),)
            tx.connection.exec_driver_sql("INSERT INTO done VALUES (?)", row)
            tx.publish("out", record.value.upper(), key=record.key)
        self.check(records)
        return []


@dataclass(frozen=True)
class Case:
    """Of the records a to f in one batch."""

    handler: dict[str, Any]
    calls: list[str]
    dead: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


ONCE: dict[str, Any] = {"max_attempts": 1}
CASES = {
    "nothing fails": Case({}, ["abcdef"]),
    "lists have a limit": Case({}, ["abcd", "ef"], settings={"max_batch": 4}),
    "a limit above that of a transaction": Case(
        {}, ["abc", "def"], settings={"max_batch": 9, "transaction_size": 3}
    ),
    "the guilty one is named": Case(
        {"bad": "c"}, ["abcdef", "ab", "c", "c", "def"], dead="c", settings={"max_attempts": 3}
    ),
    "it has one attempt, which is over": Case(
        {"bad": "c"}, ["abcdef", "ab", "def"], dead="c", settings=ONCE
    ),
    "it is the first": Case({"bad": "a"}, ["abcdef", "bcdef"], dead="a", settings=ONCE),
    "it is the last": Case({"bad": "f"}, ["abcdef", "abcde"], dead="f", settings=ONCE),
    "there are two": Case(
        {"bad": "be"}, ["abcdef", "a", "cdef", "cd", "f"], dead="be", settings=ONCE
    ),
    "all are": Case({"bad": "abcdef"}, ["abcdef", "bcdef", "cdef", "def", "ef", "f"],
                    dead="abcdef", settings=ONCE),
    "it does well in its second attempt": Case(
        {"bad": "c", "heals_after": 1}, ["abcdef", "ab", "c", "def"]
    ),
    "it is not named": Case(
        {"bad": "c", "names_it": False}, ["abcdef", *"abc", *"cdef"], dead="c",
        settings={"max_attempts": 2},
    ),
    "an index beyond the list names nobody": Case(
        {"bad": "c", "index": 6}, ["abcdef", *"abcdef"], dead="c", settings=ONCE
    ),
    "an index below it, too": Case(
        {"bad": "c", "index": -1}, ["abcdef", *"abcdef"], dead="c", settings=ONCE
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", ["plain", "storing"])
@pytest.mark.parametrize("case", CASES.values(), ids=[name.replace(" ", "_") for name in CASES])
def test_a_batch_that_fails_leaves_out_the_guilty_record_alone(
    db: eosdb.Database, run: Run, case: Case, way: str
) -> None:
    handler = Handler(**case.handler)
    feed(db, *(b"%c" % each for each in b"abcdef"))
    report = run(getattr(handler, way), batch=True, dead_letter_topic="dead", **case.settings)
    good = [each for each in "abcdef" if each not in case.dead]
    assert handler.calls == case.calls
    assert [record.value for record in read(db)] == [each.upper().encode() for each in good]
    assert [record.key for record in read(db)] == [b"k" + each.encode() for each in good]
    assert values(db, "dead") == [each.encode() for each in case.dead]
    rows = [value for (value,) in db.query("SELECT value FROM done").rows]
    assert rows == (good if way == "storing" else [])
    assert db.broker.offset_fetch("g")[TP].offset == 6
    assert (report.processed, report.dead_lettered) == (len(good), len(case.dead))
    assert report.failed == (
        handler.failures
        if case.handler.get("names_it", True) and "index" not in case.handler
        else handler.failures - 1
    )
    for letter in db.dead_letters("dead").letters() if case.dead else ():
        assert letter.failure is not None
        assert (letter.failure.error, letter.failure.topic) == ("ValueError", "in")
        assert letter.failure.attempts == case.settings["max_attempts"]


def test_a_list_has_records_of_one_partition_in_their_order(db: eosdb.Database, run: Run) -> None:
    seen: list[list[tuple[int, object]]] = []
    for number in range(6):
        feed(db, b"%d" % number, partition=number % 2)

    def note(records: list[ConsumerRecord]) -> None:
        seen.append([(record.partition, record.value) for record in records])

    run(note, batch=True)
    assert sorted(seen) == [
        [(0, b"0"), (0, b"2"), (0, b"4")],
        [(1, b"1"), (1, b"3"), (1, b"5")],
    ]


@pytest.mark.parametrize("way", ["plain", "storing"])
def test_results_rows_and_offset_of_a_batch_are_one_commit(
    db: eosdb.Database, run: Run, way: str
) -> None:
    seen = Counter[tuple[int, int, int]]()

    def look(point: Failpoint) -> None:
        rows = db.query("SELECT count(*) FROM done").rows
        offsets = [stored.offset for stored in db.broker.offset_fetch("g").values()]
        (count,) = next(iter(rows))
        seen[count, len(read(db)), sum(offsets)] += 1

    feed(db, *(b"%d" % number for number in range(9)))
    with watched(look):
        report = run(getattr(Handler(), way), batch=True)
    look(Failpoint.UNIT_COMMITTED)
    assert set(seen) <= {(0, 0, 0), (9 if way == "storing" else 0, 9, 9)}
    assert report.commits == 1


def test_a_value_without_a_key_goes_to_the_sink(db: eosdb.Database, run: Run) -> None:
    feed(db, b"a", b"b")
    run(lambda records: str(len(records)), batch=True)
    assert [(record.key, record.value) for record in read(db)] == [(None, b"2")]


def test_a_record_that_cannot_be_deserialized_is_the_guilty_one(
    db: eosdb.Database, run: Run
) -> None:
    calls: list[list[object]] = []

    def total(records: list[ConsumerRecord]) -> None:
        calls.append([record.value for record in records])

    feed(db, b"1", b"2", b"x", b"4")
    run(total, None, batch=True, value_deserializer=int, max_attempts=1, dead_letter_topic="dead")
    assert calls == [[1, 2], [4]]
    assert values(db, "dead") == [b"x"]


def test_a_result_that_cannot_be_stored_fails_its_record_alone(
    db: eosdb.Database, run: Run
) -> None:
    def handle(records: list[ConsumerRecord]) -> list[ProducerRecord]:
        return [
            ProducerRecord(value=each.value, topic="nowhere" if each.value == b"b" else "out")
            for each in records
        ]

    feed(db, b"a", b"b", b"c")
    run(handle, batch=True, max_attempts=2, dead_letter_topic="dead")
    assert values(db) == [b"a", b"c"]
    assert values(db, "dead") == [b"b"]


def test_a_batch_that_sqlite_rolls_back_is_processed_one_by_one(
    db: eosdb.Database, run: Run
) -> None:
    with db.begin() as tx:
        tx.connection.exec_driver_sql("CREATE UNIQUE INDEX one ON done (value)")
        tx.connection.exec_driver_sql("INSERT INTO done VALUES ('c')")

    def handle(records: list[ConsumerRecord], tx: UserTransaction) -> None:
        for record in records:
            row = (record.value.decode(),)
            tx.connection.exec_driver_sql("INSERT OR ROLLBACK INTO done VALUES (?)", row)

    feed(db, *(b"%c" % each for each in b"abcdef"))
    run(handle, None, batch=True, max_attempts=2, dead_letter_topic="dead")
    rows = [value for (value,) in db.query("SELECT value FROM done ORDER BY 1").rows]
    assert rows == list("abcdef")
    assert values(db, "dead") == [b"c"]
    assert db.broker.offset_fetch("g")[TP].offset == 6


def test_retries_come_in_batches_when_they_are_due(db: eosdb.Database, run: Run) -> None:
    handler = Handler(bad="bd", names_it=False, heals_after=3)
    feed(db, *(b"%c" % each for each in b"abcde"))
    run(handler.plain, batch=True, max_attempts=1, retry_delays_ms=(500,), dead_letter_topic="dead")
    assert handler.calls == ["abcde", *"abcde", "bd"]
    assert values(db) == [b"A", b"B", b"C", b"D", b"E"]
    assert not read(db, "dead")


def test_without_dead_letters_the_records_before_the_guilty_one_are_stored(
    db: eosdb.Database, run: Run
) -> None:
    feed(db, *(b"%c" % each for each in b"abcd"))
    with pytest.raises(eosdb.HandlerFailedError, match="offset 2: failed 3 times"):
        run(Handler(bad="c").storing, batch=True)
    assert [value for (value,) in db.query("SELECT value FROM done").rows] == ["a", "b"]
    assert db.broker.offset_fetch("g")[TP].offset == 2


def test_a_single_handler_may_not_name_a_record_either(db: eosdb.Database, run: Run) -> None:
    def handle(record: ConsumerRecord) -> None:
        raise BatchFailed(0, ValueError("alone"))

    feed(db, b"a")
    run(handle, max_attempts=1, dead_letter_topic="dead")
    (letter,) = db.dead_letters("dead").letters()
    assert letter.failure is not None
    assert (letter.failure.error, letter.failure.message) == ("ValueError", "alone")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [((0, "no number"), "got 'no number', expected an exception"), (("0", ValueError()), "'str'")],
    ids=["a message", "a text"],
)
def test_a_guilty_record_that_is_named_wrongly_is_a_failure_of_its_record(
    db: eosdb.Database, run: Run, arguments: tuple[Any, Any], told: str
) -> None:
    def handle(records: list[ConsumerRecord]) -> None:
        if b"b" in [record.value for record in records]:
            raise BatchFailed(*arguments)

    feed(db, b"a", b"b", b"c")
    report = run(handle, batch=True, max_attempts=1, dead_letter_topic="dead")
    assert (report.processed, report.dead_lettered) == (2, 1)
    (letter,) = db.dead_letters("dead").letters()
    assert letter.failure is not None
    assert letter.failure.error == "TypeError"
    assert told in letter.failure.message
