"""The requests about groups' offsets: OffsetCommit, OffsetFetch, OffsetDelete and DeleteGroups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from eosdb.broker.handler import RequestHandler, Rules
from eosdb.coordinator.groups import consumer_decisions
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.consumer_group import ConsumerGroup
from eosdb.coordinator.groups.decisions import (
    Group,
    check_commit,
    check_offset_delete,
    check_unsubscribed,
)
from eosdb.errors import (
    ApiError,
    GroupIdNotFoundError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownTopicIdError,
)
from eosdb.events.kinds import OffsetCommit, OffsetsCommitted
from eosdb.log import partition_rows, topics
from eosdb.model.validation import (
    check_given_group_id,
    check_group_id,
    check_int,
    check_name,
    check_topic_partitions,
)
from eosdb.model.values import OffsetAndMetadata, TopicPartition
from eosdb.store.writing.unit import Unit

P = TypeVar("P", OffsetCommit, TopicPartition)
Refused = group_offsets.Refused


class Committer(NamedTuple):
    """Who commits offsets: a member of a generation (KIP-447), by default a client that is not a member."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: Mapping[TopicPartition, UUID] = {}
    """The ids of the topics that were read, where the committer knows them."""

    def checked(self) -> Committer:
        """The committer itself; raises InvalidRequestError for values of other types."""
        check_int("generation_id", self.generation_id, -(2**31))
        check_name("member_id", self.member_id)
        if self.group_instance_id is not None:
            check_name("group_instance_id", self.group_instance_id)
        return self


class OffsetRequests(RequestHandler):
    """The part of `Broker` for groups' offsets."""

    def offset_commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        topic_ids: Mapping[TopicPartition, UUID] | None = None,
        refused: Refused | None = None,
    ) -> None:
        """Commit offsets of the group, all of them or none.

        With a dict `refused`, each partition by itself as in Kafka: the dict gets the error of each
        partition that does not exist, may not be read or has too much metadata, and the other offsets are
        committed. A member passes its member id and its generation, or member epoch; the defaults are for
        groups without members. Raises OffsetOutOfRangeError if the topic's id is not the one in `topic_ids`
        (it was deleted and recreated), UnknownTopicOrPartitionError, OffsetMetadataTooLargeError,
        UnknownMemberIdError, IllegalGenerationError, StaleMemberEpochError, FencedInstanceIdError,
        RebalanceInProgressError, GroupIdNotFoundError and the authorization errors.
        """
        committer = Committer(
            generation_id, member_id, group_instance_id, topic_ids or {}
        ).checked()
        check_group_id(group_id)
        commits = group_offsets.check_offsets(offsets, refused)
        self._coordinator.write(
            lambda unit: commit_offsets(self._core, unit, group_id, commits, committer, refused)
        )

    def offset_fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
        refused: Refused | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; partitions without one are absent.

        With `require_stable`, raises UnstableOffsetCommitError if an open transaction has a pending offset
        for one of them; raises TopicAuthorizationFailedError. With a dict `refused`, the dict gets these
        errors instead, by partition. If `partitions` is None, those that may not be described are left out.

        A member of a group whose partitions the coordinator assigns passes its id and epoch; raises
        UnknownMemberIdError, StaleMemberEpochError, and IllegalGenerationError for a classic member.
        """
        check_group_id(group_id)
        if member_id is not None:
            check_name("member_id", member_id)
        check_int("member_epoch", member_epoch, -(2**31))
        requested: Sequence[TopicPartition] | None = None
        if partitions is not None:
            requested = check_topic_partitions(partitions)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "group", group_id)
            group = group_rows.load(connection, group_id)
            if isinstance(group, ConsumerGroup):
                consumer_decisions.check_fetch(group, member_id, member_epoch)
            if requested is not None:
                requested = group_offsets.accepted(
                    requested,
                    lambda tp: self._authorizer.check(connection, "describe", "topic", tp.topic),
                    refused,
                )
            offsets = group_offsets.fetch(
                connection, group_id, requested, require_stable=require_stable, refused=refused
            )
            if requested is not None:
                return offsets
            return {
                tp: offset
                for tp, offset in offsets.items()
                if self._authorizer.allows(connection, "describe", "topic", tp.topic)
            }

    def offset_delete(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        refused: Refused | None = None,
    ) -> None:
        """Delete offsets of the group, also pending ones: all of them or none; with a dict `refused`, each
        partition by itself.

        Raises GroupIdNotFoundError, InvalidGroupIdError, GroupSubscribedToTopicError while a member is
        subscribed to one of the topics, and NonEmptyGroupError while the group has members that are not
        consumers.
        """
        check_given_group_id(group_id)
        self._forget_offsets(group_id, partitions, refused)

    def delete_group(self, group_id: str) -> None:
        """Delete the group and all its offsets. Raises GroupIdNotFoundError, NonEmptyGroupError."""
        self._forget_offsets(group_id, None, None)

    def _forget_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        refused: Refused | None,
    ) -> None:
        """Delete the offsets of these partitions; None deletes the group with all its offsets."""
        check_group_id(group_id)
        tps = None if partitions is None else check_topic_partitions(partitions)
        reason = "group deleted" if tps is None else "deleted"

        def delete(unit: Unit) -> None:
            self._authorizer.check(unit, "delete", "group", group_id)
            group = group_rows.load(unit, group_id)
            classic = None if isinstance(group, ConsumerGroup) else group
            if tps is None and group is not None and group.members:
                raise NonEmptyGroupError(
                    f"group {group_id!r} has {len(group.members)} members; it can be deleted when "
                    "all of them have left"
                )
            left = None
            if tps is not None:
                check_offset_delete(classic)
                readable = admitted(self._core, unit, tps, refused)

                def check(tp: TopicPartition) -> None:
                    if isinstance(group, ConsumerGroup):
                        number = partition_rows.load(unit, tp).topic_id
                        consumer_decisions.check_unsubscribed(group, tp.topic, number)
                    check_unsubscribed(classic, tp.topic)

                left = group_offsets.accepted(readable, check, refused)
            group_offsets.delete(unit, group_id, left, reason, self._clock.time_ms())

        self._coordinator.write(delete)


def commit_offsets(
    rules: Rules,
    unit: Unit,
    group_id: str,
    commits: tuple[OffsetCommit, ...],
    committer: Committer,
    refused: Refused | None = None,
) -> None:
    """`offset_commit` inside a unit that the caller has begun."""
    rules.authorizer.check(unit, "read", "group", group_id)
    readable = admitted(rules, unit, commits, refused)
    offsets = still_here(rules, unit, group_id, readable, committer, refused)
    if refused and not offsets:
        return
    unknown = GroupIdNotFoundError(f"there is no group {group_id!r}")
    now_ms = rules.clock.time_ms()
    check_committer(unit, group_id, committer, now_ms, unknown, is_transactional=False)
    kept = group_offsets.accepted(
        offsets, lambda commit: group_offsets.check_metadata(commit, rules.config), refused
    )
    if kept:
        unit.record(OffsetsCommitted(timestamp=now_ms, group_id=group_id, offsets=kept))


def admitted(
    rules: Rules, unit: Unit, items: Sequence[P], refused: Refused | None
) -> tuple[P, ...]:
    """The partitions that exist and that the principal may read; the errors of the others go into
    `refused`, or are raised if it is None."""
    if refused is not None:
        refused.clear()  # The unit may be run again.
    readable = group_offsets.accepted(
        items, lambda item: rules.authorizer.check(unit, "read", "topic", item.topic), refused
    )
    return group_offsets.accepted(
        readable, lambda item: group_offsets.check_exists(unit, item), refused
    )


def still_here(
    rules: Rules,
    unit: Unit,
    group_id: str,
    commits: Sequence[OffsetCommit],
    committer: Committer,
    refused: Refused | None,
) -> tuple[OffsetCommit, ...]:
    """The commits whose topic is still the one that was read, and is not closed because it moves to a Kafka
    cluster (positions that eosdb itself keeps may still be committed). Raises OffsetOutOfRangeError and
    PolicyViolationError, or puts them into `refused`."""

    def check(commit: OffsetCommit) -> None:
        tp = TopicPartition(commit.topic, commit.partition)
        partition = partition_rows.load(unit, tp)
        if (read := committer.topic_ids.get(tp)) is not None:
            try:
                topics.check_id(unit, partition.topic_id, read)
            except UnknownTopicIdError as error:
                raise OffsetOutOfRangeError(
                    f"{tp}: offset {commit.offset} is of a topic that is gone ({error}); read the "
                    "topic that has the name now from its beginning"
                ) from error
        closed = partition_rows.config(unit, partition.topic_id, rules.config).closed
        if closed and not group_id.startswith(group_offsets.NOTES):
            raise PolicyViolationError(f"{commit.topic}-{commit.partition}: {closed}")

    return group_offsets.accepted(commits, check, refused)


def check_committer(
    unit: Unit,
    group_id: str,
    committer: Committer,
    now_ms: int,
    unknown_group: ApiError,
    *,
    is_transactional: bool,
) -> None:
    """Check that the committer may commit for the group, and renew the session if it is a member."""
    group = group_rows.load(unit, group_id)
    if isinstance(group, ConsumerGroup):
        # Only heartbeats keep such a member alive.
        consumer_decisions.check_commit(
            group,
            committer.member_id,
            committer.generation_id,
            committer.group_instance_id,
            is_transactional=is_transactional,
        )
        return
    if group is None and group_offsets.exists(unit, group_id):
        group = Group(group_id)
    check_commit(
        group,
        committer.member_id,
        committer.generation_id,
        committer.group_instance_id,
        is_transactional=is_transactional,
        unknown_group=unknown_group,
    )
    member = None if group is None else group.member(committer.member_id)
    if member is not None:
        group_rows.renew_session(unit, group_id, member, now_ms)
