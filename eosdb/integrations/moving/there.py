"""The cluster's side of a move: its topics, its records, and the offsets of its groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from eosdb.errors import GroupIdNotFoundError
from eosdb.integrations.moving.plan import Group, TopicHere, TopicThere
from eosdb.integrations.relay.kafka_client import TIMEOUT_S, KafkaClient
from eosdb.integrations.relay.kafka_ends import Hidden, all_records
from eosdb.integrations.relay.positions import Keeper
from eosdb.integrations.relay.values import RelayRecord
from eosdb.model.values import TopicPartition


class There:
    """The cluster. Used by one thread."""

    def __init__(self, client: KafkaClient, positions_topic: str) -> None:
        self._client: Final = client
        self._kafka: Final = client.module
        self._positions_topic: Final = positions_topic
        self.where: Final = client.where

    def id(self) -> str:
        return self._client.cluster_id()

    def rest(self) -> None:
        self._client.rest()

    def ids(self, topics: Iterable[TopicHere]) -> Mapping[str, str]:
        """The known ids of those topics that the cluster has."""
        return self._client.topic_ids(topic.name for topic in topics)

    def topics(
        self, requested: Iterable[TopicHere], relayed: Collection[str]
    ) -> dict[str, TopicThere]:
        """Those of the topics that the cluster has; `relayed` are topics to which the relay has written."""
        partitions = self._client.partitions()
        names = [topic.name for topic in requested if topic.name in partitions]
        configs, result = self._client.configs(names), {}
        for name in names:
            config = {
                key: entry.value for key, entry in configs[name].items() if entry.value is not None
            }
            is_empty = name not in relayed and self._is_empty(name, partitions[name])
            result[name] = TopicThere(partitions[name], config, is_empty)
        return result

    def _is_empty(self, name: str, partitions: int) -> bool:
        """Whether the topic has no committed records; records of a killed relay's open transaction do not
        count."""
        return not any(
            True
            for number in range(partitions)
            for _ in self.records(TopicPartition(name, number), [], hidden="skip")
        )

    def has_deleted(self, tp: TopicPartition) -> bool:
        return self._client.start(*tp) > 0

    def positions(self, relay: str, source_id: str) -> dict[TopicPartition, int]:
        """The relay's positions, as stored in the cluster."""
        if self._positions_topic not in self._client.partitions():
            return {}
        tp = TopicPartition(self._positions_topic, 0)
        records = ((record.key, record.value) for record in self.records(tp, [], hidden="skip"))
        standing = Keeper(relay, source_id, self._positions_topic).standing(records)
        return {tp: position.offset for tp, position in standing.positions.items()}

    # -- groups ---------------------------------------------------------------------------------------

    def groups(self, requested: Sequence[Group], there: Iterable[str]) -> dict[str, Group]:
        """The members and offsets that the groups have in the cluster, in those topics that exist there."""
        existing, result = set(there), {}
        for group in requested:
            tps = [tp for tp in group.offsets if tp.topic in existing]
            result[group.name] = Group(
                group.name, self._members(group.name), self._offsets(group.name, tps)
            )
        return result

    def _members(self, name: str) -> int:
        with self._client.translating():
            futures = self._client.admin.describe_consumer_groups([name], request_timeout=TIMEOUT_S)
        try:
            with self._client.translating():
                return len(futures[name].result().members)
        except GroupIdNotFoundError:
            return 0

    def _offsets(self, name: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not tps:
            return {}
        request = self._kafka.ConsumerGroupTopicPartitions(
            name, [self._kafka.TopicPartition(*tp) for tp in tps]
        )
        try:
            with self._client.translating():
                futures = self._client.admin.list_consumer_group_offsets(
                    [request], request_timeout=TIMEOUT_S
                )
                result = futures[name].result()
        except GroupIdNotFoundError:
            return {}
        offsets = {}
        for place in result.topic_partitions:
            if place.error is not None:
                raise self._client.meaning(place.error, place.topic)
            if place.offset >= 0:
                offsets[TopicPartition(place.topic, place.partition)] = int(place.offset)
        return offsets

    def commit(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        kafka = self._kafka
        wanted = kafka.ConsumerGroupTopicPartitions(
            name, [kafka.TopicPartition(*tp, offset) for tp, offset in offsets.items()]
        )
        with self._client.translating():
            futures = self._client.admin.alter_consumer_group_offsets(
                [wanted], request_timeout=TIMEOUT_S
            )
            result = futures[name].result()
        for place in result.topic_partitions:
            if place.error is not None:
                raise self._client.meaning(place.error, place.topic)

    # -- records --------------------------------------------------------------------------------------

    def records(
        self, tp: TopicPartition, ended: list[int], *, hidden: Hidden = "refuse"
    ) -> Iterator[RelayRecord]:
        """`all_records` of the cluster."""
        return all_records(self._client, tp, ended, hidden=hidden)
