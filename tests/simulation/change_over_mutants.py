"""Deliberate bugs in groups that change over between the two protocols."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eosdb.coordinator.groups import decisions, migration, rows
from eosdb.coordinator.groups.consumer_decisions import ConsumerGroup
from eosdb.coordinator.groups.decisions import Group
from tests.simulation.planting import instead_of


@instead_of("a new generation forgets what its members had", decisions, "_complete")
def a_generation_forgets_assignments(complete: Any, group: Any, now_ms: int) -> Any:
    after = complete(group, now_ms)
    emptied = tuple(member._replace(assignment=b"") for member in after.members)
    return replace(after, members=emptied)


@instead_of(
    "a group that is classic again has another generation than its members know",
    migration,
    "remove",
)
def going_back_changes_the_generation(remove: Any, *arguments: Any) -> Any:
    after = remove(*arguments)
    if not isinstance(after, Group):
        return after
    return replace(after, generation_id=after.generation_id + 1)


@instead_of(
    "a member that waited for others has a long session when its group has changed over",
    rows,
    "_end_waiting",
)
def waiting_outlives_the_change_over(
    end_waiting: Any, unit: Any, before: Any, after: Any, now_ms: int
) -> None:
    if not isinstance(after, ConsumerGroup):
        end_waiting(unit, before, after, now_ms)
