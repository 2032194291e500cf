"""A process is killed with a group's offsets in a transaction that it has not ended: nobody takes its
records for read, and a processor's transaction is aborted at once, not after its time-out.

Sessions and time-outs are five minutes, far beyond any deadline here, except where one is to pass.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from tests.crash.children import environment
from tests.crash.open_transaction_worker import SETTINGS, handle
from tests.crash.test_dead_members import PATIENCE_S, Group
from tests.tidy.tree import ROOT
from tests.waiting import eventually

pytestmark = pytest.mark.crash

COUNT = 20
VALUES = sorted(b"%d" % i for i in range(COUNT))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with eosdb.connect(tmp_path / "a.db") as db:
        db.admin.create_topic("in", 2)
        db.admin.create_topic("out")
        with db.producer() as producer:
            for i in range(COUNT):
                producer.send("in", b"%d" % i, partition=i % 2)
    return tmp_path / "a.db"


@contextlib.contextmanager
def worker(path: Path, kind: str, ending: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.crash.open_transaction_worker", str(path), kind, ending]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def states(db: eosdb.Database) -> list[str]:
    return [listing.state for listing in db.broker.list_transactions()]


def pending(db: eosdb.Database) -> int:
    ((count,),) = db.query("SELECT count(*) FROM pending_group_offsets").rows
    return int(count)


def check_read_once(db: eosdb.Database) -> None:
    rows = db.query("SELECT value FROM committed_records WHERE topic = 'out'").rows
    assert sorted(value for (value,) in rows) == VALUES
    assert db.verify().ok


def test_what_a_dead_loop_by_hand_left_pending_is_waited_for_and_read(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with worker(path, "by-hand", "dies") as process:
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    with eosdb.connect(path) as db, caplog.at_level(logging.WARNING, "eosdb.client"):
        assert pending(db) == 2
        db.processor("in", handle, "out", **SETTINGS).run(until_idle_ms=100)
        check_read_once(db)
    assert f"which has not ended, holds {COUNT} unread records in in-0, in-1" in caplog.text


def test_the_transaction_of_a_dead_processor_is_aborted_by_those_who_write(path: Path) -> None:
    with eosdb.connect(path) as db:
        with worker(path, "processor", "dies") as process:
            assert process.wait(PATIENCE_S) == -signal.SIGKILL
        assert states(db) == ["Ongoing"]
        assert pending(db) == 2
        db.processor("in", handle, "out", **SETTINGS).run(until_idle_ms=100)
        assert set(states(db)) <= {"CompleteAbort", "CompleteCommit"}
        check_read_once(db)


def test_that_of_a_stopped_processor_is_let_be_until_it_dies(path: Path, tmp_path: Path) -> None:
    with contextlib.closing(Group(tmp_path / "a.db")) as group:
        group.start("looks")
        group.start("dies")
        group.until(looks=3, dies=3)
        with worker(path, "processor", "waits") as process:
            eventually(lambda: pending(group.db) == 2, lambda: f"{pending(group.db)} are pending")
            group.processes["works"] = process
            group.stop("works")
            # Another one's death is noticed: so everybody has been looked at.
            group.signal("dies", signal.SIGKILL)
            group.until(looks=6)
            assert states(group.db) == ["Ongoing"]
            group.signal("works", signal.SIGKILL)
            # Nobody writes; the one that waits looks.
            eventually(lambda: states(group.db) == ["CompleteAbort"], lambda: str(states(group.db)))
        assert pending(group.db) == 0
    with eosdb.connect(path) as db:
        db.processor("in", handle, "out", **SETTINGS).run(until_idle_ms=100)
        check_read_once(db)
