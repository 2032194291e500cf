"""Replays the journal on top of the baseline: into the tables (`rebuild`), or into a copy for comparison
(`verify`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any, Final

from eosdb.errors import CorruptDatabaseError
from eosdb.events.kinds import BatchAppended, Event, MarkerWritten
from eosdb.log import json_views
from eosdb.model.failpoints import Failpoint, reach
from eosdb.model.progress import Progress, reporting, silent
from eosdb.store import baseline, journal
from eosdb.store.schema import newest
from eosdb.store.schema.migrate import create_materialized
from eosdb.store.schema.newest import materialized_tables
from eosdb.store.writing.unit import Apply, Unit, late

_EVENTS_REMEMBERED: Final = 20_000
"""The memos are dropped after this many events."""
_PROBLEMS_PER_TABLE: Final = 20
_UNFOLDABLE: Final = (sqlite3.Error, TypeError, AttributeError, OverflowError)

Inspect = Callable[[int, Event], None]


def rebuild(unit: Unit, on_progress: Progress = silent) -> int:
    """Recreate the materialized tables from the baseline, and fold every later event. Returns the number
    of events. Raises CorruptDatabaseError."""
    begun = baseline.read(unit).position
    baseline.check_sound(unit.connection)
    create_materialized(unit.connection)
    unit.forget()
    reach(Failpoint.REBUILD_CLEARED)
    last = journal.last_position(unit.connection)
    try:
        baseline.fill(unit.connection, unit.connection)
        json_views.make_all(unit.connection)
        # Close the journal now: an interactive Python would keep it open with the error's traceback.
        with (
            closing(journal.events(unit.connection, after=begun)) as events,
            late(unit.connection, unit.projection) as folding,
        ):
            count = fold(folding, reporting(events, on_progress, last))
        newest.mend(unit.connection)
    except (sqlite3.IntegrityError, TypeError, AttributeError, OverflowError) as error:
        raise CorruptDatabaseError(
            f"{_told_by(begun)} contradict each other ({error!r}), so nothing was rebuilt; `eosdb verify` "
            "shows the damage"
        ) from error
    on_progress(last, last)
    return count


def fold(
    unit: Unit,
    events: Iterator[tuple[int, Event]],
    inspect: Inspect | None = None,
    *,
    after: int = 0,
) -> int:
    """Fold the events after position `after`, with bounded memory. Returns the number of all events.
    `inspect` is called with each event."""
    count, apply = 0, unit.projection
    for position, event in events:
        if position > after:
            apply(unit, event, position)
        if inspect is not None:
            inspect(position, event)
        count += 1
        if count % _EVENTS_REMEMBERED == 0:
            unit.forget()
    return count


# decisions/0001: all other tables follow from the journal and the records, so a replay can verify them.
def verify(
    connection: sqlite3.Connection, apply: Apply, inspect: Inspect, on_progress: Progress = silent
) -> tuple[int, list[str]]:
    """Fold every event after the baseline into a copy of the baseline. Compare the result with the file's
    tables. Returns the number of events and the differences. `inspect` is called with every event."""
    with closing(sqlite3.connect("", isolation_level=None)) as scratch:
        scratch.execute("BEGIN")
        create_materialized(scratch)
        problems: list[str] = []
        at = baseline.read(connection)
        begun = last = at.position
        try:
            baseline.fill(connection, scratch)
        except _UNFOLDABLE as error:
            return 0, [f"baseline: a row cannot be what was stored ({error})"]

        def followed(events: Iterator[tuple[int, Event]]) -> Iterator[tuple[int, Event]]:
            nonlocal last
            for position, event in events:
                if position <= begun or position != last + 1:
                    problems.extend(_misplaced(position, type(event), begun, last))
                last = max(last, position)
                yield position, event

        def altered(position: int) -> None:
            problems.append(
                f"journal: the event at position {position} does not fit its checksum; one of its "
                "columns has been altered"
            )

        try:
            events = reporting(
                followed(journal.events(connection, altered)),
                on_progress,
                journal.last_position(connection),
            )
            with late(scratch, apply) as unit:
                count = fold(unit, events, inspect, after=begun)
        except _UNFOLDABLE as error:
            last, why = _first_unfoldable(connection, apply) or (last, error)
            return last, [
                f"journal: the event after position {last} cannot be folded ({why!r}); it does not "
                f"fit {_told_by(begun)} before it",
                *problems,
            ]
        problems += differences(connection, scratch, _told_by(begun))
        return count, problems


def _misplaced(position: int, kind: type[Event], begun: int, last: int) -> Iterator[str]:
    """Yield the fault of an event that is at or before the baseline (`begun`) but describes no records, or
    whose position does not follow `last`, the previous event's."""
    if position <= begun:
        if kind not in (BatchAppended, MarkerWritten):
            yield (
                f"journal: the {kind.__name__} at position {position} is not after the baseline ({begun}) "
                "and describes no records; expected it to be deleted"
            )
    elif position != last + 1:
        yield f"journal: position {position} follows {last}, expected {last + 1}"


def _told_by(begun: int) -> str:
    """Return the source of the folded tables, for messages."""
    return "the baseline and the events" if begun else "the events"


def _first_unfoldable(connection: sqlite3.Connection, apply: Apply) -> tuple[int, Exception] | None:
    """Return the position before the first event that cannot be folded, and the error. Rows are not
    deferred here, because a deferred row may fail long after its event."""
    begun = last = baseline.read(connection).position

    def note(position: int, _: Event) -> None:
        nonlocal last
        last = position

    with closing(sqlite3.connect("", isolation_level=None)) as scratch:
        scratch.execute("BEGIN")
        create_materialized(scratch)
        try:
            baseline.fill(connection, scratch)
            fold(Unit(scratch, apply), journal.events(connection, after=begun), note)
        except _UNFOLDABLE as error:
            return last, error
    return None


def differences(stored: sqlite3.Connection, folded: sqlite3.Connection, told_by: str) -> list[str]:
    """Return the differences between the stored materialized tables and the folded ones. `told_by` names
    the source of the folded tables."""
    problems: list[str] = []
    for table in materialized_tables():
        described = folded.execute(f'PRAGMA table_info("{table}")').fetchall()
        names = [f'"{name}"' for _, name, *_ in described]
        keys = [i for i, (*_, primary_key) in enumerate(described) if primary_key]
        query = (
            f'SELECT {", ".join(names)} FROM "{table}" ORDER BY {", ".join(names[i] for i in keys)}'
        )
        unequal = _unequal(stored.execute(query), folded.execute(query), keys, told_by)
        problems += [f"{table}: {text}" for text in islice(unequal, _PROBLEMS_PER_TABLE)]
    return problems


def _unequal(
    stored: Iterator[tuple[Any, ...]],
    folded: Iterator[tuple[Any, ...]],
    keys: list[int],
    told_by: str,
) -> Iterator[str]:
    """Merge two streams in key order and yield their differences."""

    def key(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(row[i] for i in keys)

    left, right = next(stored, None), next(folded, None)
    while left is not None or right is not None:
        if right is None or (left is not None and key(left) < key(right)):
            assert left is not None
            yield f"row {left} is stored, {told_by} give none"
            left = next(stored, None)
        elif left is None or key(right) < key(left):
            yield f"{told_by} give row {right}, none is stored"
            right = next(folded, None)
        else:
            if left != right:
                yield f"row {left} is stored, {told_by} give {right}"
            left, right = next(stored, None), next(folded, None)
