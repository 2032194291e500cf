"""The requests about groups' offsets: checked, authorised, then carried out in one unit each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eosdb.clock import Clock
from eosdb.config import BrokerConfig
from eosdb.coordinator import group_offsets
from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.errors import GroupIdNotFoundError
from eosdb.events import OffsetsCommitted
from eosdb.model import OffsetAndMetadata, TopicPartition
from eosdb.store.store import Store
from eosdb.store.unit import Unit
from eosdb.validation import check_group_id, check_topic_partitions


class GroupRequests:
    """OffsetCommit, OffsetFetch, OffsetDelete and DeleteGroups."""

    def __init__(
        self,
        store: Store,
        coordinator: TransactionCoordinator,
        clock: Clock,
        config: BrokerConfig,
        authorizer: Authorizer,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._config = config
        self._authorizer = authorizer

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation_id: int,
    ) -> None:
        """All of the offsets or none."""
        check_group_id(group_id)
        commits = group_offsets.check_offsets(offsets)

        def commit(unit: Unit) -> None:
            self._authorizer.check(unit, "read", "group", group_id)
            for topic in sorted({c.topic for c in commits}):
                self._authorizer.check(unit, "read", "topic", topic)
            group_offsets.check_generation(unit, group_id, generation_id, GroupIdNotFoundError)
            group_offsets.check_stored(unit, commits, self._config)
            if commits:
                now = self._clock.time_ms()
                unit.record(OffsetsCommitted(timestamp=now, group_id=group_id, offsets=commits))

        self._coordinator.write(commit)

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
            group_offsets.delete(unit, group_id, tps, reason, self._clock.time_ms())

        self._coordinator.write(delete)
