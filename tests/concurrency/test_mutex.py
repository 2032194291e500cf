"""The writer mutex by itself: fair, bounded, gone with its process, and not inherited."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.store.file.locks import WriterMutex
from eosdb.system.lock_file import QUEUE, WRITER
from eosdb.system.road import road

pytestmark = [
    pytest.mark.crash,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@pytest.fixture
def lock_file(tmp_path: Path) -> str:
    return str(tmp_path / "x.db-lock")


@pytest.fixture
def one(lock_file: str) -> Iterator[WriterMutex]:
    mutex = WriterMutex(lock_file, 60_000)
    yield mutex
    mutex.close()


def is_held(path: str, lock: int) -> bool:
    """Whether somebody holds the lock, asked without taking it from anybody."""
    descriptor = os.open(path + (road.LOCK_FILES[lock] if road.LOCK_FILES else ""), os.O_RDWR)
    try:
        if road.LOCK_FILES:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            return True
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, lock, 1, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
        return int(struct.unpack("hhqqi4x", answer)[0]) != fcntl.F_UNLCK
    finally:
        os.close(descriptor)


def waiters() -> int:
    return sum(thread.name == "eosdb-writer-lock" for thread in threading.enumerate())


def until_somebody_waits(path: str) -> None:
    """In the queue, that is, and not just trying whether there is one."""
    while not (waiters() and is_held(path, QUEUE)):
        pass


def test_who_lets_go_cannot_overtake_who_waits(one: WriterMutex, lock_file: str) -> None:
    for _ in range(20):
        order: list[str] = []
        one.acquire()

        def wait(order: list[str] = order) -> None:
            other = WriterMutex(lock_file, 60_000)
            other.acquire()
            order.append("waiting")
            other.release()
            other.close()

        waiting = threading.Thread(target=wait)
        waiting.start()
        until_somebody_waits(lock_file)
        one.release()
        one.acquire()
        order.append("letting go")
        one.release()
        waiting.join()
        while waiters():
            pass
        assert order == ["waiting", "letting go"]


def test_who_gave_up_waiting_leaves_nothing_behind(one: WriterMutex, lock_file: str) -> None:
    hasty = WriterMutex(lock_file, 10)
    one.acquire()
    for _ in range(3):
        with pytest.raises(eosdb.DatabaseLockedError, match="10 ms"):
            hasty.acquire()
    one.release()
    patient = WriterMutex(lock_file, 60_000)
    patient.acquire()
    patient.release()
    hasty.close()
    patient.close()
    while is_held(lock_file, QUEUE) or is_held(lock_file, WRITER):
        pass


def test_two_databases_of_one_process_exclude_each_other(one: WriterMutex, lock_file: str) -> None:
    one.acquire()
    other = WriterMutex(lock_file, 0)
    with pytest.raises(eosdb.DatabaseLockedError):
        other.acquire()
    other.close()
    assert is_held(lock_file, WRITER), "closing another descriptor drops nothing"
    one.release()
    while is_held(lock_file, WRITER):
        pass  # The other's thread, which was told too late, may get it for an instant.


@pytest.mark.parametrize("waiting", [False, True], ids=["held", "waited for"])
def test_a_forked_child_keeps_no_lock_alive(
    one: WriterMutex, lock_file: str, waiting: bool
) -> None:
    """The child lives on while the parent's descriptors are closed without unlocking, as by SIGKILL."""
    blocker = WriterMutex(lock_file, 60_000)
    taker = threading.Thread(target=one.acquire)
    if waiting:
        blocker.acquire()
    taker.start()
    if waiting:
        until_somebody_waits(lock_file)
    else:
        taker.join()
    read_end, write_end = os.pipe()
    running_read, running_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.write(running_write, b"!")
        os.read(read_end, 1)
        os._exit(0)
    os.close(read_end)
    os.read(running_read, 1)
    if waiting:
        blocker.release()
        taker.join()
    one.close()
    assert not is_held(lock_file, WRITER)
    for descriptor in (write_end, running_read, running_write):
        os.close(descriptor)
    os.waitpid(child, 0)
    blocker.close()
