"""The kernel reports writes to no more files than it has inotify instances (often 128 for a user): beyond
them, as where a file can be watched no more, a wait looks by itself."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.store.file import watch
from eosdb.system import linux

TP = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def _no_watch_of_other_tests() -> None:
    gc.collect()
    for idle in list(watch._idle):
        watch.end_idle(idle.path)


class NoInstance:
    """As the C library when the instances are used up."""

    def inotify_init1(self, flags: int) -> int:
        return -1


class NoWatch:
    """And when the watches are."""

    def inotify_init1(self, flags: int) -> int:
        return int(ctypes.CDLL(None).inotify_init1(flags))

    def inotify_add_watch(self, descriptor: int, path: bytes, events: int) -> int:
        return -1


@pytest.mark.slow
@pytest.mark.parametrize("libc", [NoInstance, NoWatch, object])
def test_without_a_notice_of_the_kernel_a_wait_ends_with_the_commit_all_the_same(
    db_path: Path, libc: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = instances()
    waited, wait = threading.Event(), watch.Watch.wait

    def told(self: watch.Watch, timeout_ms: int) -> bool:
        waited.set()
        return wait(self, timeout_ms)

    monkeypatch.setattr(linux, "_libc", libc())
    monkeypatch.setattr(watch.Watch, "wait", told)
    with eosdb.connect(db_path) as db, eosdb.connect(db_path) as other:
        db.admin.create_topic("t")
        consumer = db.consumer()
        consumer.assign([TP])

        def send() -> None:
            waited.wait()
            other.producer().send("t", b"v").result()

        sending = threading.Thread(target=send)
        sending.start()
        (record,) = consumer.poll(3_600_000)
        assert record.value == b"v"
        sending.join()
        assert instances() <= before


def instances() -> int:
    """How many this process has open."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return links.count("anon_inode:inotify")


def test_a_wait_takes_over_the_watch_of_the_wait_before(db_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        consumer = db.consumer()
        consumer.assign([TP])
        before = instances()
        for _ in range(3):
            consumer.poll(100)  # So long that it waits on a busy machine, too.
        assert instances() == before + 1
    assert instances() == before


def test_a_wait_that_ends_after_the_database_was_closed_leaves_no_watch(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = instances()
    db = eosdb.connect(db_path)
    waiting = db._store.watch()
    db.close()
    assert instances() == before + 1
    db._store.left(waiting)
    assert instances() == before


def test_no_more_watches_stay_idle_than_a_process_may_have(tmp_path: Path) -> None:
    before, most = instances(), watch._MOST_IDLE
    paths = [tmp_path / f"{number}" for number in range(most + 5)]
    for path in paths:
        path.touch()
        watch.watch(str(path)).close()
    assert instances() == before + most
    for path in paths:
        watch.end_idle(str(path))
    assert instances() == before


@pytest.mark.parametrize("is_kept_open", [True, False])
def test_a_file_that_is_made_anew_is_watched_anew(tmp_path: Path, is_kept_open: bool) -> None:
    """The new file often gets the old one's inode, if no one has the old one open any longer."""
    path = tmp_path / "wal"
    with path.open("w"):
        watch.watch(str(path)).close()
        path.unlink()
        if is_kept_open:
            path.touch()
    path.touch()
    with watch.watch(str(path)) as again:
        path.write_text("written")
        assert again.wait(60_000)
    watch.end_idle(str(path))


def test_a_notice_from_before_a_wait_does_not_end_it(tmp_path: Path) -> None:
    path = tmp_path / "wal"
    path.touch()
    watch.watch(str(path)).close()
    path.write_text("before")
    with watch.watch(str(path)) as again:
        assert not again.wait(1)
    watch.end_idle(str(path))


@pytest.mark.process
def test_a_forked_child_watches_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "wal"
    path.touch()
    watch.watch(str(path)).close()
    before = instances()
    if (child := os.fork()) == 0:
        os._exit(instances() != before - 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert instances() == before
    watch.end_idle(str(path))
