"""A processor with tables of its own is killed: each record ends as one row and one result, or as one dead
letter without a row.

It is killed at every instant between two durable steps, in this process. The gauntlet
(tests/trials/hunts) kills processors for real, also beside another that takes over.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.model.failpoints import Failpoint
from tests.crash.test_processing import killed_everywhere, run_until_killed

pytestmark = pytest.mark.crash

COUNT = 9
DEADLY = {
    Failpoint.APPEND_UNCOMMITTED,
    Failpoint.UNIT_COMMITTED,
    Failpoint.USER_UNIT_UNCOMMITTED,
}
SETTINGS: Final[dict[str, Any]] = {
    "group_id": "g",
    "transaction_size": 4,
    "max_attempts": 2,
    "retry_backoff_ms": 1,
    "retry_delays_ms": (100,),
    "dead_letter_topic": "dead",
    # Started again, it takes its own place.
    "consumer": {"group_instance_id": "one"},
}
TABLE: Final = "CREATE TABLE done (value INTEGER, topic TEXT, number INTEGER)"
ROW: Final = "INSERT INTO done VALUES (?, ?, ?)"


def is_bad(number: int) -> bool:
    return number % 10 == 7


def handle(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> bytes:
    """A row and a result. One in ten fails always, with its row and a record written."""
    assert isinstance(record.value, bytes)
    number = int(record.value)
    tx.connection.exec_driver_sql(ROW, (number, record.topic, record.offset))
    if is_bad(number):
        tx.publish("out", b"never")
        raise ValueError("one in ten")
    return record.value


def fill(path: Path) -> None:
    with eosdb.connect(path, durability="off") as db:
        for topic in ("in", "out"):
            db.admin.create_topic(topic, 2)
        with db.begin() as tx:
            tx.connection.exec_driver_sql(TABLE)
        with db.producer(linger_ms=1_000) as producer:
            for number in range(COUNT):
                producer.send("in", b"%d" % number, partition=number % 2)


def live(path: Path, clock: eosdb.Clock, lives_until: int) -> Failpoint | None:
    """Run a processor that is killed at the given visit of any failpoint. Returns where it died."""
    db = eosdb.connect(path, clock=clock, durability="off")
    return run_until_killed(db, handle, SETTINGS, lives_until)


def check(path: Path, count: int) -> None:
    good = [number for number in range(count) if not is_bad(number)]
    with eosdb.connect(path) as db:
        rows = db.query("SELECT value, topic, number FROM done ORDER BY value").rows
        assert list(rows) == [(number, "in", number // 2) for number in good]
        found = Counter(db.query("SELECT topic, value FROM committed_records").rows)
        ended = {(t, int(v)): n for (t, v), n in found.items() if t in ("out", "dead")}
        bad = set(range(count)) - set(good)
        assert ended == {**{("out", n): 1 for n in good}, **{("dead", n): 1 for n in bad}}
        offsets = db.broker.offset_fetch("g")
        for partition in (0, 1):
            tp = TopicPartition("in", partition)
            assert offsets[tp].offset == db.broker.offsets(tp).log_end_offset
        assert db.verify().ok


def test_killed_at_every_write_point_each_record_has_one_row_or_none(tmp_path: Path) -> None:
    fill(tmp_path / "filled.db")
    points = killed_everywhere(tmp_path / "filled.db", live, lambda path: check(path, COUNT))
    assert points >= DEADLY


def handle_all(
    records: list[eosdb.ConsumerRecord], tx: eosdb.UserTransaction
) -> list[eosdb.ProducerRecord]:
    return [eosdb.ProducerRecord(value=handle(record, tx)) for record in records]


def live_in_batches(path: Path, clock: eosdb.Clock, lives_until: int) -> Failpoint | None:
    db = eosdb.connect(path, clock=clock, durability="off")
    return run_until_killed(db, handle_all, {**SETTINGS, "batch": True}, lives_until)


def test_killed_at_every_write_point_each_record_of_a_batch_has_one_row_or_none(
    tmp_path: Path,
) -> None:
    fill(tmp_path / "filled.db")
    points = killed_everywhere(
        tmp_path / "filled.db", live_in_batches, lambda path: check(path, COUNT)
    )
    assert points >= DEADLY
