"""Writing late is not seen: every statement finds what had been saved before it.

Method: the same random operations on two small tables, by a unit that writes at once and by one that
writes late; every answer and the tables in the end are equal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosdb.events.kinds import Event
from eosdb.store.writing import unit as unit_rows
from eosdb.store.writing.insertion import Insertion
from eosdb.store.writing.unit import Folding, Unit, late
from tests.tidy.tree import modules

INSERT = "INSERT INTO items (value, key) VALUES (?, ?)"
UPDATE = "UPDATE items SET value = ? WHERE key = ?"
UPSERT = (
    "INSERT INTO others (value, key) VALUES (?, ?) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
NOTE = Insertion.plain("notes", ("a", "b"))
ITEM = Insertion.plain("items", ("value", "key"))
keys, values = st.integers(0, 4), st.integers(0, 99)
operations = st.one_of(
    st.tuples(st.just("save"), keys, values),
    st.tuples(st.just("upsert"), keys, values),
    st.tuples(st.just("append"), values, values),
    st.tuples(st.just("delete"), keys, st.just(0)),
    st.tuples(st.just("read"), st.sampled_from(["items", "others", "notes"]), st.just(0)),
    st.tuples(st.just("count both"), st.just(0), st.just(0)),
    st.tuples(st.just("clear"), keys, st.just(0)),
)


def fold(unit: Folding, event: Event, position: int) -> None:
    raise AssertionError("nothing is folded here")


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE items (key INT PRIMARY KEY, value INT) STRICT")
        connection.execute("CREATE TABLE others (key INT PRIMARY KEY, value INT) STRICT")
        connection.execute("CREATE TABLE notes (number INTEGER PRIMARY KEY, a INT, b INT) STRICT")
        yield connection


def row(pair: tuple[int | str, int]) -> Sequence[object]:
    key, value = pair
    return value, key


def perform(unit: Unit, history: list[tuple[str, int | str, int]]) -> list[object]:
    """What the reads among the operations found."""
    found: list[object] = []
    known: set[object] = set()
    for name, a, b in history:
        match name:
            case "save":
                unit.save("items", a, UPDATE if a in known else INSERT, row, (a, b))
                known.add(a)
            case "upsert":
                unit.save("others", a, UPSERT, row, (a, b))
            case "append":
                unit.insert(NOTE, (a, b))
            case "delete":
                unit.execute("DELETE FROM items WHERE key = ?", (a,))
                known.discard(a)
            case "clear":
                unit.executemany("DELETE FROM others WHERE key = ?", [(a,)])
            case "read":
                found.append(unit.execute(f"SELECT * FROM {a} ORDER BY 1").fetchall())
            case "count both":
                joined = "SELECT count(*) FROM items JOIN others USING (key)"
                found.append(unit.execute(joined).fetchone())
    return found


def tables(connection: sqlite3.Connection) -> list[list[tuple[object, ...]]]:
    return [
        connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
        for table in ("items", "others", "notes")
    ]


@pytest.mark.slow
@given(st.lists(operations), st.sampled_from([0, 1, 3, 5_000]))
def test_late_and_at_once_give_the_same(
    history: list[tuple[str, int | str, int]], waiting: int
) -> None:
    with database() as at_once, database() as later:
        expected = perform(Unit(at_once, fold), history)
        with mock.patch.object(unit_rows, "_WAITING_MAX", waiting), late(later, fold) as unit:
            assert perform(unit, history) == expected
        assert tables(later) == tables(at_once)


@pytest.mark.parametrize("count", [1, 2, 40])
def test_none_is_stored_as_null(count: int) -> None:
    with database() as connection:
        with late(connection, fold) as unit:
            unit.insert(NOTE, *[(None, 0)] * count)
        assert connection.execute("SELECT a, b FROM notes").fetchall() == [(None, 0)] * count


def test_a_row_saved_often_is_written_once() -> None:
    with database() as connection:
        with late(connection, fold) as unit:
            for value in range(1_000):
                unit.save("items", 7, UPDATE if value else INSERT, row, (7, value))
        assert connection.total_changes == 1
        assert tables(connection)[0] == [(7, 999)]


def test_a_block_that_raises_writes_nothing_more() -> None:
    with database() as connection:
        with pytest.raises(RuntimeError), late(connection, fold) as unit:
            unit.save("items", 7, INSERT, row, (7, 1))
            raise RuntimeError
        assert tables(connection)[0] == []


def test_what_cannot_be_written_is_refused_at_the_end() -> None:
    with (
        database() as connection,
        pytest.raises(sqlite3.IntegrityError),
        late(connection, fold) as unit,
    ):
        unit.insert(ITEM, (1, 7))
        unit.insert(ITEM, (2, 7))


@pytest.mark.parametrize("room", ["eosdb.log", "eosdb.coordinator"])
def test_nobody_who_folds_goes_round_the_unit(room: str) -> None:
    """`unit.connection` has everything written that waits, which would then wait in vain."""
    texts = {
        name: path.read_text(encoding="utf-8")
        for name, path in modules().items()
        if name.startswith(room)
    }
    assert texts
    assert not {name for name, text in texts.items() if "unit.connection" in text}
