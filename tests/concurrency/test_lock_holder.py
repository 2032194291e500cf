"""Whoever waits in vain for the writer lock is told who holds it, and what to do when that process is
stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb.system.lock_file import QUEUE
from tests.concurrency.test_mutex import is_held
from tests.store.locked import go_on, start, worker

pytestmark = pytest.mark.crash

HASTY = eosdb.BrokerConfig(lock_timeout_ms=50)
STOPPED = "which is stopped: let it go on (kill -CONT) or end it"


@pytest.fixture
def path(db_path: Path) -> Path:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t", partitions=3)
    return db_path


def told(path: Path) -> str:
    """The error of somebody who wants to write and does not wait for long."""
    with pytest.raises(eosdb.DatabaseLockedError) as error:
        eosdb.connect(path, config=HASTY)
    return str(error.value)


def test_one_that_was_stopped_while_it_writes_is_said_to_be_stopped(path: Path) -> None:
    with worker(path, "suspend-writing") as holder:
        message = told(path)
        assert f"by process {holder.pid} (" in message
        assert STOPPED in message
    with eosdb.connect(path, config=HASTY) as db:
        assert db.verify().ok


@pytest.mark.real_start
def test_who_has_the_file_open_and_holds_no_lock_is_not_named(path: Path) -> None:
    """Not even one that is stopped, nor who waits as well."""
    with worker(path, "suspend") as idle, worker(path, "hold") as holder:
        waiting = start(path, "visit", 1)
        while not is_held(f"{path}-lock", QUEUE):
            pass
        message = told(path)
        assert f"held for 50 ms by process {holder.pid} (" in message
        assert "-m tests.concurrency.worker" in message, "its command"
        assert str(idle.pid) not in message
        assert str(waiting.pid) not in message
        assert "stopped" not in message
        go_on(holder)
        go_on(waiting)


def test_a_writer_that_is_open_already_is_told_the_same(path: Path) -> None:
    with eosdb.connect(path, config=HASTY) as db, worker(path, "suspend-writing") as holder:
        with pytest.raises(eosdb.DatabaseLockedError, match=f"process {holder.pid} .*kill -CONT"):
            db.broker.init_producer_id("a")
        with (
            pytest.raises(eosdb.DatabaseLockedError, match=f"process {holder.pid} .*kill -CONT"),
            db.begin(),
        ):
            pass
