"""Both sides of a move. The file: its topics and groups, and closing and opening topics. The cluster: its
topics, records, and group offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from eosdb import errors
from eosdb.admin.tools import Tools
from eosdb.coordinator.groups.offsets import NOTES
from eosdb.database import Database
from eosdb.integrations.moving.plan import MovingGroup, MovingTransaction, TopicHere, TopicThere
from eosdb.integrations.relay import planning
from eosdb.integrations.relay.file_ends import records_of
from eosdb.integrations.relay.kafka_client import KafkaClient
from eosdb.integrations.relay.kafka_ends import Hidden, all_records
from eosdb.integrations.relay.status import Keeper
from eosdb.integrations.relay.values import RelayRecord
from eosdb.model import finished
from eosdb.model.requests import AlterTopicConfig
from eosdb.model.topic_config import MOVED_TO, MOVING_TO, settings
from eosdb.model.values import TopicPartition


class There:
    """The cluster of a move. Used by one thread."""

    def __init__(self, client: KafkaClient, positions_topic: str) -> None:
        self._client: Final = client
        self._kafka: Final = client.module
        self._positions_topic: Final = positions_topic
        self.where: Final = client.where

    def topics(
        self, requested: Iterable[TopicHere], relayed: Collection[str]
    ) -> dict[str, TopicThere]:
        """The requested topics that exist in the cluster. `relayed` are topics that a relay has filled."""
        partitions = self._client.partitions()
        names = [topic.name for topic in requested if topic.name in partitions]
        configs, result = self._client.configs(names), {}
        for name in names:
            config = {
                key: entry.value for key, entry in configs[name].items() if entry.value is not None
            }
            tps = (TopicPartition(name, number) for number in range(partitions[name]))
            # A transaction that a killed relay left open does not count: its records will be aborted.
            is_empty = name not in relayed and not any(
                True for tp in tps for _ in self.records(tp, [], hidden="skip")
            )
            result[name] = TopicThere(partitions[name], config, is_empty)
        return result

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

    def groups(
        self, requested: Sequence[MovingGroup], there: Iterable[str]
    ) -> dict[str, MovingGroup]:
        """The members and offsets of the groups in the cluster, for the topics that exist there."""
        existing, result = set(there), {}
        for group in requested:
            tps = [tp for tp in group.offsets if tp.topic in existing]
            result[group.name] = MovingGroup(
                group.name, self._members(group.name), self._offsets(group.name, tps)
            )
        return result

    def _members(self, name: str) -> int:
        futures = self._client.ask("describe_consumer_groups", [name])
        try:
            with self._client.translating():
                return len(futures[name].result().members)
        except errors.GroupIdNotFoundError:
            return 0

    def _offsets(self, name: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not tps:
            return {}
        wanted = [self._kafka.TopicPartition(*tp) for tp in tps]
        try:
            places = self._places("list_consumer_group_offsets", name, wanted)
        except errors.GroupIdNotFoundError:
            return {}
        return {
            TopicPartition(it.topic, it.partition): int(it.offset)
            for it in places
            if it.offset >= 0
        }

    def commit(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        wanted = [self._kafka.TopicPartition(*tp, offset) for tp, offset in offsets.items()]
        self._places("alter_consumer_group_offsets", name, wanted)

    def _places(self, request: str, name: str, wanted: Sequence[Any]) -> list[Any]:
        """Make a request about offsets of a group, and return the partitions of the answer. Raises the
        error of the group, or of a partition."""
        of_group = self._kafka.ConsumerGroupTopicPartitions(name, wanted)
        futures = self._client.ask(request, [of_group])
        with self._client.translating():
            places = list(futures[name].result().topic_partitions)
        for place in places:
            if place.error is not None:
                raise self._client.meaning(place.error, place.topic)
        return places

    # -- records --------------------------------------------------------------------------------------

    def records(
        self, tp: TopicPartition, ended: list[int], *, hidden: Hidden = "refuse"
    ) -> Iterator[RelayRecord]:
        """Yield all records of a partition (`all_records`)."""
        return all_records(self._client, tp, ended, hidden=hidden)


_AT_ONCE: Final = 5_000
_BYTES: Final = 8_388_608


class Here:
    """The file of a move. Used by one thread."""

    def __init__(self, db: Database) -> None:
        self._db: Final = db
        self.where: Final = db.path
        self._ids: dict[str, UUID] = {}
        """The topics found since `begin`."""

    def begin(self) -> None:
        """Begin a sequence of steps during which no topic may be recreated."""
        self._ids.clear()

    def _check(self, now: Mapping[str, UUID]) -> None:
        """Raises UnknownTopicIdError if a topic was recreated since an earlier step."""
        for name, topic_id in self._ids.items():
            if now.get(name) != topic_id:
                raise errors.UnknownTopicIdError(
                    f"{self.where}: topic {name} was deleted during the move, perhaps recreated. Finished "
                    "steps stay; run the command again to continue with the present topics"
                )

    def _now(self) -> dict[str, UUID]:
        return {topic.name: topic.topic_id for topic in self._db.broker.topic_metadata()}

    def topics(self, requested: Iterable[str] | None) -> tuple[TopicHere, ...]:
        """The topics to move. Raises UnknownTopicOrPartitionError, and UnknownTopicIdError if a topic was
        recreated since the last call."""
        admin, available = self._db.admin, self._now()
        self._check(available)
        names = planning.wanted(available, requested, self.where)
        offsets, result = admin.partition_offsets(), []
        for name in names:
            of = {tp.partition: at for tp, at in offsets.items() if tp.topic == name}
            config = admin.describe_topic(name).config
            result.append(
                TopicHere(
                    name,
                    config,
                    {number: at.last_stable_offset for number, at in sorted(of.items())},
                    {number: at.log_start_offset for number, at in of.items()},
                    config.get(MOVING_TO, ""),
                    config.get(MOVED_TO, ""),
                    Tools(admin).topic_config(name).compact,
                )
            )
        self._ids |= {name: available[name] for name in names}
        self._check(self._now())
        return tuple(result)

    def others(self, topics: Iterable[TopicHere]) -> tuple[str, ...]:
        moving = {topic.name for topic in topics}
        return tuple(name for name in sorted(self._db.admin.list_topics()) if name not in moving)

    def groups(self, topics: Iterable[TopicHere]) -> tuple[MovingGroup, ...]:
        names, result = {topic.name for topic in topics}, []
        for described in self._db.broker.describe_groups():
            name = described.group_id
            if name.startswith(NOTES):
                continue
            offsets = self._db.broker.offset_fetch(name)
            own = {
                tp: at.offset
                for tp, at in sorted(offsets.items())
                if tp.topic in names and at.offset >= 0
            }
            if own:
                beyond = {tp: finished.read(offsets[tp]) for tp in own}
                left = {
                    tp: amid.unfinished or [own[tp]]
                    for tp, amid in beyond.items()
                    if amid.end > own[tp]
                }
                result.append(MovingGroup(name, len(described.members), own, left))
        return tuple(result)

    def open_transactions(self, topics: Iterable[TopicHere]) -> tuple[MovingTransaction, ...]:
        """The open transactions with records of these topics, or with group offsets in them."""
        names = {topic.name for topic in topics}
        transactions: dict[str | None, MovingTransaction] = {}
        for entry in self._db.admin.open_transactions():
            if entry.topic in names:
                name, at = entry.transactional_id, (entry.topic_partition, entry.start_offset)
                transactions[name or str(at)] = MovingTransaction(name, at)
        for listed in self._db.broker.describe_groups():
            try:
                report = self._db.admin.describe_group_offsets(listed.group_id)
            except errors.GroupIdNotFoundError:
                continue
            for partition in report.partitions:
                if partition.topic in names:
                    for name in partition.pending:
                        transactions.setdefault(name, MovingTransaction(name))
        return tuple(transactions.values())

    def counts(self) -> Mapping[str, int]:
        return {
            "transactional_ids": len(self._db.broker.list_transactions()),
            "acls": len(self._db.admin.list_acls()),
            "users": len(
                {credential.user for credential in Tools(self._db.admin).list_credentials()}
            ),
        }

    # -- changes --------------------------------------------------------------------------------------

    def close(self, topics: Iterable[TopicHere], address: str) -> None:
        """From now on, refuse all writes and offset commits of these topics. One commit closes all."""
        self._alter({topic.name: {MOVING_TO: address} for topic in topics if not topic.is_closed})

    def finish(self, topics: Iterable[TopicHere], address: str) -> None:
        self._alter({topic.name: {MOVED_TO: address, MOVING_TO: None} for topic in topics})

    def open(self, topics: Iterable[TopicHere]) -> None:
        self._alter(
            {topic.name: {MOVED_TO: None, MOVING_TO: None} for topic in topics if topic.is_closed}
        )

    def _alter(self, changes: Mapping[str, Mapping[str, object | None]]) -> None:
        requests = [
            AlterTopicConfig(name, settings(config), topic_id=self._ids.get(name))
            for name, config in changes.items()
        ]
        try:
            self._db.broker.turn(requests, sync=True)
        except (errors.UnknownTopicIdError, errors.UnknownTopicOrPartitionError):
            self._check(self._now())
            raise

    def end(self, transaction: MovingTransaction) -> None:
        """Abort a transaction, or finish it if its outcome is decided. Does nothing after its end."""
        try:
            if transaction.at is not None:  # Fencing could hit a newer transaction.
                self._db.admin.abort_transaction(*transaction.at)
            elif transaction.transactional_id is not None:
                self._db.admin.fence_producer(transaction.transactional_id)
        except (errors.TransactionalIdNotFoundError, errors.InvalidRequestError):
            return

    # -- records --------------------------------------------------------------------------------------

    def records(self, tp: TopicPartition) -> Iterator[RelayRecord]:
        """The committed records of the partition. Raises EosdbError if the log is truncated meanwhile, and
        UnknownTopicIdError if the topic is recreated."""
        bounds = self._db.admin.partition_offsets()[tp]
        at = bounds.log_start_offset
        while at < bounds.last_stable_offset:
            block = self._db.broker.fetch_data(
                tp, at, isolation_level="read_committed", max_records=_AT_ONCE, max_bytes=_BYTES,
                topic_id=self._ids[tp.topic],
            )  # fmt: skip
            yield from records_of(tp, block, bounds.last_stable_offset)
            if block.stop <= at:
                raise errors.EosdbError(f"{self.where}: {tp}: nothing could be read at offset {at}")
            at = block.stop
