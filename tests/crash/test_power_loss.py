"""Power fails: of the WAL only a beginning reaches the disk, and its end may be garbage.

Method: a child dies with a long WAL; the WAL is cut at random bytes, or damaged there, and each file
that results is opened. Whatever has reached the disk is a state the database once had: batches and
transactions whole, what is decided completed, replay equal to the tables.
"""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path

import pytest

import eosdb
from tests.crash.children import check_everything, everything

CUTS_PER_SEED = 8


@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_any_beginning_of_the_wal_is_a_sound_database(
    tmp_path: Path, request: pytest.FixtureRequest, damage: str
) -> None:
    whole = tmp_path / "whole.db"
    status, _ = everything(whole, point="rebuild.cleared")
    assert status == -signal.SIGKILL
    wal = Path(f"{whole}-wal").read_bytes()
    rng = random.Random(damage)
    for number in range(CUTS_PER_SEED * request.config.getoption("--seeds", 3)):
        at = rng.randrange(len(wal))
        path = tmp_path / f"{number}.db"
        shutil.copy(whole, path)
        end = rng.randbytes(min(9_000, len(wal) - at)) if damage == "garbage" else b""
        Path(f"{path}-wal").write_bytes(wal[:at] + end + wal[at + len(end) :] * bool(end))
        check_everything(path, [])


def test_what_was_acknowledged_under_full_durability_has_been_synced(
    db_path: Path, clock: eosdb.ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite is asked to sync every unit that decides something, and no other."""
    asked: list[str] = []
    with eosdb.connect(db_path, clock=clock, durability="full") as db:
        db.admin.create_topic("t")
        producer = db.producer(transactional_id="a")
        producer.init_transactions()

        def note(sql: str) -> None:
            if sql.startswith(("PRAGMA synchronous=", "COMMIT")):
                asked.append(sql.removeprefix("PRAGMA synchronous="))

        db._store._writer.connection.set_trace_callback(note)
        db.broker.append(eosdb.TopicPartition("t", 0), eosdb.RecordBatch([eosdb.Record()]))
        producer.begin_transaction()
        producer.send("t", b"v").result()
        producer.commit_transaction()
    state, commits = "FULL", []
    for word in asked:
        if word == "COMMIT":
            commits.append(state)
        else:
            state = word
    send, decide, complete = "NORMAL", "FULL", "NORMAL"
    assert commits[:4] == ["FULL", send, decide, complete]
