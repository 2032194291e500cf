"""Generations of a group only grow, but for a group that is deleted: it begins at 1 again, as in Kafka."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from tests.simulation.checker import Checker
from tests.simulation.ledger import Ledger
from tests.simulation.model import Attendance, Violation

GROUP = "members"
PLACE = TopicPartition("in", 0)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[eosdb.Database]:
    with eosdb.connect(tmp_path / "shop.db", durability="off") as db:
        db.admin.create_topic(PLACE.topic)
        yield db


class Watched:
    """A group, and the checker that looks at it."""

    def __init__(self, db: eosdb.Database) -> None:
        self._broker = db.broker
        self._attendance = Attendance({}, Counter())
        self.checker = Checker(db.path, Ledger(), self._attendance)

    def comes_and_goes(self) -> int:
        """A member joins, the checker looks, and the member leaves. Returns its generation."""
        joined = self._broker.join_group(GROUP, protocols=[("range", b"")])
        self.checker.look(0)
        self._attendance.asked_to_leave(GROUP, joined.member_id)
        self._broker.leave_group(GROUP, joined.member_id)
        return joined.generation_id


@pytest.fixture
def watched(db: eosdb.Database) -> Iterator[Watched]:
    watched = Watched(db)
    yield watched
    watched.checker.close()


@pytest.mark.parametrize("way", ["deleted", "expired"])
def test_a_group_that_was_deleted_between_two_looks_begins_again(
    db: eosdb.Database, watched: Watched, way: str
) -> None:
    db.broker.offset_commit(GROUP, {PLACE: OffsetAndMetadata(0)})
    before = [watched.comes_and_goes() for _ in range(3)]
    assert before == sorted(set(before))
    if way == "deleted":
        db.broker.delete_group(GROUP)
    else:
        db.broker.offset_delete(GROUP, [PLACE])
        db.housekeeping()
    assert watched.comes_and_goes() < before[-1]


def test_a_generation_that_goes_back_otherwise_is_a_violation(
    db: eosdb.Database, watched: Watched
) -> None:
    db.broker.offset_commit(GROUP, {PLACE: OffsetAndMetadata(0)})
    for _ in range(3):
        watched.comes_and_goes()
    with closing(sqlite3.connect(db.path)) as connection, connection:
        connection.execute("UPDATE groups SET generation_id = 1")
    with pytest.raises(Violation, match="generation 1 follows"):
        watched.checker.look(0)
