"""Two that come at once: on different roads, or to the file of an owner that has died."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from eosdb.errors import IllegalStateError
from eosdb.system import linux, portable
from eosdb.system.lock_file import LockFile, open_lock_file


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "x.db-lock")


@pytest.fixture
def one_and_other(path: str) -> Iterator[tuple[LockFile, LockFile]]:
    files = open_lock_file(path, LockFile), open_lock_file(path, LockFile)
    yield files
    for file in files:
        file.close()


@pytest.mark.parametrize("is_portable", [True, False])
def test_of_two_that_open_at_once_on_different_roads_not_both_are_let_in(
    one_and_other: tuple[LockFile, LockFile], monkeypatch: pytest.MonkeyPatch, is_portable: bool
) -> None:
    """The other comes after the first look of the one, and before its lock."""
    one, other = one_and_other
    look, has_come = linux._is_locked, list[bool]()

    def slow_look(file: LockFile, wanted: bytes) -> bool:
        found = look(file, wanted)
        if not has_come:
            has_come.append(True)
            linux.keep_out_other_road(other, is_portable=not is_portable)
        return found

    monkeypatch.setattr(linux, "_is_locked", slow_look)
    with pytest.raises(IllegalStateError, match="so their locks differ"):
        linux.keep_out_other_road(one, is_portable=is_portable)


@pytest.mark.parametrize("is_portable", [True, False])
def test_who_is_refused_was_in_nobodys_way(
    path: str, one_and_other: tuple[LockFile, LockFile], is_portable: bool
) -> None:
    one, other = one_and_other
    linux.keep_out_other_road(one, is_portable=is_portable)
    with pytest.raises(IllegalStateError):
        linux.keep_out_other_road(other, is_portable=not is_portable)
    # It has not closed its file yet.
    third = open_lock_file(path, LockFile)
    linux.keep_out_other_road(third, is_portable=is_portable)
    third.close()


def test_two_who_look_at_a_dead_owners_file_do_not_take_each_other_for_the_owner(
    path: str,
) -> None:
    dies, locks = portable.owner_file(path), portable.writer_locks(path)
    dies.hold(7, 1)
    dies._file.close()  # As the kernel does it.
    looks = os.open(dies._file.path, os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_SH)
    assert not locks.is_owned(7)
    os.close(looks)


def test_a_look_at_the_holder_of_a_lock_leaves_its_file(path: str) -> None:
    """Others wait for the lock of this very file."""
    locks = portable.writer_locks(path)
    files = {file.path for file in locks.files}
    for lock in (0, 1):
        assert portable.holders(path, [lock]) == []
        assert locks.try_lock(lock)
        assert portable.holders(path, [lock]) == [os.getpid()]
        locks.unlock(lock)
    assert all(map(os.path.exists, files))
    for file in locks.files:
        file.close()


def test_of_two_that_hold_one_number_at_once_at_least_one_is_refused(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other comes when the one has just found that nobody holds it."""
    one, other, has = portable.owner_file(path), portable.owner_file(path), portable._has
    refused = []

    def slow_look(name: str, number: int, count: int = 1) -> bool:
        found = has(name, number, count)
        monkeypatch.setattr(portable, "_has", has)
        try:
            other.hold(6, 3)
        except BlockingIOError:
            refused.append("other")
        return found

    monkeypatch.setattr(portable, "_has", slow_look)
    try:
        one.hold(5, 3)
    except BlockingIOError:
        refused.append("one")
    assert refused
    one.close()
    other.close()


def test_ranges_of_numbers_meet_if_they_share_one(path: str) -> None:
    mine, others = portable.owner_file(path), portable.owner_file(path)
    mine.hold(10, 5)
    for number, count in ((8, 2), (15, 1)):
        others.hold(number, count)
        others.drop(number, count)
    for number, count in ((9, 2), (14, 1), (12, 1), (0, 100)):
        with pytest.raises(BlockingIOError):
            others.hold(number, count)
    mine.drop(10, 5)
    locks = portable.writer_locks(path)
    assert not any(locks.is_owned(number) for number in range(100)), "what was refused is not held"
    mine.close()
    others.close()


def test_an_owner_that_is_closed_takes_its_file_along(path: str) -> None:
    owners = portable.owner_file(path)
    owners.hold(1, 1)
    assert os.path.exists(owners._file.path)
    owners.close()
    assert not os.path.exists(owners._file.path)
    owners.close()
