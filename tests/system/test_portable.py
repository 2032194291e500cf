"""The portable road by itself: a file for each lock and each owner, and the mounts that `mount` lists."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from eosdb.system import portable
from eosdb.system.lock_file import QUEUE, WRITER
from eosdb.system.mount import Mount

LINUX = """\
/dev/vda on / type ext4 (rw,relatime)
proc on /proc type proc (rw)
/dev/vdb on /srv/my data (1) type xfs (rw,noatime) [data]
files:/export/home on /home type nfs4 (rw,vers=4.2)
/dev/vda on /app/shop.db type ext4 (rw,relatime)
"""
MACOS = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse)
map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)
//me@files/share on /Volumes/My Share (smbfs, nodev, nosuid, mounted by me)
files:/export on /private/mnt (nfs)
"""


@pytest.mark.parametrize(
    ("text", "folder", "type_", "source", "is_shared"),
    [
        (LINUX, "/var/lib", "ext4", "/dev/vda", False),
        (LINUX, "/srv/my data (1)", "xfs", "/dev/vdb", False),
        (LINUX, "/home/me", "nfs4", "files:/export/home", True),
        (LINUX, "/homes/me", "ext4", "/dev/vda", False),
        (MACOS, "/Users/me", "apfs", "/dev/disk3s1s1", False),
        (MACOS, "/System/Volumes/Data/x", "apfs", "/dev/disk3s5", False),
        (MACOS, "/Volumes/My Share", "smbfs", "//me@files/share", True),
        (MACOS, "/private/mnt/x", "nfs", "files:/export", True),
    ],
)
def test_what_mount_lists_tells_the_file_system_of_a_folder(
    text: str, folder: str, type_: str, source: str, is_shared: bool
) -> None:
    mounts = portable.listed_mounts(text)
    assert len(mounts) == len(text.splitlines())
    found = portable.find_mount(mounts, folder)
    assert found is not None
    assert (found.type, found.source, found.is_shared) == (type_, source, is_shared)


def test_a_file_that_is_mounted_by_itself_is_listed() -> None:
    assert ("/app/shop.db", Mount("ext4", "/dev/vda", "rw,relatime")) in portable.listed_mounts(
        LINUX
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "x.db-lock")


def owner_files(path: str) -> list[str]:
    return list(portable._owner_files(path))


def test_both_locks_are_released_by_one_call(path: str) -> None:
    one, other = portable.writer_locks(path), portable.writer_locks(path)
    release = one.releaser()
    for _ in range(3):
        assert one.try_lock(QUEUE)
        assert one.try_lock(WRITER)
        assert not other.try_lock(QUEUE)
        assert not other.try_lock(WRITER)
        release()
        for lock in (QUEUE, WRITER):
            assert other.try_lock(lock)
            other.unlock(lock)
    for file in (*one.files, *other.files):
        file.close()


def test_the_file_of_an_owner_that_died_is_removed_by_whoever_looks(path: str) -> None:
    locks, dies, lives = (
        portable.writer_locks(path),
        portable.owner_file(path),
        portable.owner_file(path),
    )
    dies.hold(7, 3)
    lives.hold(100, 1)
    assert locks.is_owned(9)
    dies._file.close()  # As the kernel does it.
    assert len(owner_files(path)) == 2
    assert not locks.is_owned(9)
    assert owner_files(path) == [lives._file.path]
    assert locks.is_owned(100)
    lives.close()
    assert not locks.is_owned(100)
    assert owner_files(path) == []


def test_the_place_of_a_dropped_number_is_used_again(path: str) -> None:
    owners = portable.owner_file(path)
    for number in range(100):
        owners.hold(number, 1)
        owners.hold(1_000 + number, 2)
        owners.drop(number, 1)
    assert os.path.getsize(owners._file.path) == 101 * 16
    owners.close()


def test_what_a_full_disk_does_not_take_is_dropped_by_the_next_call(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners, locks = portable.owner_file(path), portable.writer_locks(path)
    for number in (1, 2, 3):
        owners.hold(number, 1)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        owners.drop(1, 1)
        owners.drop(2, 1)
    assert [locks.is_owned(number) for number in (1, 2, 3)] == [True, True, True]
    owners.drop(3, 1)
    assert [locks.is_owned(number) for number in (1, 2, 3)] == [False, False, False]
    owners.close()


def test_an_owner_whose_file_was_removed_before_it_was_locked_makes_another(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, opened = fcntl.flock, list[str]()

    def late(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not opened:
            opened.extend(owner_files(path))
            assert not portable._has(opened[0], 1)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    owners, locks = portable.owner_file(path), portable.writer_locks(path)
    owners.hold(1, 1)
    assert owner_files(path) == [owners._file.path] != opened
    assert locks.is_owned(1)
    owners.close()
