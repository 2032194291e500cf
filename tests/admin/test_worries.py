"""What stands still in a file, in sentences: a table of figures, and files in which it happens."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import eosdb
from eosdb import (
    HangingReason,
    ManualClock,
    OffsetAndMetadata,
    OpenTransaction,
    PartitionOffsets,
    Record,
    RecordBatch,
    TopicPartition,
)
from eosdb.admin.overview import STILL_MS
from eosdb.admin.worries import ROOM_MIN, WAL_MAX, YOUNG_MS, worries
from eosdb.model.overview import (
    Behind,
    DeadLetterFigures,
    GroupFigures,
    GroupPosition,
    Overview,
    PartitionFigures,
    ScheduledFigures,
)
from eosdb.model.topic_config import MOVING_TO
from tests.cases import each

NOW = 1_000_000_000
TP = TopicPartition("orders", 0)
MIN = 60_000


def file(
    *,
    groups: Iterable[GroupFigures] = (),
    transactions: Iterable[OpenTransaction] = (),
    log: tuple[int, int, int] = (0, 10, 10),
    letters: int = 0,
) -> Overview:
    """Two partitions with these log starts, ends and last stable offsets, and what stands in them."""
    start, end, stable = log
    offsets = PartitionOffsets(start, end, end, stable, stable if stable < end else -1)
    return Overview(
        path="/data/shop.db",
        file_id="f",
        now_ms=NOW,
        size_bytes=0,
        wal_bytes=0,
        free_bytes=0,
        journal_position=0,
        partitions=tuple(
            PartitionFigures(
                topic="orders", partition=number, offsets=offsets, size_bytes=0, max_timestamp=0
            )
            for number in range(2)
        ),
        groups=tuple(groups),
        transactions=tuple(transactions),
        dead_letters=(DeadLetterFigures(topic="dlq", waiting=letters, newest_timestamp=NOW - MIN),),
    )


def group(
    *lags: int, members: int = 0, at: int = 0, still_ms: int = -1, name: str = "billing",
    due: tuple[str, ...] = (), failed_ms: int = -1, exact: bool = True,
) -> GroupFigures:  # fmt: skip
    return GroupFigures(
        group_id=name,
        state="Stable" if members else "Empty",
        members=members,
        positions=tuple(
            GroupPosition("orders", number, at, Behind(lag, is_exact=exact), still_ms)
            for number, lag in enumerate(lags)
        ),
        due=due,
        failed_ms=failed_ms,
    )


def open_transaction(
    *, partition: int = 0, age_ms: int = 3 * MIN, state: str | None = "Ongoing", deadline_ms: int = 0,
    hanging: HangingReason | None = None, transactional_id: str | None = "pay",
) -> OpenTransaction:  # fmt: skip
    return OpenTransaction(
        topic="orders",
        partition=partition,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        start_offset=4,
        last_timestamp=NOW,
        transactional_id=transactional_id,
        state=state,
        start_time_ms=NOW - age_ms,
        deadline_ms=deadline_ms or NOW + 5 * MIN,
        hanging=hanging,
    )


HELD = (0, 10, 4)
ABORT = "eosdb transactions abort shop.db orders/0 --start-offset 4"
KEEP = "eosdb housekeeping shop.db"
SHOW = "eosdb groups describe shop.db billing"
NEXT = "the next write to the file"
CASES: dict[str, tuple[Overview, str, str, bool]] = {
    "an open transaction": (
        file(transactions=[open_transaction()], log=HELD),
        "Transaction pay has held back readers of orders/0 from offset 4 for 3 min, 6 offsets by now. "
        "It is aborted in 5 min unless it ends before.",
        ABORT, True,
    ),
    "a young one": (
        file(transactions=[open_transaction(age_ms=YOUNG_MS - 1)], log=HELD),
        "Transaction pay has held back readers of orders/0 from offset 4 for 9.9 s, 6 offsets by now. "
        "It is aborted in 5 min unless it ends before.",
        ABORT, False,
    ),
    "one in two partitions": (
        file(transactions=[open_transaction(), open_transaction(partition=1)], log=HELD),
        "Transaction pay has held back readers of orders/0 and 1 more partition from offset 4 for 3 "
        "min, 12 offsets by now. It is aborted in 5 min unless it ends before.",
        ABORT, True,
    ),
    "one that hangs": (
        file(
            transactions=[
                open_transaction(
                    transactional_id=None, deadline_ms=-1, hanging=HangingReason.UNKNOWN, age_ms=9
                )
            ],
            log=HELD,
        ),
        "A transaction of producer id 7 has held back readers of orders/0 from offset 4 for 9 ms, 6 "
        "offsets by now. Nothing ends it: no transactional id of the coordinator has this producer id.",
        ABORT, True,
    ),
    "one of a dead owner": (
        file(transactions=[open_transaction(hanging=HangingReason.OWNER_DIED)], log=HELD),
        "Transaction pay has held back readers of orders/0 from offset 4 for 3 min, 6 offsets by now. "
        f"Its owner has died; {NEXT} aborts it.",
        KEEP, True,
    ),
    "one that has timed out": (
        file(transactions=[open_transaction(hanging=HangingReason.OVERDUE)], log=HELD),
        "Transaction pay has held back readers of orders/0 from offset 4 for 3 min, 6 offsets by now. "
        f"It is older than its timeout; {NEXT} aborts it.",
        KEEP, True,
    ),
    "one that is decided": (
        file(transactions=[open_transaction(state="PrepareCommit", deadline_ms=-1)], log=HELD),
        "Transaction pay has held back readers of orders/0 from offset 4 for 3 min, 6 offsets by now. "
        f"It is decided; {NEXT} completes it.",
        KEEP, True,
    ),
    "a group without members": (
        file(groups=[group(3)]),
        "Group billing has no member and 3 records to read in orders/0. Start its program again.",
        SHOW, True,
    ),
    "in two partitions, by a bound": (
        file(groups=[group(3, 4000, exact=False)]),
        "Group billing has no member and at most 4,003 records to read in orders/1 and 1 more partition. "
        "Start its program again.",
        SHOW, True,
    ),
    "a failed processor": (
        file(groups=[group(3, failed_ms=NOW - MIN)]),
        "Group billing has no member and 3 records to read in orders/0. Its processor stopped without a "
        "commit 1 min ago. See its log, correct what failed, and start it again.",
        SHOW, True,
    ),
    "one that has committed nothing": (
        file(groups=[group(failed_ms=NOW - MIN)]),
        "Group billing has no member and 0 records to read. Its processor stopped without a commit 1 min "
        "ago. See its log, correct what failed, and start it again.",
        SHOW, False,
    ),
    "dead members": (
        file(groups=[group(3, members=1, due=("a: its process has died",))]),
        f"Group billing has 3 records to read in orders/0. {NEXT.capitalize()} removes 1 dead member and "
        "leaves 1 member.",
        KEEP, True,
    ),
    "dead members alone": (
        file(groups=[group(due=("a: its process has died", "b: its process has died"))]),
        f"Group billing has 0 records to read. {NEXT.capitalize()} removes 2 dead members and leaves "
        "0 members. Start its program again.",
        KEEP, True,
    ),
    "members without progress": (
        file(groups=[group(3, members=2, still_ms=NOW - 2 * MIN)]),
        "Group billing has 2 members and 3 records to read in orders/0. orders/0 has stood still for 2 "
        "min: the member there hangs, or commits nothing.",
        f"{SHOW} --members", True,
    ),
    "members at work": (
        file(groups=[group(3, members=1)]),
        "Group billing has 1 member and 3 records to read in orders/0. No partition has stood still for a "
        "minute yet.",
        SHOW, False,
    ),
    "a position before the log": (
        file(groups=[group(0, at=2)], log=(5, 10, 10)),
        "Group billing has not read offset 2 of orders/0, which is deleted: the log begins at 5. "
        "auto_offset_reset decides where it goes on.",
        "eosdb groups reset-offsets shop.db billing --topic orders:0 --to-earliest --execute", True,
    ),
    "a position behind the log": (
        file(groups=[group(0, at=12)]),
        "Group billing stands at offset 12 of orders/0, beyond the log's end, 10. auto_offset_reset "
        "decides where it goes on.",
        "eosdb groups reset-offsets shop.db billing --topic orders:0 --to-latest --execute", True,
    ),
    "a relay that stopped": (
        file(groups=[group(3, name="__eosdb_relay.east", still_ms=NOW - 2 * MIN)]),
        "Relay east has 3 records to read in orders/0. It has copied nothing for 2 min: it was "
        "stopped, or the other side is down.",
        "eosdb relay shop.db --name east --to TARGET", True,
    ),
    "a relay at work": (
        file(groups=[group(3, name="__eosdb_relay.east")]),
        "Relay east has 3 records to read in orders/0.",
        "eosdb relay shop.db --name east --to TARGET", False,
    ),
    "dead letters": (
        file(letters=2),
        "dlq holds 2 dead letters, the newest for 1 min. Correct what made them fail, and replay "
        "them.",
        "eosdb dlq replay shop.db dlq", True,
    ),
    "a topic on the move": (
        replace(file(), closed_topics=(("orders", "broker:9092", False),)),
        "Topic orders refuses writers, because it is moving to broker:9092.",
        "eosdb migrate-to-kafka shop.db --to broker:9092 --execute", True,
    ),
    "a topic that has moved": (
        replace(file(), closed_topics=(("orders", "broker:9092", True),)),
        "Topic orders refuses writers, because it has moved to broker:9092.",
        "eosdb migrate-to-kafka shop.db --to broker:9092 --undo", False,
    ),
    "a read-only file": (
        replace(file(), is_read_only=True),
        "Every write fails, because /data/shop.db or its file system is read-only.",
        "ls -l /data/shop.db", True,
    ),
    "scheduled records that nobody delivers": (
        replace(file(), scheduled=(ScheduledFigures("orders", 5, 2, NOW - 3 * MIN),)),
        "2 scheduled records of orders should have entered the topic, the first 3 min ago. No program "
        "writes to the file, polls it, serves it or keeps house.",
        KEEP, True,
    ),
    "a writer that goes on holding the lock": (
        replace(file(), write_held_by="process 4711 (python app.py), which is stopped: end it"),
        "The write lock of /data/shop.db is held by process 4711 (python app.py), which is stopped: end it."
        " No other program can write, for half a second or longer; the system does not tell since when.",
        "ps -f -p 4711", True,
    ),
    "a full disk": (
        replace(file(), disk_free_bytes=ROOM_MIN - 1),
        "The file system of /data/shop.db is full: 32.0 MiB are free.",
        "df -h /data", True,
    ),
    "a WAL that a reader holds": (
        replace(file(), wal_bytes=WAL_MAX, wal_held_by="process 7 (python)"),
        "The WAL has 256 MiB and cannot shrink while these read an old snapshot: process 7 (python).",
        "eosdb info shop.db", True,
    ),
}  # fmt: skip


@each("case", CASES)
def test_each_worry_has_its_sentence_and_its_command(case: str) -> None:
    it, sentence, command, is_urgent = CASES[case]
    (found,) = worries(it, "shop.db")
    assert (found.sentence, found.command, found.is_urgent) == (sentence, command, is_urgent)


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["db.begin()", "BEGIN IMMEDIATE"])
@pytest.mark.process
def test_a_program_that_keeps_the_write_lock_is_named(db_path: Path, begin: str) -> None:
    program = (
        f"import eosdb, sys\nwith eosdb.connect(sys.argv[1]) as db, {begin}:\n"
        " print(flush=True); input()"
    )
    if begin != "db.begin()":
        program = (
            "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            f"c.execute('{begin}'); print(flush=True); input()"
        )
    with eosdb.connect(db_path) as db:
        assert db.why() == []
        with subprocess.Popen(
            [sys.executable, "-c", program, str(db_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with eosdb.connect(db_path, read_only=True) as reader:
                (found,) = reader.why()
            process.kill()
        assert f"process {process.pid} (" in found.sentence
        assert found.command == f"ps -f -p {process.pid}"
        assert db.why() == []


def test_nothing_stands_still_where_all_is_read() -> None:
    assert worries(file(groups=[group(0, members=1)])) == []
    full = replace(file(), disk_free_bytes=ROOM_MIN, wal_bytes=WAL_MAX - 1, wal_held_by="a")
    assert worries(full) == []
    late = ScheduledFigures("orders", 5, 2, NOW - YOUNG_MS + 1)
    waiting = ScheduledFigures("later", 5, 0, NOW + 1)
    assert worries(replace(file(), scheduled=(late, waiting))) == []


def test_the_most_urgent_come_first() -> None:
    hanging = open_transaction(partition=1, hanging=HangingReason.COMPLETED, deadline_ms=-1)
    it = file(
        groups=[group(3, members=1, name="busy"), group(3), group(9, name="audit")],
        transactions=[replace(open_transaction(), producer_id=8), hanging],
        log=HELD,
        letters=1,
    )
    found = [(one.group, one.topic, one.partition) for one in worries(it)]
    assert found == [
        (None, "orders", 1),
        (None, "orders", 0),
        ("audit", "orders", 0),
        ("billing", "orders", 0),
        (None, "dlq", None),
        ("busy", "orders", 0),
    ]


def test_a_name_of_any_characters_stays_in_its_line_and_in_its_word() -> None:
    it = file(groups=[group(1, name="a; rm -rf /\n\x1b[2J")])
    (found,) = worries(it, "my shop.db")
    assert found.sentence.isprintable()
    assert shlex.split(found.command) == [
        "eosdb",
        "groups",
        "describe",
        "my shop.db",
        "a; rm -rf /\n\x1b[2J",
    ]


# -- files in which it happens ------------------------------------------------------------------


@pytest.fixture
def shop(db: eosdb.Database) -> eosdb.Database:
    db.admin.create_topic("orders")
    db.broker.append(TP, RecordBatch([Record(value=b"v")] * 5))
    return db


def told(db: eosdb.Database) -> list[str]:
    return [worry.sentence for worry in db.why()]


def test_a_group_stands_still_a_minute_after_its_commit_or_the_next_record(
    shop: eosdb.Database, clock: ManualClock
) -> None:
    with shop.consumer("billing", session_timeout_ms=10 * MIN) as consumer:
        consumer.subscribe(["orders"])
        consumer.poll()
        consumer.commit({TP: OffsetAndMetadata(5)})
        clock.advance(STILL_MS)
        shop.broker.append(TP, RecordBatch([Record(value=b"v")]))
        clock.advance(STILL_MS - 1)
        assert told(shop) == [
            "Group billing has 1 member and 1 record to read in orders/0. No partition has stood still for "
            "a minute yet."
        ]
        clock.advance(1)
        assert "orders/0 has stood still for 1 min" in told(shop)[0]
        consumer.commit({TP: OffsetAndMetadata(5)})
        assert "No partition has stood still" in told(shop)[0]


def test_markers_and_aborted_records_do_not_wait(shop: eosdb.Database, clock: ManualClock) -> None:
    with shop.consumer("billing", session_timeout_ms=10 * MIN) as consumer:
        consumer.subscribe(["orders"])
        consumer.poll()
        consumer.commit({TP: OffsetAndMetadata(5)})
        producer = shop.producer(transactional_id="pay")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"x")
        producer.abort_transaction()
        clock.advance(2 * STILL_MS)
        shop.broker.append(TP, RecordBatch([Record(value=b"v")]))
        assert "No partition has stood still" in told(shop)[0]


def test_a_processor_that_failed_is_told_from_one_that_was_stopped(
    shop: eosdb.Database, clock: ManualClock
) -> None:
    def handler(record: eosdb.ConsumerRecord) -> None:
        if record.offset == bad:
            raise ValueError("no")

    def process() -> None:
        eosdb.process(
            shop, "orders", handler, group_id="billing", until_idle_ms=0, max_attempts=1
        )  # fmt: skip

    bad = 0
    with pytest.raises(eosdb.HandlerFailedError):
        process()
    (found,) = shop.why()
    assert (found.group, found.is_urgent) == ("billing", False)
    assert "Its processor stopped without a commit" in found.sentence
    bad = -1
    process()
    assert shop.why() == []
    bad = 5
    shop.broker.append(TP, RecordBatch([Record(value=b"v")]))
    with pytest.raises(eosdb.HandlerFailedError):
        process()
    (found,) = shop.why()
    assert found.is_urgent
    assert found.sentence.startswith(
        "Group billing has no member and 1 record to read in orders/0. Its"
    )


def test_the_command_ends_what_it_stands_beside(shop: eosdb.Database, clock: ManualClock) -> None:
    producer = shop.producer(transactional_id="pay")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"x")
    producer.flush()
    (found,) = shop.why()
    assert shlex.split(found.command)[1:4] == ["transactions", "abort", shop.path]
    clock.advance(10 * MIN)
    (found,) = shop.why()
    assert found.command == f"eosdb housekeeping {shlex.quote(shop.path)}"
    shop.housekeeping()
    assert shop.why() == []


def test_a_topic_that_moves_and_a_file_that_nobody_may_write(
    shop: eosdb.Database, db_path: Path
) -> None:
    shop.admin.alter_topic_config("orders", {MOVING_TO: "broker:9092"})
    os.chmod(db_path, 0o444)
    assert [sentence.partition(",")[0] for sentence in told(shop)] == [
        "Every write fails",
        "Topic orders refuses writers",
    ]


def test_a_principal_hears_of_what_it_may_describe(shop: eosdb.Database, db_path: Path) -> None:
    shop.broker.offset_commit("billing", {TP: OffsetAndMetadata(2)})
    shop.admin.create_acls([eosdb.Acl("User:a", "describe", "topic", "orders")])
    with eosdb.connect(db_path, principal="User:a", read_only=True) as other:
        assert other.why() == []
