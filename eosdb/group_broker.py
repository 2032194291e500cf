"""The requests about consumer groups, by their Kafka names: membership and offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from eosdb.broker.group_offsets import Committer, GroupRequests
from eosdb.broker.membership import GroupMembership
from eosdb.clock import Clock
from eosdb.config import BrokerConfig
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.errors import IllegalGenerationError
from eosdb.model.values import (
    GroupDescription,
    JoinGroupResult,
    OffsetAndMetadata,
    SyncGroupResult,
    TopicPartition,
)
from eosdb.store.store import Store
from eosdb.store.writing.unit import Unit


class GroupBroker:
    """The half of the broker that groups talk to."""

    def __init__(
        self,
        store: Store,
        coordinator: TransactionCoordinator,
        clock: Clock,
        config: BrokerConfig,
        authorizer: Authorizer,
    ) -> None:
        self._groups = GroupRequests(store, coordinator, clock, config, authorizer)
        self._membership = GroupMembership(store, coordinator, clock, config, authorizer)

    # -- membership (Kafka's classic protocol) --------------------------------------------------

    def join_group(
        self,
        group_id: str,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        protocol_type: str = "consumer",
        protocols: Sequence[tuple[str, bytes]] = (),
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
    ) -> JoinGroupResult:
        """Be a member of the group's next generation.

        Without `member_id` a new one is given. Nobody waits: while the answer is not complete other
        members have yet to join, so join again, with the member id. Raises
        InconsistentGroupProtocolError, UnknownMemberIdError, FencedInstanceIdError,
        InvalidSessionTimeoutError, InvalidGroupIdError and GroupAuthorizationFailedError.
        """
        return self._membership.join(
            group_id,
            member_id,
            group_instance_id,
            client_id,
            protocol_type,
            protocols,
            session_timeout_ms,
            rebalance_timeout_ms,
        )

    def sync_group(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        *,
        group_instance_id: str | None = None,
        assignments: Mapping[str, bytes] | None = None,
    ) -> SyncGroupResult:
        """Give every member its assignment (the leader), or get one's own.

        While the answer is not complete the leader has yet to sync: sync again. Raises
        IllegalGenerationError, UnknownMemberIdError, FencedInstanceIdError and
        RebalanceInProgressError: join again.
        """
        return self._membership.sync(
            group_id, generation_id, member_id, group_instance_id, assignments or {}
        )

    def heartbeat(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        *,
        group_instance_id: str | None = None,
    ) -> None:
        """Stay a member for another session timeout. Errors as for sync_group."""
        self._membership.heartbeat(group_id, generation_id, member_id, group_instance_id)

    def leave_group(self, group_id: str, member_ids: str | Collection[str]) -> None:
        """Leave: all of these members or none. Raises UnknownMemberIdError."""
        ids = {member_ids} if isinstance(member_ids, str) else set(member_ids)
        self._membership.leave(group_id, ids)

    def describe_group(self, group_id: str) -> GroupDescription:
        """The group's state, generation and members. Raises GroupIdNotFoundError."""
        return self._membership.describe(group_id)

    def list_groups(self) -> list[str]:
        """Every group that has members or offsets and that the principal may describe."""
        return self._membership.names()

    # -- offsets --------------------------------------------------------------------------------

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
        self._groups.commit(
            group_id, offsets, Committer(generation_id, member_id, group_instance_id).checked()
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
        return self._groups.fetch(group_id, partitions, require_stable=require_stable)

    def offset_delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget offsets of the group, pending ones too: all of them or none.

        Raises GroupIdNotFoundError, GroupSubscribedToTopicError while a member subscribes to one of the
        topics, and NonEmptyGroupError while the group has members that are no consumers.
        """
        self._groups.delete(group_id, partitions)

    def delete_group(self, group_id: str) -> None:
        """Forget the group and all its offsets. Raises GroupIdNotFoundError, NonEmptyGroupError."""
        self._groups.delete(group_id, None)

    def _may_commit(self, group_id: str, committer: Committer) -> Callable[[Unit], None]:
        """The check of a commit inside a transaction (KIP-447)."""
        committer.checked()
        unknown = IllegalGenerationError(
            f"there is no group {group_id!r}, got a commit of generation {committer.generation_id}"
        )
        return lambda unit: self._groups.check_commit(
            unit, group_id, committer, unknown, is_transactional=True
        )
