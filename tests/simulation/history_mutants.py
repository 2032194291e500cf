"""Deliberate bugs in the end of the history: the baseline, and the events that it lets go."""

from __future__ import annotations

from typing import Any

from eosdb.events.kinds import MarkerWritten
from eosdb.log import compaction, retention
from eosdb.maintenance import history
from tests.simulation.planting import both, instead_of, mutant, replaced


def _moved(by: int) -> Any:
    def make(after: Any) -> Any:
        def moved(at: Any, due: Any, rows_sum: int) -> Any:
            found = after(at, due, rows_sum)
            return found._replace(position=max(found.position + by, at.position + 1))

        return moved

    return replaced(history, "_after", make)


@mutant("the baseline says that it is one event before where it is")
def baseline_one_event_early() -> Any:
    return _moved(-1)


@mutant("the baseline says that it is one event behind where it is")
def baseline_one_event_late() -> Any:
    return _moved(1)


@instead_of("the baseline leaves out markers", history, "_fold")
def baseline_leaves_out_markers(fold: Any, unit: Any, due: Any) -> Any:
    return fold(unit, [found for found in due if type(found.event) is not MarkerWritten])


@mutant("the baseline's position is committed before what is folded into it")
def baseline_torn() -> Any:
    def make(fold: Any) -> Any:
        waiting: list[Any] = []

        def folded(unit: Any, due: Any) -> Any:
            before, waiting[:] = [*waiting], due
            return fold(unit, before) if before else 0

        return folded

    return replaced(history, "_fold", make)


@mutant("the events of stored records are trimmed, too")
def needed_events_are_trimmed() -> Any:
    return replaced(history, "_has_rows", lambda _: lambda unit, event: False)


@mutant("events before the baseline stay when their records are deleted")
def events_without_records_stay() -> Any:
    return both(
        *[
            replaced(room, "baseline", lambda _: type("Forgets", (), {"forget_events": _nothing}))
            for room in (retention, compaction)
        ]
    )


def _nothing(*_: object) -> None:
    """Instead of deleting them."""
