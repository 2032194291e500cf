"""What one thread, database or process learns of another: whose turn it is, that a sync has failed, that
nobody waits for a lock any more."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.store import wal
from eosdb.store.file import locks
from eosdb.store.file.locks import WriterMutex, sync_has_failed
from eosdb.store.writing.group_commit import GroupCommit, UnitRequest
from eosdb.system.lock_file import WRITER
from eosdb.system.road import road


def nothing(_: object) -> None: ...


class Rounds:
    """The rounds that a group runs."""

    def __init__(self) -> None:
        self.batches: list[list[UnitRequest]] = []

    def run(self, batch: list[UnitRequest]) -> None:
        self.batches.append(batch)
        for request in batch:
            request.done = True


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_round_ends_before_the_first_block_that_waits_for_its_turn(before: int) -> None:
    rounds = Rounds()
    group = GroupCommit(rounds.run)
    asked = [UnitRequest(nothing, True) for _ in range(before)]
    block, later = UnitRequest(nothing, False, alone=True), UnitRequest(nothing, True)
    for request in (*asked, block, later):
        group._append(request)
    group._run_next_round()
    assert rounds.batches == [asked]
    assert not block.done
    assert not later.done


def test_who_comes_behind_a_block_does_not_lead_before_it() -> None:
    group = GroupCommit(Rounds().run)
    block, later = UnitRequest(nothing, False, alone=True), UnitRequest(nothing, True)
    earlier = UnitRequest(nothing, True)
    for request in (earlier, block, later):
        group._append(request)
    assert group._may_lead(earlier)
    assert group._may_lead(later), (
        "in front of the block another request still waits: they share a round"
    )
    assert not group._may_lead(block)
    earlier.done = True
    assert group._may_lead(block)
    assert not group._may_lead(later)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "x.db-lock")


@pytest.fixture
def two(path: str) -> Iterator[tuple[WriterMutex, WriterMutex]]:
    both = WriterMutex(path, 60_000), WriterMutex(path, 60_000)
    yield both
    for mutex in both:
        mutex.close()


def test_a_failed_sync_is_known_to_everybody_until_it_is_made_good(
    path: str, two: tuple[WriterMutex, WriterMutex]
) -> None:
    for one, other in (two, two[::-1]):
        one.note_sync(failed=True)
        assert one.has_sync_failed()
        assert other.has_sync_failed()
        assert sync_has_failed(path.removesuffix("-lock"))
        other.note_sync(failed=False)
        assert not other.has_sync_failed()
        assert not sync_has_failed(path.removesuffix("-lock"))
        one.note_sync(failed=False)


def test_a_failed_sync_that_cannot_be_noted_is_remembered(
    two: tuple[WriterMutex, WriterMutex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that refuses the sync may refuse the note, too."""

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "on purpose")

    one, other = two
    monkeypatch.setattr(os, "pwrite", fail)
    one.note_sync(failed=True)
    monkeypatch.undo()
    assert one.has_sync_failed()
    other.note_sync(failed=False)  # It knows nothing of this failure.
    assert one.has_sync_failed()
    one.note_sync(failed=False)
    assert not one.has_sync_failed()


def test_a_lock_that_comes_when_nobody_waits_any_more_is_let_go(
    path: str, two: tuple[WriterMutex, WriterMutex]
) -> None:
    one, other = two
    late = road.writer_locks(path)
    waiter = locks._Waiter(path, one._exchange)
    assert not waiter.wait(0)
    late.lock(WRITER)
    waiter._hand_over(late)
    assert all(file.closed for file in late.files)
    other.acquire(0)
    other.release()
    one.acquire(0)
    one.release()


@pytest.mark.parametrize(
    ("last_ms", "every_ms", "begins", "is_known"),
    [
        (1_000, 10, True, True),
        (999, 11, True, True),
        (999, 12, False, True),
        (1_010, 12, False, True),
        (10**15, 12, True, False),
        (0, 12, True, True),
    ],
)
def test_a_round_begins_after_its_interval_and_never_waits_for_a_clock_that_was_wrong(
    two: tuple[WriterMutex, WriterMutex], last_ms: int, every_ms: int, begins: bool, is_known: bool
) -> None:
    one, other = two
    now_ms = 1_010
    one.begin_round(last_ms, 0)
    before = other.begin_round(now_ms, every_ms)
    assert before == ((is_known, now_ms) if begins else (False, last_ms))


def test_a_renewed_log_is_synced_after_it_was_written(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And read back from the disk, not from memory, after that."""
    done: list[str] = []

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*given: Any) -> Any:
            done.append(name)
            return call(*given)

        return noting

    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("t")
        with db._store.read() as connection, monkeypatch.context() as patch:
            connection.execute("SELECT 1 FROM topics").fetchone()
            patch.setattr(os, "pwrite", noted("write", os.pwrite))
            patch.setattr(road, "sync", noted("sync", road.sync))
            patch.setattr(road, "drop_cached", noted("drop", road.drop_cached))
            wal.renew(str(db_path))
    assert done[-2:] == ["sync", "drop"]
    assert set(done[:-2]) == {"write"}
