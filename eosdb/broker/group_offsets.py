"""The requests about groups' offsets: OffsetCommit, OffsetFetch, OffsetDelete and DeleteGroups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from eosdb.broker.handler import Core, RequestHandler
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.decisions import Group, check_commit, check_offset_delete
from eosdb.errors import ApiError, GroupIdNotFoundError, NonEmptyGroupError
from eosdb.events.kinds import OffsetCommit, OffsetsCommitted
from eosdb.model.values import OffsetAndMetadata, TopicPartition
from eosdb.store.writing.unit import Unit
from eosdb.validation import check_group_id, check_int, check_text, check_topic_partitions


class Committer(NamedTuple):
    """The committer of offsets: nobody in particular, or a member of a generation (KIP-447)."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def checked(self) -> Committer:
        """Raises InvalidRequestError."""
        check_int("generation_id", self.generation_id, -1)
        check_text("member_id", self.member_id)
        if self.group_instance_id is not None:
            check_text("group_instance_id", self.group_instance_id)
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
    ) -> None:
        """Commit offsets of the group, all of them or none.

        A member names its generation and itself; -1 and "" are for groups without members. Raises
        UnknownTopicOrPartitionError, OffsetMetadataTooLargeError, UnknownMemberIdError,
        IllegalGenerationError, FencedInstanceIdError, RebalanceInProgressError,
        GroupIdNotFoundError and the authorization errors.
        """
        committer = Committer(generation_id, member_id, group_instance_id).checked()
        check_group_id(group_id)
        commits = group_offsets.check_offsets(offsets)
        self._coordinator.write(
            lambda unit: commit_offsets(self._core, unit, group_id, commits, committer)
        )

    def offset_fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; partitions without one are absent.

        Raises UnstableOffsetCommitError when `require_stable` and a transaction holds one of them.
        """
        check_group_id(group_id)
        asked = None if partitions is None else check_topic_partitions(partitions)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "group", group_id)
            return group_offsets.fetch(connection, group_id, asked, require_stable=require_stable)

    def offset_delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete offsets of the group, pending ones too: all of them or none.

        Raises GroupIdNotFoundError, GroupSubscribedToTopicError while a member subscribes to one of the
        topics, and NonEmptyGroupError while the group has members that are not consumers.
        """
        self._forget_offsets(group_id, partitions)

    def delete_group(self, group_id: str) -> None:
        """Delete the group and all its offsets. Raises GroupIdNotFoundError, NonEmptyGroupError."""
        self._forget_offsets(group_id, None)

    def _forget_offsets(self, group_id: str, partitions: Iterable[TopicPartition] | None) -> None:
        """Delete the offsets of these partitions; None: of all, and the group with them."""
        check_group_id(group_id)
        tps = None if partitions is None else check_topic_partitions(partitions)
        reason = "group deleted" if tps is None else "deleted"

        def delete(unit: Unit) -> None:
            self._authorizer.check(unit, "delete", "group", group_id)
            group = group_rows.load(unit, group_id)
            if tps is None and group is not None and group.members:
                raise NonEmptyGroupError(
                    f"group {group_id!r} has {len(group.members)} members; it can be deleted when "
                    "all of them have left"
                )
            if tps is not None:
                check_offset_delete(group, {tp.topic for tp in tps})
            group_offsets.delete(unit, group_id, tps, reason, self._clock.time_ms())

        self._coordinator.write(delete)


def commit_offsets(
    core: Core, unit: Unit, group_id: str, commits: tuple[OffsetCommit, ...], committer: Committer
) -> None:
    """`offset_commit` inside a unit that the caller has begun."""
    core.authorizer.check(unit, "read", "group", group_id)
    for topic in sorted({commit.topic for commit in commits}):
        core.authorizer.check(unit, "read", "topic", topic)
    unknown = GroupIdNotFoundError(f"there is no group {group_id!r}")
    now_ms = core.clock.time_ms()
    check_committer(unit, group_id, committer, now_ms, unknown, is_transactional=False)
    group_offsets.check_stored(unit, commits, core.config)
    if commits:
        unit.record(OffsetsCommitted(timestamp=now_ms, group_id=group_id, offsets=commits))


def check_committer(
    unit: Unit,
    group_id: str,
    committer: Committer,
    now_ms: int,
    unknown_group: ApiError,
    *,
    is_transactional: bool,
) -> None:
    """Check that the committer may commit for the group; a member's session is renewed."""
    group = group_rows.load(unit, group_id)
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
