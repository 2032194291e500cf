"""The same rows written by hand: what a small transaction costs when nothing is decided and nothing read.

    python -m benchmarks.by_hand [--pairs N] [--rounds N] [--folder PATH]

The transaction puts one record into each of two partitions. Its statements are made from what eosdb itself
writes in such a transaction, in a file that eosdb has made: the new rows of each table in one INSERT, each
changed row by one UPDATE, one commit. Numbers count on from one transaction to the next, checksums stay as
they are. Before anything is measured the same transactions are made in both ways, and all tables of the two
files are compared: the contender cannot write less than eosdb does.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

import eosdb
from benchmarks import eos, machine, raw
from benchmarks.measure import Cost, calling, costs
from benchmarks.raw import VALUE

OURS: Final = "eosdb"
HAND: Final = "by hand"
ONE_ROW: Final = "raw, one row"

_NUMBER = re.compile(r"\d+")
_HASHED = re.compile(r"(crc|checksum)\W*$")
"""A name that ends so: its number depends on the rest of the row, so it does not count on, and stays."""
_BEFORE: Final = 2
"""Transactions before those that the statements are made of: the first in a file differ."""
_CHECKED: Final = 20
_TURN: Final = 50

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = dict[str, Value]
Statement: TypeAlias = tuple[str, Callable[[int], tuple[Value, ...]]]


@dataclass(frozen=True, slots=True)
class Table:
    """All rows of a table in the order of its primary key, or of its rowid, and by it."""

    keys: tuple[str, ...]
    rows: dict[tuple[Value, ...], Row]


State: TypeAlias = dict[str, Table]


@dataclass(frozen=True, slots=True)
class Template:
    """What one transaction does to the file: `statements` with their values for the i-th one from 1, in
    the file `base`."""

    base: Path
    statements: Sequence[Statement]
    inserted: Mapping[str, int]
    updated: Mapping[str, int]

    def __str__(self) -> str:
        inserted = ", ".join(f"{count} in {table}" for table, count in self.inserted.items())
        updated = ", ".join(f"{count} in {table}" for table, count in self.updated.items())
        return f"{len(self.statements)} statements; rows inserted: {inserted}; updated: {updated}"

    def copy(self, path: Path) -> sqlite3.Connection:
        """The base as a new file, opened as eosdb opens its own, in plain sqlite3."""
        file = raw.open_file(path, create=False)
        with closing(sqlite3.connect(self.base)) as base:
            base.backup(file)
        file.execute("PRAGMA journal_mode=WAL")
        file.execute("PRAGMA synchronous=FULL")
        return file

    def write(self, file: sqlite3.Connection, number: int) -> None:
        """The transaction of this number, from 1."""
        execute = file.execute
        execute("BEGIN IMMEDIATE")
        for sql, values in self.statements:
            execute(sql, values(number))
        execute("COMMIT")


def template(folder: Path) -> Template:
    """Made of what eosdb writes now. Raises ValueError when the same transactions, made in both ways,
    leave files that differ."""
    base = folder / "base.db"
    clock = eosdb.ManualClock(start_ms=1_700_000_000_000)
    with (
        eos.producing(folder, 2, clock=clock, transactional_id="bench") as (_, producer),
        closing(sqlite3.connect(folder / "eos.db")) as file,
    ):

        def make(times: int) -> State:
            for _ in range(times):
                clock.advance(1)
                one_pair(producer)
            return _state(file)

        make(_BEFORE)
        first, second, third = make(1), make(1), make(1)
        with closing(sqlite3.connect(base)) as copy:
            file.backup(copy)
        made = _template(base, first, second, third)
        with closing(made.copy(folder / "check.db")) as check:
            for number in range(1, _CHECKED + 1):
                made.write(check, number)
            _compare(make(_CHECKED), _state(check))
    return made


def one_pair(producer: eosdb.Producer) -> None:
    producer.begin_transaction()
    producer.send("t", VALUE, partition=0)
    producer.send("t", VALUE, partition=1)
    producer.commit_transaction()


def _state(file: sqlite3.Connection) -> State:
    found = {}
    tables = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        about = file.execute(f'PRAGMA table_info("{table}")').fetchall()
        keys = tuple(name for _, name, _, _, _, place in about if place) or ("rowid",)
        listed = ", ".join(f'"{name}"' for name in keys)
        cursor = file.execute(f'SELECT {listed}, * FROM "{table}" ORDER BY {listed}')
        names = [name for name, *_ in cursor.description][len(keys) :]
        rows = {row[: len(keys)]: dict(zip(names, row[len(keys) :], strict=True)) for row in cursor}
        found[table] = Table(keys, rows)
    return found


def _template(base: Path, first: State, second: State, third: State) -> Template:
    """What turns the second state into the third, with what has counted on since the first."""
    statements: list[Statement] = []
    inserted: dict[str, int] = {}
    updated: dict[str, int] = {}
    for name, table in third.items():
        before, earlier = second[name].rows, first[name].rows
        if gone := [key for key in before if key not in table.rows]:
            raise ValueError(f"a transaction deletes rows of {name}: {gone}")
        if new := [row for key, row in table.rows.items() if key not in before]:
            # The transactions before it inserted the same rows at the end of the table.
            inserted[name] = len(new)
            last = (list(rows.values())[-len(new) :] for rows in (earlier, before))
            statements.append(_insert(name, list(zip(*last, new, strict=True))))
        for key, old in before.items():
            if old != (row := table.rows[key]):
                updated[name] = updated.get(name, 0) + 1
                where = dict(zip(table.keys, key, strict=True))
                statements.append(_update(name, where, (earlier[key], old, row)))
    return Template(base, statements, inserted, updated)


def _insert(table: str, rows: Sequence[tuple[Row, Row, Row]]) -> Statement:
    one = f"({', '.join('?' * len(rows[0][0]))})"
    values = [
        _counting(column, (first[column], second[column], third[column]))
        for first, second, third in rows
        for column in third
    ]
    return f'INSERT INTO "{table}" VALUES {", ".join([one] * len(rows))}', _compiled(values)


def _update(table: str, where: Row, rows: tuple[Row, Row, Row]) -> Statement:
    first, second, third = rows
    changed = [column for column in third if second[column] != third[column]]
    values = [_counting(name, (first[name], second[name], third[name])) for name in changed]
    assigned = ", ".join(f'"{column}" = ?' for column in changed)
    found = " AND ".join(f'"{column}" = ?' for column in where)
    sql = f'UPDATE "{table}" SET {assigned} WHERE {found}'
    return sql, _compiled([*values, *map(repr, where.values())])


def _compiled(values: Sequence[str]) -> Callable[[int], tuple[Value, ...]]:
    """The values as a function of the transaction's number `i`: compiled, so that they cost what they cost
    somebody who has written them down."""
    made: Callable[[int], tuple[Value, ...]] = eval(f"lambda i: ({', '.join(values)},)")
    return made


def _counting(name: str, values: tuple[Value, Value, Value]) -> str:
    """The expression that goes on from the third value: what is the same stays, what counts counts on."""
    first, second, third = values
    if first == second == third:
        return repr(third)
    if isinstance(first, int) and isinstance(second, int) and isinstance(third, int):
        return _number(name, first, second, third)
    if not (isinstance(first, str) and isinstance(second, str) and isinstance(third, str)):
        raise ValueError(f"{name} does not count on: {values}")
    texts = [_NUMBER.split(text) for text in (first, second, third)]
    if not texts[0] == texts[1] == texts[2]:
        raise ValueError(f"{name} changes more than its numbers: {values}")
    numbers = zip(
        *(map(int, _NUMBER.findall(text)) for text in (first, second, third)), strict=True
    )
    made = ""
    for piece, three in zip(texts[2], [*numbers, None], strict=True):
        made += piece.replace("{", "{{").replace("}", "}}")
        made += "" if three is None else f"{{{_number(piece or name, *three)}}}"
    return f"f{made!r}"


def _number(name: str, first: int, second: int, third: int) -> str:
    step = third - second
    if step == 0 or _HASHED.search(name):
        return str(third)
    if second - first != step:
        raise ValueError(f"{name} does not count on: {first}, {second}, {third}")
    return f"{third} + {step} * i"


def _compare(ours: State, theirs: State) -> None:
    for name, table in ours.items():
        found = theirs[name]
        if len(found.rows) != len(table.rows):
            raise ValueError(f"{name}: {len(table.rows)} rows by eosdb, {len(found.rows)} by hand")
        for key, row in table.rows.items():
            for column, value in row.items():
                other = found.rows[key][column]
                if _unhashed(column, value) != _unhashed(column, other):
                    raise ValueError(
                        f"{name} {key}, {column}: {value!r} by eosdb, {other!r} by hand"
                    )


def _unhashed(column: str, value: Value) -> Value:
    if isinstance(value, str):
        return re.sub(r'("\w*(?:crc|checksum)\w*":)\d+', r"\1", value)
    return None if _HASHED.search(column) else value


# -- measuring ----------------------------------------------------------------------------------


def one_round(made: Template, folder: Path, pairs: int) -> dict[str, Cost]:
    """What a transaction costs each. They take turns of a few transactions, and who begins changes."""
    row, insert = raw.shape().row, raw.shape().insert
    with (
        eos.producing(folder, 2, transactional_id="bench") as (_, producer),
        closing(made.copy(folder / "hand.db")) as hand,
        closing(raw.open_file(folder / "raw.db")) as plain,
    ):
        numbers, rows = count(1), count()
        turns = {
            OURS: calling(lambda: one_pair(producer)),
            HAND: calling(lambda: made.write(hand, next(numbers))),
            ONE_ROW: calling(lambda: plain.execute(insert, row(next(rows)))),
        }
        costs(turns, 1, 1)
        return costs(turns, pairs, _TURN)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.by_hand", description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000, help="transactions in each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path(), help="the disk to be measured")
    asked = parser.parse_args(arguments)
    rounds = []
    with TemporaryDirectory(dir=asked.folder, prefix="bench-") as name:
        made = template(Path(name))
        print(machine.software())
        print(f"by hand: {made}")
        print(f"the same {_CHECKED} transactions leave the same tables, checksums apart")
        for _ in range(asked.rounds):
            with TemporaryDirectory(dir=name) as folder:
                rounds.append(one_round(made, Path(folder), asked.pairs))
    for who in (OURS, HAND, ONE_ROW):
        cpu = statistics.median(found[who].cpu for found in rounds)
        wall = statistics.median(found[who].wall for found in rounds)
        print(f"{who:14} {cpu:.3f} ms CPU  {wall:.3f} ms wall  {1000 / wall:,.0f} commits/s")
    for what, above, below, of in (
        ("CPU eosdb / by hand", OURS, HAND, attrgetter("cpu")),
        ("rate eosdb / by hand", HAND, OURS, attrgetter("wall")),
        ("rate eosdb / raw", ONE_ROW, OURS, attrgetter("wall")),
        ("rate by hand / raw", ONE_ROW, HAND, attrgetter("wall")),
    ):
        ratios = sorted(of(found[above]) / of(found[below]) for found in rounds)
        print(f"{what:22} {statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
