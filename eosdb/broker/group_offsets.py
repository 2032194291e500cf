"""The requests about groups' offsets: OffsetCommit, OffsetFetch, OffsetDelete and DeleteGroups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eosdb.broker.core import Core, Rules, Write, answers, prepares
from eosdb.coordinator.groups import consumer_decisions
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.consumer_decisions import ConsumerGroup
from eosdb.coordinator.groups.decisions import (
    Group,
    check_commit,
    check_offset_delete,
    check_unsubscribed,
)
from eosdb.errors import (
    ApiError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownTopicIdError,
)
from eosdb.events.kinds import OffsetCommit, OffsetsCommitted
from eosdb.log import partition_rows, topics
from eosdb.model import finished, requests
from eosdb.model.requests import OffsetErrors
from eosdb.model.validation import (
    check_given_group_id,
    check_group_id,
    check_int,
    check_name,
    check_topic_partitions,
)
from eosdb.model.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from eosdb.store.writing.unit import Unit

Commit = requests.OffsetCommit | requests.TxnOffsetCommit


@prepares(requests.OffsetCommit)
def offset_commit(core: Core, request: requests.OffsetCommit) -> Write[OffsetErrors]:
    check_group_id(request.group.group_id)
    commits = checked(request)
    return Write(lambda unit: commit_offsets(core, unit, request, commits))


@answers(requests.OffsetFetch)
def offset_fetch(
    core: Core, request: requests.OffsetFetch
) -> dict[TopicPartition, OffsetAndMetadata | ApiError]:
    group_id = request.group_id
    check_group_id(group_id)
    if request.member_id is not None:
        check_name("member_id", request.member_id)
    check_int("member_epoch", request.member_epoch, -(2**31))
    tps = None if request.partitions is None else check_topic_partitions(request.partitions)
    with core.reading("describe", "group", group_id) as connection:
        group = group_rows.load(connection, group_id)
        if isinstance(group, ConsumerGroup):
            consumer_decisions.check_fetch(group, request.member_id, request.member_epoch)
        stored = group_offsets.fetch(connection, group_id, tps)
        offsets = {tp: finished.told(one) for tp, one in stored.items()}
        unstable = group_offsets.pending(connection, group_id) if request.require_stable else {}
        answer: dict[TopicPartition, OffsetAndMetadata | ApiError] = {}
        for tp in offsets if tps is None else tps:
            try:
                core.authorizer.check(connection, "describe", "topic", tp.topic)
            except ApiError as error:
                if tps is not None:
                    answer[tp] = error
            else:
                if (found := unstable.get(tp) or offsets.get(tp)) is not None:
                    answer[tp] = found
        return answer


@prepares(requests.OffsetDelete)
def offset_delete(core: Core, request: requests.OffsetDelete) -> Write[OffsetErrors | None]:
    group_id = request.group_id
    check_given_group_id(group_id)
    tps = check_topic_partitions(request.partitions)

    def delete(unit: Unit) -> OffsetErrors | None:
        core.authorizer.check(unit, "delete", "group", group_id)
        group = group_rows.load(unit, group_id)
        classic = None if isinstance(group, ConsumerGroup) else group
        check_offset_delete(classic)

        def check(tp: TopicPartition) -> None:
            core.authorizer.check(unit, "read", "topic", tp.topic)
            number = partition_rows.load(unit, tp).topic_id
            if isinstance(group, ConsumerGroup):
                consumer_decisions.check_unsubscribed(group, tp.topic, number)
            check_unsubscribed(classic, tp.topic)

        errors = group_offsets.judged(tps, check, each=request.each)
        left = group_offsets.passed(tps, errors)
        group_offsets.delete(unit, group_id, left, "deleted", core.clock.time_ms())
        return errors if request.each else None

    return Write(delete)


@prepares(requests.DeleteGroup)
def delete_group(core: Core, request: requests.DeleteGroup) -> Write[None]:
    group_id = request.group_id
    check_group_id(group_id)

    def delete(unit: Unit) -> None:
        core.authorizer.check(unit, "delete", "group", group_id)
        group = group_rows.load(unit, group_id)
        if group is not None and group.members:
            raise NonEmptyGroupError(
                f"group {group_id!r} has {len(group.members)} members; it can be deleted when "
                "all of them have left"
            )
        group_offsets.delete(unit, group_id, None, "group deleted", core.clock.time_ms())

    return Write(delete)


def checked(request: Commit) -> tuple[OffsetCommit, ...]:
    """The offsets of a commit. Raises InvalidRequestError for values of other types, and for negative
    offsets unless `each`: Kafka accepts them, and its clients treat them as none."""
    group = request.group
    check_int("generation_id", group.generation_id, -(2**31))
    check_name("member_id", group.member_id)
    if group.group_instance_id is not None:
        check_name("group_instance_id", group.group_instance_id)
    return group_offsets.check_offsets(request.offsets, -(2**63) if request.each else 0)


def commit_offsets(
    rules: Rules, unit: Unit, request: requests.OffsetCommit, commits: tuple[OffsetCommit, ...]
) -> OffsetErrors:
    """Commit the offsets that `checked` has returned."""
    group_id = request.group.group_id
    errors = admitted(rules, unit, request, commits)
    left = group_offsets.passed(commits, errors)
    if commits and not left:
        return errors
    now_ms = rules.clock.time_ms()
    check_committer(unit, request.group, left, now_ms, is_transactional=False)
    settled = group_offsets.settled(unit, group_id, left)
    kept, errors = short_enough(rules, request, settled, errors)
    if kept:
        unit.record(OffsetsCommitted(timestamp=now_ms, group_id=group_id, offsets=kept))
    return errors


def admitted(
    rules: Rules, unit: Unit, request: Commit, commits: Sequence[OffsetCommit]
) -> OffsetErrors:
    """Authorize a commit, and check its partitions: each must exist and be readable, its topic must still
    be the one that was read, and must not be closed for its move to a Kafka cluster. (eosdb's own
    positions may still be committed.)"""
    group = request.group
    rules.authorizer.check(unit, "read", "group", group.group_id)

    def check(commit: OffsetCommit) -> None:
        rules.authorizer.check(unit, "read", "topic", commit.topic)
        tp = TopicPartition(commit.topic, commit.partition)
        partition = partition_rows.load(unit, tp)
        if (read := group.topic_ids.get(tp)) is not None:
            try:
                topics.check_id(unit, partition.topic_id, read)
            except UnknownTopicIdError as error:
                raise OffsetOutOfRangeError(
                    f"{tp}: offset {commit.offset} belongs to a deleted topic ({error}); read the "
                    "new topic of this name from its beginning"
                ) from error
        closed = partition_rows.config(unit, partition.topic_id, rules.config).closed
        if closed and not group.group_id.startswith(group_offsets.NOTES):
            raise PolicyViolationError(f"{commit.topic}-{commit.partition}: {closed}")

    return group_offsets.judged(commits, check, each=request.each)


def short_enough(
    rules: Rules, request: Commit, commits: Sequence[OffsetCommit], errors: OffsetErrors
) -> tuple[tuple[OffsetCommit, ...], OffsetErrors]:
    """The commits with metadata within the limit; adds the errors of the others."""
    judged = group_offsets.judged(
        commits,
        lambda commit: group_offsets.check_metadata(commit, rules.config),
        each=request.each,
    )
    return group_offsets.passed(commits, judged), errors | judged


def check_committer(
    unit: Unit,
    by: ConsumerGroupMetadata,
    commits: Iterable[OffsetCommit],
    now_ms: int,
    *,
    is_transactional: bool,
) -> None:
    """Check that the committer may make these commits for the group, and renew a member's session."""
    group = group_rows.load(unit, by.group_id)
    committer = by.member_id, by.generation_id, by.group_instance_id
    if isinstance(group, ConsumerGroup):
        # A commit does not renew the session here: in the new protocol only heartbeats keep a member alive.
        tps = (TopicPartition(*commit[:2]) for commit in commits)
        partitions = frozenset((partition_rows.load(unit, tp).topic_id, tp.partition) for tp in tps)
        consumer_decisions.check_commit(
            group, *committer, partitions=partitions, is_transactional=is_transactional
        )
        return
    if group is None and group_offsets.exists(unit, by.group_id):
        group = Group(by.group_id)
    check_commit(group, *committer, group_id=by.group_id, is_transactional=is_transactional)
    member = None if group is None else group.member(by.member_id)
    if member is not None:
        group_rows.renew_session(unit, by.group_id, member, now_ms)
