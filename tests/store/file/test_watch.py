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
    gc.collect()  # Other tests leave some.
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
