"""Progress for lag monitors is told beside the query: whatever stands in its way, the query goes on."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import Acl, ManualClock, TopicPartition
from eosdb.spark_io.reading.stream import GroupProgress
from tests.spark_io.like_spark import Reader
from tests.spark_io.making import make

TP = TopicPartition("orders", 0)


@contextlib.contextmanager
def member(path: Path) -> Iterator[str]:
    """Of group `job`, as long as the block."""
    with eosdb.connect(path) as db:
        consumer = db.consumer("job", client_id="billing")
        consumer.subscribe(["orders"])
        consumer.poll(0)
        (found,) = db.broker.describe_group("job").members
        yield found.member_id
        consumer.close()


def committed(path: Path) -> int | None:
    with eosdb.connect(path, read_only=True) as db:
        found = db.broker.offset_fetch("job", [TP])
    return found[TP].offset if TP in found else None


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make(tmp_path / "source.db", range(10))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "eosdb.spark_io"]


def test_the_warning_names_group_and_member_once_and_it_is_tried_again(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    progress = GroupProgress("job", clock)
    with caplog.at_level(logging.WARNING, "eosdb.spark_io"):
        with member(source) as member_id:
            progress.tell({(str(source), TP): 3})
            clock.advance(60_000)
            progress.tell({(str(source), TP): 5})
        (said,) = warnings(caplog)
        for part in ("group job", str(source), member_id, "billing", "choose a groupId"):
            assert part in said
        assert committed(source) is None
        progress.tell({(str(source), TP): 7})
        assert committed(source) is None, "not before a minute is over"
        clock.advance(60_000)
        progress.tell({(str(source), TP): 7})
    assert committed(source) == 7


def published(path: Path) -> None:
    with eosdb.connect(path) as db:
        db.publish_copy(path.with_name("copy.db"))
    path.with_name("copy.db").rename(path)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def refused_by_acl(path: Path) -> None:
    with eosdb.connect(path, principal="User:admin") as db:
        db.admin.create_acls([Acl("User:ANONYMOUS", "read", "topic", "orders")])


def of_an_older_schema(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version={version - 1}")


def gone(path: Path) -> None:
    path.unlink()


def a_folder_in_place_of_the_lock(path: Path) -> None:
    path.with_name(path.name + "-lock").unlink()
    path.with_name(path.name + "-lock").mkdir()


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (published, "published copy"),
        (refused_by_acl, "add an ACL"),
        (of_an_older_schema, "migrate"),
        (gone, "does not exist"),
        (a_folder_in_place_of_the_lock, "Is a directory"),
    ],
)
def test_whatever_else_refuses_is_a_warning(
    source: Path,
    caplog: pytest.LogCaptureFixture,
    happens: Callable[[Path], None],
    said: str,
) -> None:
    happens(source)
    content = source.read_bytes() if source.exists() else None
    with caplog.at_level(logging.WARNING, "eosdb.spark_io"):
        GroupProgress("job").tell({(str(source), TP): 3})
    (warning,) = warnings(caplog)
    assert said in warning
    assert (source.read_bytes() if source.exists() else None) == content


def test_a_file_that_is_locked_or_a_full_disk_is_a_warning(
    source: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING, "eosdb.spark_io"):
        with eosdb.connect(source) as db, db.begin():
            GroupProgress("job").tell({(str(source), TP): 3})

        def full(*_: object, **__: object) -> None:
            raise eosdb.DatabaseFullError("the disk is full")

        monkeypatch.setattr(eosdb, "connect", full)
        GroupProgress("job").tell({(str(source), TP): 3})
    locked, no_room = warnings(caplog)
    assert "lock" in locked
    assert "the disk is full" in no_room


def test_many_files_are_one_warning_and_only_those_that_moved_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(tmp_path / f"{i}.db") for i in range(3)]
    progress = GroupProgress("job")
    with caplog.at_level(logging.WARNING, "eosdb.spark_io"):
        progress.tell({(name, TP): 1 for name in names})
    (said,) = warnings(caplog)
    assert f"{names[0]} and 2 more files" in said
    opened = []
    progress = GroupProgress("job")
    monkeypatch.setattr(progress, "_commit", lambda path, _: opened.append(path))
    progress.tell({(name, TP): 1 for name in names})
    progress.tell({(name, TP): 2 if name == names[1] else 1 for name in names})
    assert opened == [*names, names[1]]


def test_a_published_copy_is_streamed_from_and_stays_as_it_is(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    published(source)
    content = source.read_bytes()
    with caplog.at_level(logging.WARNING, "eosdb.spark_io"):
        assert Reader(source, groupId="job")() == list(range(10))
    assert "published copy" in warnings(caplog)[0]
    assert source.read_bytes() == content
