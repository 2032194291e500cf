"""Consumer groups for operators (kafka-consumer-groups.sh): describe them and reset their offsets."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from eosdb.broker.core import Core
from eosdb.broker.group_offsets import checked, commit_offsets
from eosdb.coordinator.authorizer import CLUSTER, Source
from eosdb.coordinator.groups import configs as group_configs
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.errors import GroupIdNotFoundError, InvalidRequestError, NonEmptyGroupError
from eosdb.events.kinds import GroupConfigAltered
from eosdb.log import partition_rows
from eosdb.log.partition_rows import Partition
from eosdb.log.reading import by_time
from eosdb.model import finished
from eosdb.model.config import INT64_MAX
from eosdb.model.reports import GroupReport, OffsetReset
from eosdb.model.requests import OffsetCommit
from eosdb.model.validation import check_group_id, check_int, check_mapping, check_topic_partitions
from eosdb.model.values import (
    EARLIEST,
    LATEST,
    ConsumerGroupMetadata,
    GroupState,
    OffsetAndMetadata,
    TopicPartition,
)
from eosdb.store.writing.unit import Unit

from . import configs, diagnosis

Target = tuple[str, int]
"""The target of a reset: the name of a parameter of `reset_offsets`, and its number (0 if it has none)."""


def _plan(
    core: Core,
    connection: sqlite3.Connection,
    group_id: str,
    tps: list[TopicPartition],
    target: Target,
) -> list[OffsetReset]:
    """Plan a reset. Raises NonEmptyGroupError, InvalidRequestError and UnknownTopicOrPartitionError."""
    stored = group_rows.load(connection, group_id)
    group = None if stored is None else core.coordinator.foresight(connection).group(stored)
    if group is not None and group.members:
        raise NonEmptyGroupError(
            f"group {group_id!r} is {group.state.value} with {len(group.members)} members; stop "
            "them all before resetting its offsets"
        )
    standing = group_offsets.fetch(connection, group_id, tps)
    plan = []
    for tp in tps:
        partition = partition_rows.read(connection, tp)
        before = standing[tp].offset if tp in standing else -1
        wanted = _wanted(connection, partition, before, target)
        after = min(max(wanted, partition.log_start_offset), partition.log_end_offset)
        plan.append(OffsetReset(tp.topic, tp.partition, before, after))
    return plan


def _wanted(
    connection: sqlite3.Connection, partition: Partition, before: int, target: Target
) -> int:
    """The target as an offset, perhaps outside the log. `before` is the committed one, -1 for none."""
    name, number = target
    if name == "to_offset":
        return number
    if name == "to_current" and before >= 0:
        return before
    if name == "shift_by":
        if before < 0:
            raise InvalidRequestError(
                f"{partition.topic_partition}: the group has no committed offset to shift; name a target, "
                "such as to_earliest"
            )
        return before + number
    timestamp = {"to_earliest": EARLIEST, "to_timestamp": number}.get(name, LATEST)
    first = by_time.list_offset(connection, partition, timestamp, read_committed=False)
    return partition.log_end_offset if first.offset < 0 else first.offset


def describe_group_offsets(core: Core, group_id: str) -> GroupReport:
    """Return the group's offset and true lag in each partition, and the member that reads it. Raises
    GroupIdNotFoundError and GroupAuthorizationFailedError."""
    check_group_id(group_id)
    with core.reading("describe", "group", group_id) as connection:
        report = diagnosis.group_report(
            connection, group_id, core.coordinator.foresight(connection)
        )
    if report.state == GroupState.DEAD.value:
        raise GroupIdNotFoundError(f"there is no group {group_id!r}")
    return report


def describe_group_config(core: Core, group_id: str) -> list[configs.ConfigEntry]:
    """Return every setting that a group can have (KIP-848), with the effective value and its source:
    the group, the broker, or the default. Raises GroupAuthorizationFailedError."""
    check_group_id(group_id)
    with core.reading("describe_configs", "group", group_id) as connection:
        return configs.of_group(core.config, group_configs.own(connection, group_id))


def list_group_configs(core: Core) -> list[str]:
    """Return the groups with settings of their own. Raises ClusterAuthorizationFailedError."""
    with core.reading("describe_configs", "cluster", CLUSTER) as connection:
        return group_configs.owners(connection)


def alter_group_config(
    core: Core,
    group_id: str,
    config: Mapping[str, object | None],
    *,
    anew: bool = False,
    validate_only: bool = False,
) -> None:
    """Change some of the group's own settings; None resets one to the broker's value, and `anew` first
    drops all of them. The group need not exist yet. Raises InvalidConfigError and
    GroupAuthorizationFailedError."""
    check_group_id(group_id)
    check_mapping("config", config)

    def altered(source: Source) -> list[GroupConfigAltered]:
        core.authorizer.check(source, "alter_configs", "group", group_id)
        now, own = core.clock.time_ms(), group_configs.own(source, group_id)
        kept = dict.fromkeys(own, None) | dict(config) if anew else config
        event = group_configs.checked(group_id, own, kept, core.config, now)
        return [] if event is None else [event]

    core.change(altered, validate_only=validate_only)


def reset_offsets(
    core: Core,
    group_id: str,
    topic_partitions: Iterable[TopicPartition],
    *,
    to_earliest: bool = False,
    to_latest: bool = False,
    to_current: bool = False,
    to_offset: int | None = None,
    to_timestamp: int | None = None,
    shift_by: int | None = None,
    execute: bool = False,
) -> list[OffsetReset]:
    """Reset the group's offsets: to the log's beginning or end; to the current offset (the end if
    there is none); to an offset; to the first record at or after a time (ms; the end if there is
    none); or forward by a number of offsets (back if negative).

    Give exactly one target. Offsets outside the log become its beginning or end. Without `execute`
    nothing is changed, only reported. Raises NonEmptyGroupError while the group has members,
    InvalidRequestError, UnknownTopicOrPartitionError and the authorization errors.
    """
    check_group_id(group_id)
    tps = check_topic_partitions(topic_partitions)
    flags = {"to_earliest": to_earliest, "to_latest": to_latest, "to_current": to_current}
    numbers = {"to_offset": to_offset, "to_timestamp": to_timestamp, "shift_by": shift_by}
    given = [(name, 0) for name, is_given in flags.items() if is_given]
    for name, number in numbers.items():
        if number is not None:
            low, high = (-(2**62), 2**62) if name == "shift_by" else (0, INT64_MAX)
            given.append((name, check_int(name, number, low, high)))
    if len(given) != 1:
        raise InvalidRequestError(
            "expected exactly one of to_earliest, to_latest, to_current, to_offset, to_timestamp "
            f"and shift_by, got {len(given)}"
        )
    if not execute:
        with core.reading("describe", "group", group_id) as connection:
            return _plan(core, connection, group_id, tps, given[0])

    def reset(unit: Unit) -> list[OffsetReset]:
        resets = _plan(core, unit.connection, group_id, tps, given[0])
        offsets = {
            TopicPartition(it.topic, it.partition): OffsetAndMetadata(it.after) for it in resets
        }
        if to_earliest:  # Everything is read again, also what is finished beyond the offset.
            for tp, standing in group_offsets.fetch(unit.connection, group_id, tps).items():
                if finished.is_processors(standing.metadata):
                    offsets[tp] = finished.from_here(offsets[tp])
        request = OffsetCommit(group=ConsumerGroupMetadata(group_id), offsets=offsets)
        commit_offsets(core, unit, request, checked(request))
        return resets

    return core.coordinator.write(reset)
