"""The requests about groups' offsets: checked, authorised, then carried out in one unit each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from eosdb.broker.handler import RequestHandler
from eosdb.coordinator.groups import offsets as group_offsets
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.decisions import Group, check_commit, check_offset_delete
from eosdb.errors import ApiError, GroupIdNotFoundError, NonEmptyGroupError
from eosdb.events.kinds import OffsetCommit, OffsetsCommitted
from eosdb.model.values import OffsetAndMetadata, TopicPartition
from eosdb.store.writing.unit import Unit
from eosdb.validation import check_group_id, check_int, check_text, check_topic_partitions


class Committer(NamedTuple):
    """Who commits offsets: nobody in particular, or a member of a generation (KIP-447)."""

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


class GroupRequests(RequestHandler):
    """OffsetCommit, OffsetFetch, OffsetDelete and DeleteGroups."""

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        committer: Committer,
    ) -> None:
        """All of the offsets or none."""
        check_group_id(group_id)
        commits = group_offsets.check_offsets(offsets)
        self._coordinator.write(lambda unit: self.commit_in(unit, group_id, commits, committer))

    def commit_in(
        self, unit: Unit, group_id: str, commits: tuple[OffsetCommit, ...], committer: Committer
    ) -> None:
        """The same inside a unit that the caller has begun."""
        self._authorizer.check(unit, "read", "group", group_id)
        for topic in sorted({c.topic for c in commits}):
            self._authorizer.check(unit, "read", "topic", topic)
        unknown = GroupIdNotFoundError(f"there is no group {group_id!r}")
        self.check_commit(unit, group_id, committer, unknown, is_transactional=False)
        group_offsets.check_stored(unit, commits, self._config)
        if commits:
            now = self._clock.time_ms()
            unit.record(OffsetsCommitted(timestamp=now, group_id=group_id, offsets=commits))

    def check_commit(
        self,
        unit: Unit,
        group_id: str,
        committer: Committer,
        unknown_group: ApiError,
        *,
        is_transactional: bool,
    ) -> None:
        """Whether the committer may commit for the group; if it is a member, it is alive."""
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
            group_rows.renew_session(unit, group_id, member, self._clock.time_ms())

    def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets; partitions without one are absent."""
        check_group_id(group_id)
        asked = None if partitions is None else check_topic_partitions(partitions)
        with self._store.read() as connection:
            self._authorizer.check(connection, "describe", "group", group_id)
            return group_offsets.fetch(connection, group_id, asked, require_stable=require_stable)

    def delete(self, group_id: str, partitions: Iterable[TopicPartition] | None) -> None:
        """Forget the offsets of these partitions; None: the whole group."""
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
