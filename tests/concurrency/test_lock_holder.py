"""Whoever waits in vain for the writer lock is told who holds it, and what to do when that process is
stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.system.road import QUEUE
from tests.concurrency.test_mutex import is_held
from tests.concurrency.test_processes import start

pytestmark = pytest.mark.crash

HASTY = eosdb.BrokerConfig(lock_timeout_ms=50)
STOPPED = "which is stopped: let it go on (kill -CONT) or end it"


@pytest.fixture
def path(db_path: Path) -> Path:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t", partitions=3)
    return db_path


@pytest.fixture
def child(path: Path) -> Iterator[Callable[[str, str], subprocess.Popen[str]]]:
    """Starts a program in a mode of the worker, and returns when it has said a word."""
    children = []

    def begin(mode: str, word: str) -> subprocess.Popen[str]:
        made = start(path, mode)
        children.append(made)
        assert made.stdout is not None
        assert made.stdout.readline() == f"{word}\n"
        return made

    yield begin
    for made in children:
        made.send_signal(signal.SIGCONT)
        _, errors = made.communicate()
        assert made.returncode == 0, errors


def told(path: Path) -> str:
    """The error of somebody who wants to write and does not wait for long."""
    with pytest.raises(eosdb.DatabaseLockedError) as error:
        eosdb.connect(path, config=HASTY)
    return str(error.value)


def until_it_stands(child: subprocess.Popen[str]) -> None:
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)


Start = Callable[[str, str], "subprocess.Popen[str]"]


def test_who_holds_the_lock_is_named(path: Path, child: Start) -> None:
    holder = child("hold", "held")
    message = told(path)
    assert f"held for 50 ms by process {holder.pid} (" in message
    assert "-m tests.concurrency.worker" in message, "its command"
    assert "stopped" not in message
    assert "not written" in message


def test_one_that_was_stopped_while_it_writes_is_said_to_be_stopped(
    path: Path, child: Start
) -> None:
    holder = child("suspend-writing", "stopping")
    until_it_stands(holder)
    message = told(path)
    assert f"by process {holder.pid} (" in message
    assert STOPPED in message
    holder.send_signal(signal.SIGCONT)
    holder.wait()
    with eosdb.connect(path, config=HASTY) as db:
        assert db.verify().ok


def test_who_has_the_file_open_and_holds_no_lock_is_not_named(path: Path, child: Start) -> None:
    """Not even one that is stopped, nor who waits as well."""
    idle = child("suspend", "stopping")
    until_it_stands(idle)
    holder = child("hold", "held")
    waiting = start(path, "visit", 1)
    while not is_held(f"{path}-lock", QUEUE):
        pass
    message = told(path)
    assert f"by process {holder.pid} (" in message
    assert str(idle.pid) not in message
    assert str(waiting.pid) not in message
    assert STOPPED not in message
    holder.communicate()
    waiting.communicate()
    assert waiting.returncode == 0


def test_a_writer_that_is_open_already_is_told_the_same(path: Path, child: Start) -> None:
    with eosdb.connect(path, config=HASTY) as db:
        holder = child("suspend-writing", "stopping")
        until_it_stands(holder)
        with pytest.raises(eosdb.DatabaseLockedError, match=f"process {holder.pid} .*kill -CONT"):
            db.broker.init_producer_id("a")
        with (
            pytest.raises(eosdb.DatabaseLockedError, match=f"process {holder.pid} .*kill -CONT"),
            db.begin(),
        ):
            pass


def test_another_database_of_this_process_is_named_as_such(path: Path) -> None:
    with (
        eosdb.connect(path) as db,
        eosdb.connect(path, config=HASTY) as hasty,
        db.begin(),
        pytest.raises(eosdb.DatabaseLockedError, match=f"by this process {os.getpid()} "),
    ):
        hasty.broker.init_producer_id("a")
