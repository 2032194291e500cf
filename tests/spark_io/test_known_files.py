"""Files that have not changed are not opened again; those that may have are."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest

import eosdb
from eosdb import ManualClock
from eosdb.admin import summary
from eosdb.admin.summary import stamp_of
from eosdb.errors import CorruptDatabaseError, DatabaseNotFoundError
from eosdb.spark_io.planning import known_files
from eosdb.spark_io.planning.cut import Lens
from eosdb.spark_io.planning.known_files import KnownFiles, MarksOf, in_parallel, in_processes
from eosdb.spark_io.planning.options import parse
from tests.spark_io.making import append, make


class Content(NamedTuple):
    file_id: str
    mark: str
    asked: Collection[str]


class Looks:
    """A look that reads a text file, and notes which were opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def __call__(self, path: str, marks_of: MarksOf) -> Content:
        self.opened.append(os.path.basename(path))
        if not os.path.exists(path):
            raise DatabaseNotFoundError(path)
        text = Path(path).read_text()
        if text == "damaged":
            raise CorruptDatabaseError(path)
        return Content(f"id of {path}", text, marks_of(f"id of {path}"))

    def taken(self) -> list[str]:
        found, self.opened = sorted(self.opened), []
        return found


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def clock(tmp_path: Path) -> ManualClock:
    """An hour later than the files."""
    return ManualClock(start_ms=int(os.stat(tmp_path).st_mtime * 1_000) + 3_600_000)


@pytest.fixture
def known(looks: Looks, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> KnownFiles[Content]:
    monkeypatch.setattr(known_files, "_AGAIN", 0)
    return KnownFiles(looks, clock)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    found = [str(tmp_path / f"{name}.db") for name in "abc"]
    for path in found:
        Path(path).write_text("one")
    return found


def test_a_file_that_was_left_alone_is_opened_once(
    known: KnownFiles[Content], looks: Looks, paths: list[str]
) -> None:
    first = known.looks(paths)
    assert list(first) == paths
    assert looks.taken() == ["a.db", "b.db", "c.db"]
    assert known.looks(paths) == first
    assert looks.taken() == []


@pytest.mark.parametrize("how", ["written", "replaced", "touched", "log", "log again"])
def test_a_file_that_has_changed_is_opened_again(
    known: KnownFiles[Content], looks: Looks, paths: list[str], how: str
) -> None:
    path, log = Path(paths[1]), Path(f"{paths[1]}-wal")
    if how == "log again":
        log.write_text("frames")
    known.looks(paths)
    looks.taken()
    before = os.stat(path)
    if how == "written":
        path.write_text("more than one")
    elif how == "replaced":
        # Of the same size, and with the times of the one before.
        path.with_suffix(".new").write_text("two")
        os.utime(path.with_suffix(".new"), ns=(before.st_atime_ns, before.st_mtime_ns))
        os.rename(path.with_suffix(".new"), path)
    elif how == "touched":
        os.utime(path, ns=(1, 1))
    elif how == "log":
        log.write_text("frames")
    else:
        # As SQLite begins the log anew: in place, and as long as before.
        with log.open("r+") as file:
            file.write("frame2")
        os.utime(log, ns=(2, 2))
    found = known.looks(paths)
    assert looks.taken() == ["b.db"]
    assert known.looks(paths) == found


def test_an_empty_log_is_as_none(paths: list[str]) -> None:
    before = stamp_of(paths[0])
    Path(f"{paths[0]}-wal").touch()
    assert stamp_of(paths[0]) == before is not None


def test_a_file_with_fresh_times_is_opened_until_it_was_left_alone_for_a_while(
    looks: Looks, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever this machine's clock says: a share has its own."""
    monkeypatch.setattr(known_files, "_AGAIN", 0)
    now_ms = int(os.stat(paths[0]).st_mtime * 1_000)
    for skew_ms in (-3_600_000, 0, 30_000):
        clock = ManualClock(start_ms=now_ms + skew_ms)
        known = KnownFiles(looks, clock)
        opened = []
        for _ in range(5):
            known.looks(paths[:1])
            opened.append(bool(looks.taken()))
            clock.advance(1_100)
        assert opened == [True, True, True, True, False]


def test_a_change_within_one_tick_of_the_files_times_is_seen(
    looks: Looks, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_files, "_AGAIN", 0)
    monkeypatch.setattr(summary, "_times", lambda status: (status.st_size, 10**18, 10**18))
    clock = ManualClock(start_ms=10**12 + 1)
    known = KnownFiles(looks, clock)
    known.looks(paths)
    Path(paths[0]).write_text("two")
    found = known.looks(paths)[paths[0]]
    assert isinstance(found, Content)
    assert found.mark == "two"


def test_each_pass_looks_again_at_those_that_were_looked_at_longest_ago(
    known: KnownFiles[Content], looks: Looks, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known.looks(paths)
    looks.taken()
    monkeypatch.setattr(known_files, "_AGAIN", 1)
    opened = []
    for _ in range(4):
        known.looks(paths)
        opened.append(looks.taken())
    assert opened == [["a.db"], ["b.db"], ["c.db"], ["a.db"]]


def test_marks_that_were_not_asked_about_open_the_file(
    known: KnownFiles[Content], looks: Looks, paths: list[str]
) -> None:
    def marks_of(*marks: str) -> MarksOf:
        return lambda file_id: marks if "a.db" in file_id else ()

    known.looks(paths, marks_of("old"))
    assert looks.taken() == ["a.db", "b.db", "c.db"]
    known.looks(paths, marks_of("old", "one"))
    assert looks.taken() == [], "its present mark is known to hold"
    found = known.looks(paths, marks_of("old", "older"))[paths[0]]
    assert looks.taken() == ["a.db"]
    assert isinstance(found, Content)
    assert set(found.asked) == {"old", "older"}


def test_files_that_cannot_be_read_are_told_of_and_known_too(
    known: KnownFiles[Content], looks: Looks, paths: list[str]
) -> None:
    Path(paths[0]).write_text("damaged")
    os.unlink(paths[1])
    for opened in (["a.db", "b.db", "c.db"], ["b.db"]):
        a, b, c = known.looks(paths).values()
        assert isinstance(a, CorruptDatabaseError)
        assert isinstance(b, DatabaseNotFoundError)
        assert isinstance(c, Content)
        assert looks.taken() == opened
    known.forget_others(paths[2:])
    known.looks(paths[:1])
    assert looks.taken() == ["a.db"]


def test_work_is_shared_by_threads_and_comes_back_in_order() -> None:
    threads = set()

    def work(number: int) -> int:
        threads.add(threading.get_ident())
        if number < 64:
            both.wait(timeout=60)
        return number * 2

    both = threading.Barrier(2)
    # Two chunks, of which neither ends unless the other one runs.
    assert in_parallel(work, range(64)) == [i * 2 for i in range(64)]
    assert len(threads) == 2


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """One file is as good as hundreds, and one core as two."""
    monkeypatch.setattr(known_files, "_MANY", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


@pytest.mark.process
@pytest.mark.usefixtures("many")
def test_many_files_are_looked_at_by_children_in_order() -> None:
    found = in_processes(lambda number: (number * 2, os.getpid()), range(100))
    assert [twice for twice, _ in found] == [number * 2 for number in range(100)]
    assert os.getpid() not in {process for _, process in found}


@pytest.mark.process
@pytest.mark.usefixtures("many")
def test_what_children_of_this_process_find_is_what_it_finds_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        make(tmp_path / f"{name}.db", range(10))
    (tmp_path / "b.db").write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
    options = parse({"ignoreCorruptFiles": "true"}, streaming=True)
    by_children = Lens(str(tmp_path), options).cut()
    monkeypatch.setattr(known_files, "_MANY", 1_000)
    assert by_children == Lens(str(tmp_path), options).cut()
    assert [one.path for one in by_children.skipped] == [str(tmp_path / "b.db")]


@pytest.mark.process
@pytest.mark.usefixtures("many")
def test_a_child_that_dies_is_done_without() -> None:
    parent = os.getpid()

    def work(number: int) -> int:
        if number == 40 and os.getpid() != parent:
            os._exit(1)
        return number * 2

    assert in_processes(work, range(64)) == [number * 2 for number in range(64)]


def test_commits_are_seen_whether_in_the_log_or_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_files, "_AGAIN", 0)
    monkeypatch.setattr(known_files, "LONG_AGO_NS", 0)  # Trusted as soon as it was looked at.
    make(tmp_path / "a.db", range(10))
    lens = Lens(str(tmp_path / "*.db"), parse({}, streaming=True))

    def end() -> int:
        (file,) = lens.cut().files.values()
        (state,) = file.states.values()
        return state.end

    assert end() == 10
    with eosdb.connect(tmp_path / "a.db"):
        for number in range(11, 16):
            append(tmp_path / "a.db", range(1))
            assert end() == number
    assert end() == 15
