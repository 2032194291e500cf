"""Verify and rebuild: the events are folded again, into a copy or into the tables.

SQLite's own check is a single statement that takes as long as a full scan, outside the interpreter's
lock, so it runs in a second thread beside the folding.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Final

from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.projection import apply
from eosdb.maintenance import replay
from eosdb.maintenance.record_check import RecordCheck
from eosdb.model import threads
from eosdb.model.clock import Clock
from eosdb.model.progress import Progress, report_progress
from eosdb.model.values import RebuildReport, VerifyReport
from eosdb.store import baseline, journal
from eosdb.store.schema import file_id
from eosdb.store.schema import newest as newest_schema
from eosdb.store.schema.migrate import check_known
from eosdb.store.store import Store

_INTERRUPT_EVERY_S: Final = 0.05


def verify(store: Store, clock: Clock, on_progress: Progress | None) -> VerifyReport:
    """Fold the whole history into a copy of the tables and compare both, and compare the records with
    their events."""

    def work(report: Progress) -> tuple[int, list[str]]:
        with (
            store.read() as connection,
            store.own_reader() as other,
            _integrity_beside(other) as of_the_file,
        ):
            check_known(connection)
            unlike = newest_schema.unlike(connection)
            problems = [what for _, what in unlike]
            if any(wanted.type == "table" for wanted, _ in unlike):
                return 0, [*of_the_file(), *problems]
            try:
                last = journal.last_position(connection)
                check = RecordCheck(connection, baseline.read(connection).position)
                events, differences = replay.verify(connection, apply, check.inspect, report)
                problems += [*differences, *check.finish()]
                # Tables that come from no event.
                problems += group_rows.altered_sessions(connection)
                problems += baseline.problems(connection)
                problems += [*file_id.problems(connection), *newest_schema.problems(connection)]
                problems[:0] = of_the_file()
                report(last, last)
            except (TypeError, ValueError) as error:
                events, problems = 0, of_the_file()
                problems.append(f"the events cannot be compared with what is left ({error!r})")
        return events, problems

    start = clock.monotonic_ms()
    events, problems = report_progress(on_progress, work)
    elapsed_s = (clock.monotonic_ms() - start) / 1000
    return VerifyReport(not problems, tuple(problems), events, elapsed_s)


def rebuild(store: Store, clock: Clock, on_progress: Progress | None) -> RebuildReport:
    """Rebuild the tables from the baseline and every later event, in one unit."""
    start = clock.monotonic_ms()
    events = report_progress(
        on_progress, lambda report: store.write(lambda unit: replay.rebuild(unit, report))
    )
    return RebuildReport(events, (clock.monotonic_ms() - start) / 1000)


@contextmanager
def _integrity_beside(connection: sqlite3.Connection) -> Iterator[Callable[[], list[str]]]:
    """Run SQLite's integrity check on a separate connection during the block. The yielded function waits
    for its problems; it raises sqlite3.Error if the file cannot be checked at all."""
    with ThreadPoolExecutor(1, "eosdb-integrity") as pool:
        with threads.needed("the check"):
            check = pool.submit(_problems, connection)
        try:
            yield check.result
        finally:
            # An interrupt that comes before the statement has begun is lost.
            while not check.done():
                connection.interrupt()
                wait([check], _INTERRUPT_EVERY_S)


def _problems(connection: sqlite3.Connection) -> list[str]:
    texts = [text for (text,) in connection.execute("PRAGMA integrity_check(20)")]
    return [] if texts == ["ok"] else [f"file: {text}" for text in texts]
