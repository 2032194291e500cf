"""What is said when something happens, once, where it happens: and the fields that say of what."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import BrokerConfig, ConsumerRecord, ManualClock, TopicPartition
from eosdb.errors import CorruptRecordError, HandlerFailedError, ProducerFencedError

COUNT = 21


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "eosdb")


def said(caplog: pytest.LogCaptureFixture, *actions: str) -> list[dict[str, Any]]:
    """The fields of what was said with these actions."""
    return [r.__dict__ for r in caplog.records if r.__dict__.get("action") in actions]


def feed(db: eosdb.Database, count: int = COUNT) -> None:
    db.admin.create_topic("in", partitions=3)
    producer = db.producer(linger_ms=1_000)
    for i in range(count):
        producer.send("in", b"secret value", key=b"secret key", partition=i % 3)
    producer.close()


def fail(record: ConsumerRecord) -> bytes:
    raise ValueError(f"no {record.topic}\nat all")


def fail_in(record: ConsumerRecord, tx: object) -> bytes:
    raise ValueError("no")


@pytest.mark.slow
@pytest.mark.parametrize("handler", [fail, fail_in])
@pytest.mark.parametrize(("attempts", "delays"), [(3, ()), (1, (1, 2))])
def test_63_failures_and_21_dead_letters_are_84_lines(
    db: eosdb.Database,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    handler: Any,
    attempts: int,
    delays: tuple[int, ...],
) -> None:
    feed(db)
    caplog.clear()
    done = eosdb.process(
        db, "in", handler, group_id="g", until_idle_ms=50, max_attempts=attempts,
        retry_delays_ms=delays, retry_backoff_ms=0, dead_letter_topic="dead",
    )  # fmt: skip
    assert (done.failed, done.dead_lettered) == (63, 21)
    loud = [
        record
        for record in caplog.records
        # A crowded machine has slow commits besides.
        if record.levelno >= logging.WARNING and record.__dict__.get("action") != "slow_commit"
    ]
    assert len(loud) == 84
    assert "\n" not in "".join(record.getMessage() for record in loud)
    failed, dead = said(caplog, "attempt_failed"), said(caplog, "dead_letter")
    places = {(f"{p}", o, a) for p in range(3) for o in range(7) for a in (1, 2, 3)}
    assert {(str(f["partition"]), f["offset"], f["attempt"]) for f in failed} == places
    assert {(f["topic"], f["group_id"], f["error"]) for f in failed} == {("in", "g", "ValueError")}
    steps = (
        ["retry", "retry", "dead_letter"] if not delays else ["retry_later"] * 2 + ["dead_letter"]
    )
    for number, step in enumerate(steps, 1):
        assert {f["next_step"] for f in failed if f["attempt"] == number} == {step}
    assert len({(f["partition"], f["offset"]) for f in dead}) == COUNT
    assert {(f["levelname"], f["attempt"], f["dead_letter_topic"]) for f in dead} == {
        ("ERROR", 3, "dead")
    }
    assert "secret" not in caplog.text


def test_a_line_can_be_read_without_its_fields(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    feed(db, 1)
    caplog.clear()
    eosdb.process(
        db, "in", fail, group_id="g", until_idle_ms=50, max_attempts=2, dead_letter_topic="dead"
    )
    assert [r.getMessage() for r in caplog.records if r.name == "eosdb.processor"] == [
        r"group g: in-0 offset 0: attempt 1 of 2 failed: ValueError: no in\nat all; tried again in 100 ms",
        r"group g: in-0 offset 0: attempt 2 of 2 failed: ValueError: no in\nat all; goes to the dead "
        "letter topic dead",
        r"group g: in-0 offset 0: given up after attempt 2, and sent to dead: ValueError: no in\nat all",
    ]
    assert not any(record.exc_info for record in caplog.records)


def test_a_failure_has_its_traceback_where_details_are_wanted(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    feed(db, 1)
    caplog.set_level(logging.DEBUG, "eosdb.processor")
    with pytest.raises(HandlerFailedError):
        eosdb.process(db, "in", fail, group_id="g", until_idle_ms=50, max_attempts=1)
    (failed,) = said(caplog, "attempt_failed")
    assert failed["next_step"] == "stop"
    assert failed["exc_info"][1].args == ("no in\nat all",)


def test_nothing_is_said_inside_the_lock_that_a_handler_has(db: eosdb.Database) -> None:
    """With two parameters it runs in the file's one write lock."""
    feed(db, 1)
    written: list[int] = []

    class Writing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.__dict__["action"] == "attempt_failed":
                written.append(db.producer().send("log", record.getMessage()).result().offset)

    db.admin.create_topic("log")
    handler = Writing()
    logging.getLogger("eosdb.processor").addHandler(handler)
    try:
        eosdb.process(db, "in", fail_in, group_id="g", until_idle_ms=50, dead_letter_topic="dead")
    finally:
        logging.getLogger("eosdb.processor").removeHandler(handler)
    assert written == [0, 1, 2]


def test_a_rebalance_is_said_once_by_each_member_of_each_generation(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    feed(db, 0)
    one, two = db.consumer("g"), db.consumer("g")
    one.subscribe("in")
    one.poll()
    two.subscribe("in")
    for _ in range(20):
        one.poll()
        two.poll()
    told = said(caplog, "rebalanced")
    assert len({(f["member_id"], f["generation_id"]) for f in told}) == len(told)
    assert told[0]["gained"] == ["in-0", "in-1", "in-2"]
    of_one = [f for f in told if f["member_id"] == told[0]["member_id"]]
    assert sum(len(f["gained"]) - len(f["lost"]) for f in of_one) == len(one.assignment())
    of_two = [f for f in told if f["member_id"] != told[0]["member_id"]]
    assert sum(len(f["gained"]) - len(f["lost"]) for f in of_two) == len(two.assignment())


def test_a_member_whose_session_ends_is_missed_by_the_group_and_told_itself(
    db: eosdb.Database, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    feed(db, 0)
    consumer = db.consumer("g", session_timeout_ms=6_000)
    consumer.subscribe("in")
    consumer.poll()
    clock.advance(7_000)
    db.producer().send("in", b"v", partition=0).result()
    (removed,) = said(caplog, "member_removed")
    assert (removed["group_id"], removed["reason"]) == ("g", "session_ended")
    for _ in range(5):
        consumer.poll()
    (lost,) = said(caplog, "membership_lost")
    assert (lost["member_id"], lost["levelname"]) == (removed["member_id"], "WARNING")


def test_a_transaction_that_times_out_is_said_once_and_so_is_its_fenced_producer(
    db: eosdb.Database, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    feed(db, 0)
    producer = db.producer(transactional_id="tx", transaction_timeout_ms=1_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("in", b"v", partition=0).result()
    clock.advance(1_500)
    for _ in range(3):
        db.producer().send("in", b"w", partition=0).result()
    (aborted,) = said(caplog, "transaction_timed_out")
    assert (aborted["transactional_id"], aborted["open_ms"]) == ("tx", 1_500)
    for _ in range(2):
        with pytest.raises(eosdb.EosdbError):
            producer.commit_transaction()
    assert [f["transactional_id"] for f in said(caplog, "producer_fenced")] == ["tx"]


def test_an_id_that_is_taken_is_said_by_both_producers(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    feed(db, 0)
    old, new = (db.producer(transactional_id="tx") for _ in range(2))
    old.init_transactions()
    old.begin_transaction()
    old.send("in", b"v", partition=0).result()
    new.init_transactions()
    (taken,) = said(caplog, "transaction_taken_over")
    assert (taken["transactional_id"], taken["levelname"]) == ("tx", "WARNING")
    with pytest.raises(ProducerFencedError):
        old.commit_transaction()
    assert [f["error"] for f in said(caplog, "producer_fenced")] == ["ProducerFencedError"]


DECIDES_AND_DIES = """
import sys, eosdb
db = eosdb.connect(sys.argv[1])
producer = db.producer(transactional_id="tx")
producer.init_transactions()
producer.begin_transaction()
producer.send("in", b"v", partition=0)
producer.commit_transaction()
"""


@pytest.mark.process
def test_who_opens_a_file_says_what_a_killed_process_left(
    db_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with eosdb.connect(db_path) as db:
        feed(db, 0)
    died = subprocess.run(
        [sys.executable, "-c", DECIDES_AND_DIES, str(db_path)],
        env={**os.environ, "EOSDB_FAILPOINT": "end_txn.decided"},
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    with eosdb.connect(db_path):
        (recovered,) = said(caplog, "recovered")
    assert (recovered["file"], recovered["transactions"]) == (str(db_path), 1)
    caplog.clear()
    with eosdb.connect(db_path):
        assert caplog.messages == []


def test_a_damaged_record_is_said_once_however_often_it_is_met(
    db_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with eosdb.connect(db_path) as db:
        feed(db, 3)
    with sqlite3.connect(db_path) as connection:
        connection.execute("DROP TRIGGER records_refuse_update")
        connection.execute("UPDATE records SET value = X'00' WHERE partition_id = 1")
    connection.close()
    with eosdb.connect(db_path) as db:
        consumer = db.consumer(auto_offset_reset="earliest")
        consumer.assign([TopicPartition("in", 0)])
        for _ in range(3):
            with pytest.raises(CorruptRecordError):
                consumer.poll()
    (damage,) = said(caplog, "damage_found")
    assert (damage["file"], damage["levelname"]) == (str(db_path), "ERROR")


def test_housekeeping_says_what_it_has_deleted(
    db_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with eosdb.connect(db_path, clock=clock, config=BrokerConfig(log_retention_ms=1_000)) as db:
        feed(db)
        db.housekeeping()
        assert said(caplog, "housekept") == []
        clock.advance(10_000)
        db.housekeeping()
    (done,) = said(caplog, "housekept")
    assert (done["levelname"], done["deleted_records"]) == ("INFO", COUNT)
    assert f"{COUNT} deleted records" in done["message"]


def test_a_full_disk_is_said_once_and_again_when_there_is_room(
    db_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with eosdb.connect(db_path) as db:
        feed(db, 0)
        connection = db._store._writer
        assert connection is not None
        (pages,) = connection.connection.execute("PRAGMA page_count").fetchone()
        connection.connection.execute(f"PRAGMA max_page_count={pages}")
        for _ in range(3):
            with pytest.raises(eosdb.DatabaseFullError):
                db.producer().send("in", b"v" * 500_000, partition=0).result()
        connection.connection.execute("PRAGMA max_page_count=1000000")
        for _ in range(3):
            db.producer().send("in", b"v" * 500_000, partition=0).result()
    (fails,), (works,) = said(caplog, "writes_fail"), said(caplog, "writes_again")
    assert (fails["levelname"], fails["error"]) == ("ERROR", "DatabaseFullError")
    assert works["levelname"] == "INFO"
