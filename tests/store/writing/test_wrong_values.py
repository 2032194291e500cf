"""The assertions of units: each is seen to fail, by a value that eosdb's own code never passes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from eosdb.model.clock import real_ns
from eosdb.store import space
from eosdb.store.file.locks import OwnerLocks
from eosdb.store.schema.newest import Statement
from eosdb.store.writing.group_commit import GroupCommit, UnitRequest
from eosdb.store.writing.held_unit import HeldUnit
from eosdb.store.writing.insertion import Insertion
from eosdb.store.writing.table import Table
from eosdb.store.writing.timings import Timings
from eosdb.store.writing.unit import Unit
from eosdb.store.writing.writer import Writer

NOTHING: Any = None


def like(**attributes: object) -> Any:
    """Some attributes of an object."""
    return SimpleNamespace(**attributes)


def grown_by_giving_back() -> None:
    sizes = iter([space.Pages(1, 0, 1), space.Pages(2, 0, 1)])
    with (
        patch.object(space, "pages", lambda _: next(sizes)),
        patch.object(space, "surplus", lambda _: 0),
    ):
        space.give_back(like(connection=None), bool)


def committed_before_it_began() -> None:
    timings = Timings("f", -1)
    timings._committing = real_ns() + 10**12
    timings.committed(1, sync=False)


def begun(is_open_before: bool) -> None:
    connection = like(
        rollback=list, in_transaction=is_open_before, total_changes=0, execute=lambda _: None
    )
    writer = like(
        _unit=like(), connection=connection, durable="FULL", _synchronous="FULL", deadline_ns=0
    )
    Writer.begin(writer, sync=True, careful=False)


def held() -> None:
    raw = like(in_transaction=False, execute=lambda _: None)
    unit = like(forget=list)
    HeldUnit.begin(
        like(_end=list, _translated=lambda: closing(like(close=list)), _raw=raw, _unit=unit),
        "FULL",
        0,
    )


CASES: dict[str, Callable[[], object]] = {
    "a round of no requests": lambda: Writer._run(NOTHING, [], sync=False, careful=False),
    "a write of negative bytes": lambda: Writer.wrote(NOTHING, -1),
    "a commit of no request": lambda: Timings("f", -1).committed(0, sync=False),
    "a turn with others": lambda: GroupCommit(NOTHING).take(UnitRequest(NOTHING, sync=False)),
    "fewer changes than before": lambda: Writer.commit(
        like(connection=like(total_changes=0), _changes_before=1), 1, is_undone=True
    ),
    "a file that grows when it gives back": grown_by_giving_back,
    "a commit that ends before it begins": committed_before_it_began,
    "a unit in an open transaction": lambda: begun(True),
    "a unit without a transaction": lambda: begun(False),
    "a block without a transaction": held,
    "rows that stay behind": lambda: Unit.write_waiting(
        like(_write=list, _saves={"t": 1}, _inserts={})
    ),
    "new rows that stay behind": lambda: Unit.write_waiting(
        like(_write=list, _saves={}, _inserts={"t": 1})
    ),
    "a column twice": lambda: Table("t", "a a", "a"),
    "a key that is no column": lambda: Table("t", "a", "b"),
    "a fixed column that is none": lambda: Table("t", "a", "a", fixed="b"),
    "a column inserted twice": lambda: Insertion.plain("t", ("a", "a")),
    "a lock below 0": lambda: OwnerLocks.hold(NOTHING, -1),
    "no lock": lambda: OwnerLocks.hold(NOTHING, 1, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_value_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError):
        CASES[name]()


def test_a_unit_that_defers_its_writes_keeps_one_row_for_a_key() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        unit, update = Unit(connection, NOTHING), Statement("UPDATE t SET a = ?")
        unit.careful = False
        with pytest.raises(AssertionError), unit.savepoint():
            pass
        unit.save("t", 1, update, list, "a")
        with pytest.raises(AssertionError):
            unit.save("t", 1, update, tuple, "b")
        with pytest.raises(AssertionError):
            unit.select(Insertion.plain("t", ("a",)), "SELECT a FROM t", (), bool)
