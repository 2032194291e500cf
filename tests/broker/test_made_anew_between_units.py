"""A name is not an identity: work in several units holds the ids of what it has met.

Between any two units another program may delete the topic and make it anew. What it writes there is all
there afterwards, and of the work nothing or all: it has stopped with an error that says so, or has met the
new topic alone. `tests/tidy/test_units.py` lists all work in several units.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import eosdb
from eosdb import OffsetAndMetadata, Record, TopicPartition
from eosdb.admin.tools import Tools
from eosdb.cli.commands.data.ingest import Ingest
from eosdb.cli.commands.data.sources import Source
from eosdb.errors import (
    ConcurrentTransactionsError,
    EosdbError,
    OffsetOutOfRangeError,
    ProducerFencedError,
)
from tests.broker.made_anew import NEW, OLD, TPS, make, places
from tests.readers import committed_values

pytestmark = pytest.mark.slow

MORE = [b"more-%d" % i for i in range(60)]


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {
        "eosdb.log.retention._ROWS_PER_REQUEST": 10,
        "eosdb.log.retention.ROWS_PER_MOVE": 10,
        "eosdb.log.retention.ROWS_PER_UNIT": 15,
        "eosdb.broker.sink._UNIT_RECORDS": 30,
        "eosdb.broker.sink._STEP_RECORDS": 20,
        "eosdb.broker.sink._FIRST_PART": 10,
        "eosdb.broker.sink._PART_RECORDS": 10,
        "eosdb.client.processor.dead_letters._TRANSACTION_SIZE": 10,
        "eosdb.client.consumer.fetcher._FETCH_RECORDS": 15,
    }.items():
        monkeypatch.setattr(name, size)


@dataclass(frozen=True, slots=True)
class Work:
    run: Callable[[eosdb.Database], object]
    adds: list[bytes] = field(default_factory=list)
    """To each partition, behind what is there."""
    stops: int = 0
    """At how many places the work is stopped, at least."""
    prepare: Callable[[eosdb.Database], None] = lambda db: make(db, OLD)
    of_new: list[list[bytes]] | None = None
    """What it leaves if the topic was made anew before the work began, unless that is all."""


def append_once(db: eosdb.Database) -> object:
    return db.append_once("sink", 1, {tp: [Record(value=value) for value in MORE] for tp in TPS})


def reset(db: eosdb.Database) -> object:
    return db.admin.reset_offsets("g", TPS, to_latest=True, execute=True)


def scan(db: eosdb.Database) -> object:
    return list(db.admin.scan(TPS[0], 0, len(OLD), batch_size=10))


def clean(db: eosdb.Database) -> object:
    return db.housekeeping()


def consume(db: eosdb.Database) -> object:
    with db.consumer("g", auto_offset_reset="earliest") as consumer:
        consumer.assign(TPS)
        found = [consumer.poll(max_records=20) for _ in range(5)]
        consumer.commit()
    return found


def in_transaction(db: eosdb.Database) -> object:
    """Of the producer's own: what it sends to a topic made anew does not begin amid its sequence."""
    with db.producer(transactional_id="x", batch_size=1) as producer:
        producer.init_transactions()
        with producer.transaction():
            for value in MORE[:3]:
                for tp in TPS:
                    producer.send("t", value, partition=tp.partition).result()
    return None


WORK = {
    "delete_records": Work(
        lambda db: db.broker.delete_records(TPS[0], -1), stops=3, of_new=[[], NEW]
    ),
    "append_once": Work(append_once, MORE, stops=4),
    "reset_offsets": Work(reset),
    "scan": Work(scan, stops=3),
    "dump_log": Work(lambda db: list(db.admin.dump_log(TPS[0])), stops=3),
    "delete_topic": Work(lambda db: db.admin.delete_topic("t"), of_new=[]),
    "retention": Work(clean, prepare=lambda db: make(db, OLD, **{"retention.bytes": 0})),
    "compaction": Work(clean, prepare=lambda db: make(db, OLD, **{"cleanup.policy": "compact"})),
    "a consumer": Work(consume),
    "producer": Work(in_transaction, MORE[:3]),
}


@pytest.mark.parametrize("name", WORK)
def test_nothing_is_done_to_a_topic_that_the_work_has_not_met(name: str, tmp_path: Path) -> None:
    work, stopped = WORK[name], 0
    for place in places(tmp_path, work.prepare, work.run):
        values = place.values() if "t" in place.db.admin.list_topics() else []
        stopped += place.was_stopped
        if place.number == 0 and work.of_new is not None:
            assert values == work.of_new
        elif isinstance(place.outcome, EosdbError):
            assert values == [NEW, NEW], place
        else:
            assert values in ([NEW, NEW], [NEW + work.adds] * 2), place
    assert stopped >= work.stops


# -- what is read in one topic and written in another ------------------------------------------------


def test_a_letter_of_a_topic_made_anew_is_replayed_before_it_counts_as_replayed(
    tmp_path: Path,
) -> None:
    stopped = 0

    def prepare(db: eosdb.Database) -> None:
        make(db, OLD)
        db.admin.create_topic("in")

    for place in places(tmp_path, prepare, lambda db: db.dead_letters("t").replay(to="in")):
        back = committed_values(place.db, TopicPartition("in", 0))
        letters = [letter.is_replayed for letter in place.db.dead_letters("t").letters()]
        assert letters.count(True) == sum(str(value).startswith("b'new") for value in back)
        assert place.values() == [NEW, NEW]
        stopped += place.was_stopped or isinstance(place.outcome, OffsetOutOfRangeError)
    assert stopped > 5


def test_an_ingest_has_all_lines_in_one_topic(tmp_path: Path) -> None:
    lines = [b"line-%d" % i for i in range(30)]
    path = tmp_path / "in.txt"
    path.write_bytes(b"\n".join(lines) + b"\n")

    def work(db: eosdb.Database) -> None:
        source = Source(path, "lines", None)
        Ingest(db, "t", Tools(db.admin).topic_config("t"), source, "in.txt").run(10, skip=False)

    stopped = 0
    for place in places(tmp_path, lambda db: make(db, OLD), work):
        stopped += isinstance(place.outcome, OffsetOutOfRangeError)
        found = {value for values in place.values() for value in values}
        assert found - set(NEW) in (set(), set(lines)), place
    assert stopped > 5


def test_a_loop_commits_in_a_topic_made_anew_what_it_has_done_there(tmp_path: Path) -> None:
    def prepare(db: eosdb.Database) -> None:
        make(db, OLD[:4])
        db.admin.create_topic("out")

    def work(db: eosdb.Database) -> object:
        return eosdb.process(
            db, "t", lambda record: [record.value], "out", group_id="g", until_idle_ms=1
        )

    for place in places(tmp_path, prepare, work):
        done = committed_values(place.db, TopicPartition("out", 0))
        assert max(Counter(done).values()) <= len(TPS)
        assert place.values() == [NEW, NEW]
        committed = place.db.broker.offset_fetch("g", TPS)
        position = sum(offset.offset for offset in committed.values())
        assert position == sum(value in NEW for value in done), place


def test_an_offset_that_a_transaction_holds_goes_with_its_group(db: eosdb.Database) -> None:
    make(db, OLD)
    with db.producer(transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TPS[0]: OffsetAndMetadata(7)}, "g")
        db.broker.delete_group("g")
        db.broker.offset_commit("g", {TPS[0]: OffsetAndMetadata(1)})
        producer.commit_transaction()
    assert db.broker.offset_fetch("g")[TPS[0]].offset == 1


# -- transactions ------------------------------------------------------------------------------------


def begin(db: eosdb.Database, name: str) -> None:
    """A transaction that begins at the first record of the topic, and stays open."""
    db.admin.create_topic("t", 2)
    producer = db.broker.init_producer_id(name, 60_000)
    batch = eosdb.RecordBatch([Record(value=b"open")], *producer, 0, True)
    db.broker.append(TPS[0], batch, transactional_id=name)


def in_another_topic(db: eosdb.Database) -> None:
    db.admin.delete_topic("t")
    begin(db, "other")


def and_its_next(db: eosdb.Database) -> None:
    """The producer ends the transaction, and begins another one."""
    found = db.broker.describe_transactions(["x"])["x"]
    db.admin.create_topic("u")
    if found.state == "Ongoing":
        producer = db.broker.end_txn("x", found.producer_id, found.producer_epoch, True)
    else:
        producer = db.broker.init_producer_id("x", 60_000)
    batch = eosdb.RecordBatch([Record(value=b"next")], *producer, 0, True)
    db.broker.append(TopicPartition("u", 0), batch, transactional_id="x")


@pytest.mark.parametrize("act", [in_another_topic, and_its_next])
def test_only_the_transaction_that_was_found_is_aborted(
    act: Callable[[eosdb.Database], None], tmp_path: Path
) -> None:
    stopped, topic = 0, "t" if act is in_another_topic else "u"

    def work(db: eosdb.Database) -> object:
        return db.admin.abort_transaction(TPS[0], 0)

    for place in places(tmp_path, lambda db: begin(db, "x"), work, act):
        is_open = topic in {found.topic for found in place.db.admin.open_transactions()}
        assert is_open or (place.number == 0 and topic == "t"), place
        stopped += place.was_stopped or place.outcome == "COMMIT"
    assert stopped


def fence(db: eosdb.Database) -> None:
    while True:
        with contextlib.suppress(ConcurrentTransactionsError):
            db.broker.init_producer_id("x", 60_000)
            return


def test_a_transactional_id_that_another_has_taken_ends_the_work_whole(tmp_path: Path) -> None:
    fenced = 0
    for place in places(tmp_path, lambda db: make(db, OLD), in_transaction, fence):
        assert place.values() in ([OLD, OLD], [OLD + MORE[:3]] * 2), place
        fenced += isinstance(place.outcome, ProducerFencedError)
    assert fenced
