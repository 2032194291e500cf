"""Long work tells how far it is, and ends, undone, with what a listener raises."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import Progress, TopicPartition
from eosdb.maintenance import copies
from eosdb.store.readers import Readers
from tests.readers import committed_values, dump_state

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)
Work = Callable[[eosdb.Database, Path, Progress | None], object]

WORKS: dict[str, Work] = {
    "verify": lambda db, _, tell: db.verify(on_progress=tell),
    "rebuild": lambda db, _, tell: db.rebuild(on_progress=tell),
    "backup": lambda db, folder, tell: db.backup(folder / "copy.db", on_progress=tell),
    "restore": lambda db, folder, tell: db.restore_to(folder / "copy.db", 120, on_progress=tell),
    "housekeeping": lambda db, _, tell: db.housekeeping(on_progress=tell),
    "stats": lambda db, _, tell: db.admin.stats(on_progress=tell),
}
every_work = pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)


class Interrupt(BaseException):
    """Like Ctrl-C: nothing that handles errors may handle it."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of more than two hundred events, to be copied."""
    path = tmp_path_factory.mktemp("made") / "test.db"
    clock = eosdb.ManualClock(1_700_000_000_000)
    with eosdb.connect(path, clock=clock, durability="off") as db:
        db.admin.create_topic("t")
        db.admin.create_topic("c", config={"cleanup.policy": "compact"}, partitions=2)
        producer = db.producer()
        for i in range(150):
            producer.send("t", f"{i}")
            producer.send("c", f"{i}", key="k", partition=i % 2)
    return path


@pytest.fixture
def filled(
    made: Path, db_path: Path, clock: eosdb.ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[eosdb.Database]:
    """Its pages are copied ten at a time."""
    monkeypatch.setattr(copies, "_PAGES_A_STEP", 10)
    shutil.copy(made, db_path)
    with eosdb.connect(db_path, clock=clock, durability="normal") as db:
        yield db


@every_work
def test_what_is_told_begins_with_nothing_grows_and_ends_with_all(
    filled: eosdb.Database, tmp_path: Path, work: Work
) -> None:
    told: list[tuple[int, int]] = []
    work(filled, tmp_path, lambda done, total: told.append((done, total)))
    assert len(told) > 2
    assert {total for _, total in told} == {told[0][1]}
    assert told[0][0] == 0
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 0


def test_what_is_counted(filled: eosdb.Database, tmp_path: Path) -> None:
    totals: dict[str, int] = {}
    events, pages = last_position(filled), 0
    for name, work in WORKS.items():
        work(filled, tmp_path, lambda _, total, name=name: totals.update({name: total}))  # type: ignore[misc]
        if name == "backup":
            pages = os.path.getsize(tmp_path / "copy.db") // 4096
            os.unlink(tmp_path / "copy.db")
    assert totals == {
        "verify": events,
        "rebuild": events,
        "backup": pages,
        "restore": pages + 120 + pages,
        "housekeeping": 150,
        "stats": totals["stats"],
    }
    journal = filled.admin.stats().bytes_of("journal", "journal index") // 4096
    ((used,),) = filled.query(
        "SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count"
    ).rows
    assert totals["stats"] == used + journal, "the journal is read twice"


@every_work
def test_nobody_needs_to_listen(filled: eosdb.Database, tmp_path: Path, work: Work) -> None:
    assert filled.verify().ok
    work(filled, tmp_path, None)
    assert filled.verify().ok


ERRORS = (
    TypeError("t"), sqlite3.OperationalError("s"), OSError(28, "o"), KeyboardInterrupt(), Interrupt(),
)  # fmt: skip


@every_work
@pytest.mark.parametrize("when", ["at first", "in the middle", "at the end"])
def test_what_a_listener_raises_ends_the_work_and_leaves_nothing(
    filled: eosdb.Database, tmp_path: Path, db_path: Path, work: Work, when: str
) -> None:
    filled.housekeeping()
    before, files = dump_state(db_path), set(os.listdir(tmp_path))
    due: dict[str, Callable[[int, int], bool]] = {
        "at first": lambda done, total: True,
        "in the middle": lambda done, total: 0 < done < total,
        "at the end": lambda done, total: done == total,
    }
    for error in ERRORS:

        def tell(done: int, total: int, error: BaseException = error) -> None:
            if due[when](done, total):
                raise error

        with pytest.raises(type(error)) as caught:
            work(filled, tmp_path, tell)
        assert caught.value is error
        assert dump_state(db_path) == before
        assert set(os.listdir(tmp_path)) == files
    filled.producer().send("t", "and on it goes")
    assert filled.verify().ok


@pytest.mark.parametrize("name", ["backup", "restore"])
def test_who_writes_between_two_steps_of_a_copy_does_not_get_into_it(
    filled: eosdb.Database, tmp_path: Path, db_path: Path, name: str
) -> None:
    before = committed_values(filled, TP)[:150]
    told: list[int] = []
    with eosdb.connect(db_path, durability="off") as other:
        producer = other.producer()

        def tell(done: int, total: int) -> None:
            told.append(done)
            if len(told) < 20:  # A copy that begins anew with each write would never end.
                producer.send("t", b"later" * 1000)
                other._store.checkpoint()

        if name == "backup":
            filled.backup(tmp_path / "copy.db", on_progress=tell)
        else:
            filled.restore_to(tmp_path / "copy.db", last_position(filled), on_progress=tell)
    assert told == sorted(told), "the copy did not have to begin anew"
    with eosdb.connect(tmp_path / "copy.db") as copy:
        assert committed_values(copy, TP) == before
        assert copy.verify().ok


def last_position(db: eosdb.Database) -> int:
    position = db.info()["journal_position"]
    assert isinstance(position, int)
    return position


@pytest.mark.parametrize(
    "act",
    [lambda db: db.producer().send("t", "x").result(), lambda db: db.close()],
    ids=["write", "close"],
)
def test_a_listener_of_a_rebuild_that_writes_or_closes_is_refused_rather_than_waited_for(
    filled: eosdb.Database, act: Callable[[eosdb.Database], Any]
) -> None:
    with pytest.raises(eosdb.IllegalStateError, match="in the middle of a write"):
        filled.rebuild(on_progress=lambda done, total: act(filled))
    assert filled.producer().send("t", "afterwards").result().offset == 150


def test_an_interrupt_as_a_reader_comes_keeps_nobody_from_closing(
    filled: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Readers._check_out

    def interrupted(readers: Readers, reader: object) -> sqlite3.Connection:
        take(readers, reader)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Readers, "_check_out", interrupted)
        filled.verify()
    filled.close()


def test_an_empty_file_has_nothing_to_do(db: eosdb.Database) -> None:
    told: list[tuple[int, int]] = []
    db.housekeeping(on_progress=lambda *numbers: told.append(numbers))
    assert told == [(0, 0)]
