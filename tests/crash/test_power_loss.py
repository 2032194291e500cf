"""Power fails: of the WAL only a beginning reaches the disk, and its end may be garbage.

Method: a child dies with a long WAL; the WAL is cut at random bytes, or damaged there, and each file
that results is opened. Whatever has reached the disk is a state the database once had: batches and
transactions whole, what is decided completed, replay equal to the tables.
"""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb.model.values import Durability
from eosdb.store.writing.group_commit import UnitRequest
from eosdb.store.writing.unit import Unit
from tests.crash.children import check_everything, everything
from tests.inside import writer

pytestmark = pytest.mark.crash

CUTS_PER_SEED = 8


@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_any_beginning_of_the_wal_is_a_sound_database(
    tmp_path: Path, seeds: list[int], damage: str
) -> None:
    whole = tmp_path / "whole.db"
    status, _ = everything(whole, point="compact.written")
    assert status == -signal.SIGKILL
    wal = Path(f"{whole}-wal").read_bytes()
    rng = random.Random(f"{damage} {seeds[0]}")
    for number in range(CUTS_PER_SEED * len(seeds)):
        at = rng.randrange(len(wal))
        path = tmp_path / f"{number}.db"
        shutil.copy(whole, path)
        end = rng.randbytes(min(9_000, len(wal) - at)) if damage == "garbage" else b""
        Path(f"{path}-wal").write_bytes(wal[:at] + end + wal[at + len(end) :] * bool(end))
        check_everything(path, [])


def commits_of(connection: sqlite3.Connection) -> list[str]:
    """What SQLite is asked to sync at each of the connection's commits from now on."""
    state, commits = "unknown", list[str]()

    def note(sql: str) -> None:
        nonlocal state
        if sql.startswith("PRAGMA synchronous="):
            state = sql.removeprefix("PRAGMA synchronous=")
        elif sql.startswith("COMMIT"):
            commits.append(state)

    (number,) = connection.execute("PRAGMA synchronous").fetchone()
    state = ("OFF", "NORMAL", "FULL")[number]
    connection.set_trace_callback(note)
    return commits


def test_what_was_acknowledged_under_full_durability_has_been_synced(
    db_path: Path, clock: eosdb.ManualClock
) -> None:
    """SQLite is asked to sync every unit that decides something, and no other."""
    with eosdb.connect(db_path, clock=clock, durability="full") as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="a")
        producer.init_transactions()
        commits = commits_of(writer(db).connection)
        db.broker.append(eosdb.TopicPartition("t", 0), eosdb.RecordBatch([eosdb.Record()]))
        producer.begin_transaction()
        producer.send("t", b"v").result()
        producer.commit_transaction()
    append, send, end = "FULL", "NORMAL", "FULL"
    assert commits[:3] == [append, send, end]


@pytest.mark.parametrize(
    ("durability", "asked"), [("full", "FULL"), ("normal", "NORMAL"), ("off", "OFF")]
)
def test_a_block_of_begin_is_synced_as_durability_says(
    db_path: Path, durability: Durability, asked: str
) -> None:
    """It has a connection of its own, which is opened for the first block."""
    with eosdb.connect(db_path, durability=durability) as db:
        db.admin.create_topic("t")
        with db.begin():
            pass
        held = db._store._held
        assert held is not None
        held.is_ours = True  # What a program does to the connection would end with its block.
        commits = commits_of(held._raw)
        with db.begin() as tx:
            tx.publish("t", b"v")
    assert commits == [asked]


@pytest.mark.parametrize(
    "batch", [(True, False), (False, True), (False, True, False), (False, False)], ids=str
)
def test_a_shared_commit_is_synced_when_any_of_its_requests_asks_for_it(
    db_path: Path, batch: tuple[bool, ...]
) -> None:
    with eosdb.connect(db_path, durability="full") as db:
        db.admin.create_topic("t")
        commits = commits_of(writer(db).connection)
        db._store._run_round(
            [UnitRequest(write_a_row(number), sync) for number, sync in enumerate(batch)]
        )
        assert commits == ["FULL" if any(batch) else "NORMAL"]


def write_a_row(number: int) -> Callable[[Unit], object]:
    return lambda unit: unit.execute("INSERT INTO counters VALUES (?, 1)", (f"row {number}",))
