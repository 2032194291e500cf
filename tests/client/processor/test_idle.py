"""A processor is done when its group is: what others hold is waited for, and who holds it is said."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import Acl, BrokerConfig, ConsumerRecord, ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.client.consumer.consumer import Consumer
from eosdb.client.consumer.settings import ConsumerConfig
from eosdb.client.processor.idle import LOOK_EVERY_MS, GroupIdleness
from eosdb.client.transport import DirectTransport
from eosdb.model.protocol.consumer_protocol import decode_assignment
from eosdb.model.requests import Request
from eosdb.model.threads import Fate
from tests.client.processor.work import feed, upper, values

FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)


@pytest.fixture(autouse=True)
def _topics(db: eosdb.Database) -> None:
    db.admin.create_topic("in", partitions=2)
    db.admin.create_topic("out")


# -- the whole loop -------------------------------------------------------------------------------


class Beside(ManualClock):
    """Whenever the loop waits, another member of the group lives on, until it dies with its partition."""

    member: eosdb.Consumer | None = None
    dead: eosdb.Consumer | None = None
    """Held, because a consumer that is collected as garbage leaves its group at once."""
    db: eosdb.Database

    def sleep_ms(self, ms: int) -> None:
        member, super_sleep = self.member, super().sleep_ms
        if member is not None:
            member.poll()
            members = self.db.broker.describe_group("g").members
            if [len(decode_assignment(m.assignment)) for m in members] == [1, 1]:
                self.member, self.dead = None, member
                for partition in (0, 1):
                    feed(self.db, b"a", b"b", b"c", partition=partition)
        super_sleep(ms)


MEMBER: ConsumerConfig = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6_000,
    "partition_assignment_strategy": "cooperative-sticky",
}


@pytest.fixture
def beside(db_path: Path, clock: ManualClock) -> Iterator[eosdb.Database]:
    ticking = Beside(clock.time_ms())
    with eosdb.connect(db_path, clock=ticking, durability="off") as db:
        ticking.db = db
        ticking.member = db.consumer("g", **MEMBER)
        ticking.member.subscribe("in")
        yield db


def test_the_partitions_of_a_dead_member_are_waited_for_and_read(
    beside: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "eosdb.processor"):
        report = eosdb.process(
            beside,
            "in",
            upper,
            "out",
            group_id="g",
            until_idle_ms=500,
            retry_backoff_ms=1,
        )
    assert report.processed == 6
    assert values(beside) == [b"A", b"A", b"B", b"B", b"C", b"C"]
    (warning,) = [r.getMessage() for r in caplog.records if "waits for others" in r.getMessage()]
    assert re.search(r"group g: .*member \S+ holds 3 unread records in in-[01]\.", warning)


def test_a_stop_ends_the_wait(beside: eosdb.Database, caplog: pytest.LogCaptureFixture) -> None:
    processor = beside.processor("in", upper, "out", group_id="g")

    class Stopping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            processor.stop()

    handler = Stopping()
    logging.getLogger("eosdb.processor").addHandler(handler)
    try:
        with caplog.at_level(logging.WARNING, "eosdb.processor"):
            assert processor.run(until_idle_ms=500).processed == 3
    finally:
        logging.getLogger("eosdb.processor").removeHandler(handler)


def test_a_run_until_idle_0_sleeps_until_its_transaction_ends(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked again without a pause: on a clock that only sleeps move, for minutes."""
    polls = 0
    poll = Consumer.poll

    def counted(self: Consumer, *args: Any) -> list[ConsumerRecord]:
        nonlocal polls
        polls += 1
        return poll(self, *args)

    monkeypatch.setattr(Consumer, "poll", counted)
    feed(db, b"a", b"b")
    eosdb.process(db, "in", upper, "out", group_id="g", until_idle_ms=0)
    assert polls < 10
    assert values(db) == [b"A", b"B"]


# -- what counts as unread ------------------------------------------------------------------------


def idleness(
    db: eosdb.Database,
    reset: str = "earliest",
    topics: tuple[str, ...] | re.Pattern[str] = ("in",),
) -> GroupIdleness:
    transport = DirectTransport(db.broker)
    config: Any = {"auto_offset_reset": reset}
    return GroupIdleness(transport, db.clock, "g", topics, config)


def is_idle(db: eosdb.Database, reset: str = "earliest", **more: Any) -> bool:
    return idleness(db, reset, **more).is_idle()


def commit(db: eosdb.Database, tp: TopicPartition, offset: int) -> None:
    db.broker.offset_commit("g", {tp: OffsetAndMetadata(offset)})


def test_without_an_offset_earliest_alone_reads_what_is_there(db: eosdb.Database) -> None:
    assert is_idle(db)
    feed(db, b"a")
    assert not is_idle(db)
    assert is_idle(db, "latest")
    assert is_idle(db, "none")


def test_an_offset_counts_whatever_resets_say(db: eosdb.Database) -> None:
    feed(db, b"a", b"b")
    commit(db, FIRST, 1)
    assert not is_idle(db, "latest")
    for read in (2, 7):
        commit(db, FIRST, read)
        assert is_idle(db)


def test_what_a_transaction_holds_offsets_of_is_unread(
    db: eosdb.Database, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    feed(db, b"a", b"b")
    commit(db, FIRST, 2)
    producer = db.producer(transactional_id="t")
    producer.init_transactions()
    for reset in ("earliest", "latest"):
        producer.begin_transaction()
        offsets = {SECOND: OffsetAndMetadata(0)}
        producer.send_offsets_to_transaction(offsets, eosdb.ConsumerGroupMetadata("g"))
        looking = idleness(db, reset)
        assert not looking.is_idle()
        clock.advance(2_000)
        assert not looking.is_idle()
        producer.abort_transaction()
        assert looking.is_idle()
    assert (
        "a transaction with offsets of the group, which has not ended, holds 1 unread"
        in caplog.text
    )
    assert "in in-1." in caplog.text


def test_what_nobody_can_read_yet_or_ever_is_not_waited_for(db: eosdb.Database) -> None:
    producer = db.producer(transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("in", b"aborted", partition=0)
    producer.flush()
    assert is_idle(db)
    producer.abort_transaction()
    assert is_idle(db)
    with producer.transaction():
        producer.send("in", b"committed", partition=0)
    assert not is_idle(db)


def test_an_offset_that_retention_has_passed_is_reset(db: eosdb.Database) -> None:
    feed(db, b"a", b"b", b"c")
    commit(db, FIRST, 0)
    db.broker.delete_records(FIRST, 1)
    assert not is_idle(db)
    assert is_idle(db, "latest")


def test_topics_come_and_go(db: eosdb.Database) -> None:
    looking = idleness(db, topics=re.compile("in|new"))
    assert looking.is_idle()
    db.admin.create_topic("new")
    feed(db, b"a", topic="new")
    assert not looking.is_idle()
    db.admin.delete_topic("new")
    db.clock.sleep_ms(LOOK_EVERY_MS)
    assert looking.is_idle()
    assert is_idle(db, topics=("in", "new"))


def test_who_may_not_look_does_not_wait(
    db_path: Path, clock: ManualClock, db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    feed(db, b"a")
    config = BrokerConfig(super_users="User:admin")
    with eosdb.connect(db_path, clock=clock, config=config, principal="User:admin") as admin:
        admin.admin.create_acls([Acl("User:ann", "read", "topic", "in")])
        with eosdb.connect(db_path, clock=clock, config=config, principal="User:ann") as ann:
            looking = idleness(ann)
            for _ in range(2):
                assert looking.is_idle()
    assert len([r for r in caplog.records if "may not be read" in r.getMessage()]) == 1


class Counting(DirectTransport):
    """Counts requests by name."""

    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        self.counts: dict[str, int] = {}

    def ask(
        self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
    ) -> list[Any]:
        for request in requests:
            self.counts[request.name] = self.counts.get(request.name, 0) + 1
        return super().ask(requests, sync=sync, fate=fate)


def test_looking_is_rare_and_only_when_the_file_has_changed(
    db: eosdb.Database, clock: ManualClock
) -> None:
    feed(db, b"a")
    transport = Counting(db.broker)
    config: Any = {"auto_offset_reset": "earliest"}
    looking = GroupIdleness(transport, clock, "g", ("in",), config)
    for _ in range(100):
        assert not looking.is_idle()
    assert transport.counts["lag"] == 2
    for _ in range(10):
        clock.advance(LOOK_EVERY_MS)
        assert not looking.is_idle()
    assert transport.counts["lag"] == 2
    feed(db, b"b")
    assert not looking.is_idle()
    assert transport.counts["lag"] == 4
