"""Work on the whole file, with its progress: verify, rebuild, copies as it is and as it was."""

from __future__ import annotations

from eosdb.clock import Clock
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.projection import apply
from eosdb.log import restore
from eosdb.log.record_check import RecordCheck
from eosdb.model.values import RebuildReport, VerifyReport
from eosdb.progress import Progress, carried
from eosdb.store import backup, integrity, journal, replay
from eosdb.store.schema import file_id
from eosdb.store.schema import newest as newest_schema
from eosdb.store.store import Store


def verify(store: Store, clock: Clock, on_progress: Progress | None) -> VerifyReport:
    """Fold every event beside the tables and compare both, and the records with their events."""

    def work(tell: Progress) -> tuple[int, list[str]]:
        with (
            store.read() as connection,
            store.own_reader() as other,
            integrity.beside(other) as of_the_file,
        ):
            problems: list[str] = []
            try:
                last = journal.last_position(connection)
                check = RecordCheck(connection)
                events, differences = replay.verify(connection, apply, check.inspect, tell)
                problems += [*differences, *check.finish()]
                # What no event tells of.
                problems += group_rows.altered_sessions(connection)
                problems += [*file_id.problems(connection), *newest_schema.problems(connection)]
                problems[:0] = of_the_file()
                tell(last, last)
            except (TypeError, ValueError) as error:
                events, problems = 0, of_the_file()
                problems.append(f"the events cannot be compared with what is left ({error!r})")
        return events, problems

    start = clock.monotonic_ms()
    events, problems = carried(on_progress, work)
    elapsed_s = (clock.monotonic_ms() - start) / 1000
    return VerifyReport(not problems, tuple(problems), events, elapsed_s)


def rebuild(store: Store, clock: Clock, on_progress: Progress | None) -> RebuildReport:
    """Fold every event into emptied tables, in one unit."""
    start = clock.monotonic_ms()
    events = carried(on_progress, lambda tell: store.write(lambda unit: replay.rebuild(unit, tell)))
    return RebuildReport(events, (clock.monotonic_ms() - start) / 1000)


def copy(store: Store, target: str, on_progress: Progress | None) -> None:
    """The file as it is, under another name."""

    def work(tell: Progress) -> None:
        with store.read() as connection:
            backup.copy(connection, target, tell)

    carried(on_progress, work)


def restore_to(
    store: Store,
    clock: Clock,
    target: str,
    position: int | None,
    timestamp: int | None,
    on_progress: Progress | None,
) -> int:
    """The file as it was, under another name. Returns the position after which it was so."""

    def work(tell: Progress) -> int:
        with store.read() as connection:
            wanted = restore.wanted_position(connection, position, timestamp)
            restore.copy_after(connection, target, wanted, apply, clock.time_ms(), tell)
        return wanted

    return carried(on_progress, work)
