"""A process that has a file open forks, in every everyday form: nothing acknowledged is lost, and
nobody hangs.

SQLite remembers in the process which locks it holds, and a child inherits that memory without the
locks. Where a connection cannot be closed before the fork, the child is refused the file.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb.store.file.file_system import LOCKS
from tests.chaos.fork_worker import FORMS, KILLED, TP
from tests.concurrency.test_closing import in_a_forked_child
from tests.programs import ended
from tests.readers import committed_values
from tests.tidy.tree import ROOT

pytestmark = [
    pytest.mark.crash,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
BATCH = eosdb.RecordBatch([eosdb.Record(value=b"v")])


@pytest.fixture
def path(db_path: Path) -> Path:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
    return db_path


@pytest.mark.parametrize("form", FORMS)
def test_what_parents_and_children_acknowledged_is_there_once(
    path: Path, form: str, seeds: list[int]
) -> None:
    for _ in seeds:
        done = ended(
            [sys.executable, "-W", "ignore", "-m", "tests.chaos.fork_worker", form, path], cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
    acknowledged = Path(f"{path}.acknowledged").read_text().splitlines()
    assert len(acknowledged) > 20
    with eosdb.connect(path) as db:
        stored = Counter(v.decode() for v in committed_values(db, TP) if v)
        unsaid = stored - Counter(acknowledged)
        assert stored == Counter(acknowledged) + unsaid
        killed = Counter(value.partition(".")[0] for value in unsaid.elements())
        assert all(name.startswith(KILLED) and n <= len(seeds) for name, n in killed.items())
        assert db.verify().ok


def test_before_a_fork_every_connection_is_closed_and_afterwards_opened_when_it_is_needed(
    path: Path,
) -> None:
    with eosdb.connect(path) as db:
        db.broker.append(TP, BATCH)
        db.broker.fetch(TP, 0)
        with db.engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1")
        in_a_forked_child(lambda: check_open(path, 0))
        check_open(path, 0)
        assert db.broker.append(TP, BATCH).base_offset == 1
        check_open(path, 1)


def check_open(path: Path, at_least: int) -> None:
    found = [
        target
        for target in (os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.exists())
        if target.startswith(str(path)) and not target.endswith(LOCKS)
    ]  # fmt: skip
    assert len(found) >= at_least if at_least else found == []


def in_a_block(db: eosdb.Database, fork: Callable[[], None]) -> None:
    with db.begin() as tx:
        tx.publish("t", b"kept")
        fork()


def with_a_connection_of_ones_own(db: eosdb.Database, fork: Callable[[], None]) -> None:
    own = sqlite3.connect(db.path)
    own.execute("SELECT count(*) FROM records").fetchone()
    fork()
    own.close()


def with_the_engine_in_use(db: eosdb.Database, fork: Callable[[], None]) -> None:
    with db.engine.connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM records").fetchone()
        fork()


@pytest.mark.parametrize(
    "use",
    [in_a_block, with_a_connection_of_ones_own, with_the_engine_in_use],
    ids=lambda use: use.__name__,
)
def test_a_child_is_refused_a_file_that_was_in_use_at_the_fork(
    path: Path, use: Callable[[eosdb.Database, Callable[[], None]], None]
) -> None:
    def work() -> None:
        for read_only in (False, True):
            with pytest.raises(eosdb.IllegalStateError, match="spawn"):
                eosdb.connect(path, read_only=read_only)
        with eosdb.connect(path.with_name("another.db")) as other:
            other.admin.create_topic("t")

    with eosdb.connect(path) as db:
        use(db, lambda: in_a_forked_child(work))
        before = db.broker.offsets(TP).log_end_offset
        assert db.broker.append(TP, BATCH).base_offset == before
        assert db.verify().ok


def test_a_fork_that_python_is_not_told_of_is_refused_the_file(path: Path) -> None:
    """In a process with one thread: a child would wait for ever for another that asks for Python's lock."""
    code = "import sys; from tests.chaos.test_forks import fork_in_c; fork_in_c(sys.argv[1])"
    done = ended([sys.executable, "-c", code, path], cwd=ROOT)
    assert done.returncode == 0, done.stderr


def fork_in_c(path: str) -> None:
    with eosdb.connect(path) as db:
        db.broker.append(TP, BATCH)
        child = ctypes.PyDLL(None).fork()
        if child == 0:
            status = 1
            try:
                for call in (lambda: db.broker.append(TP, BATCH), lambda: eosdb.connect(path)):
                    with pytest.raises(eosdb.IllegalStateError, match="fork"):
                        call()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert db.broker.append(TP, BATCH).base_offset == 1


def test_a_fork_does_not_wait_for_ever_for_somebody_who_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eosdb.store.file.forking._PATIENCE_S", 0.05)

    def work() -> None:
        with pytest.raises(eosdb.IllegalStateError, match="in use"):
            eosdb.connect(path)

    with eosdb.connect(path) as db, eosdb.connect(path) as other, db.begin():
        in_a_forked_child(work)
        assert other.broker.fetch(TP, 0).high_watermark == 0
    with eosdb.connect(path) as db:
        assert db.verify().ok


@pytest.mark.real_start
def test_a_signal_handler_that_forks_amid_a_fork_neither_waits_nor_disturbs_it(path: Path) -> None:
    """Wherever the signal comes: before each of what is closed for the outer fork, and opened behind it."""
    done = ended([sys.executable, "-W", "ignore", "-c", FORKS_IN_FORKS, path], cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["child"] * 9), done.stderr
    with eosdb.connect(path) as db:
        assert len(committed_values(db, TP)) == 6
        assert db.verify().ok


FORKS_IN_FORKS = """
import concurrent.futures.thread  # Its own lock is taken behind ours then, and not around them.
import os, signal, sys
import eosdb
from eosdb.store.file import forking
from tests.chaos.test_forks import BATCH, TP

class Struck:
    def pause(self, patience_s):
        signal.raise_signal(signal.SIGUSR1)
        return True

    def go_on(self):
        signal.raise_signal(signal.SIGUSR1)

def fork(work):
    child = os.fork()
    if child == 0:
        work()
        os.write(1, b"child\\n")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

def store():
    with eosdb.connect(sys.argv[1]) as db:
        db.broker.append(TP, BATCH)

struck = Struck()
signal.signal(signal.SIGUSR1, lambda *_: fork(lambda: None))
with eosdb.connect(sys.argv[1]) as db, db.serve():
    forking.rests(struck)
    for _ in range(3):
        fork(store)
        db.broker.append(TP, BATCH)
"""
