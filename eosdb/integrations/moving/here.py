"""The file's side of a move: its topics and groups, and closing and opening topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from eosdb.coordinator.groups.offsets import NOTES
from eosdb.database import Database
from eosdb.errors import (
    EosdbError,
    GroupIdNotFoundError,
    InvalidRequestError,
    TransactionalIdNotFoundError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from eosdb.integrations.moving.plan import Group, OpenTransaction, TopicHere
from eosdb.integrations.relay import planning
from eosdb.integrations.relay.file_ends import records_of
from eosdb.integrations.relay.values import RelayRecord
from eosdb.model.requests import AlterTopicConfig
from eosdb.model.topic_config import MOVED_TO, MOVING_TO, settings
from eosdb.model.values import TopicPartition

_AT_ONCE: Final = 5_000
_BYTES: Final = 8_388_608


class Here:
    """The file. Used by one thread."""

    def __init__(self, db: Database) -> None:
        self._db: Final = db
        self.where: Final = db.path
        self._ids: dict[str, UUID] = {}
        """The topics found since `begin`."""

    def begin(self) -> None:
        """Begin a work of several steps, in which the topics stay the same."""
        self._ids.clear()

    def _check(self, now: Mapping[str, UUID]) -> None:
        """Raises UnknownTopicIdError if a topic was recreated since an earlier step."""
        for name, topic_id in self._ids.items():
            if now.get(name) != topic_id:
                raise UnknownTopicIdError(
                    f"{self.where}: topic {name} was deleted during the move, perhaps recreated. Finished "
                    "steps stay; run the command again to continue with the present topics"
                )

    def _now(self) -> dict[str, UUID]:
        return {topic.name: topic.topic_id for topic in self._db.broker.topic_metadata()}

    def topics(self, requested: Iterable[str] | None) -> tuple[TopicHere, ...]:
        """The topics to move. Raises UnknownTopicOrPartitionError, and UnknownTopicIdError if one was
        recreated since the last call."""
        admin, available = self._db.admin, self._now()
        names = planning.wanted(available, requested)
        self._check(available)
        if missing := [name for name in names if name not in available]:
            raise UnknownTopicOrPartitionError(
                f"{self.where} has no topic {missing[0]!r}; it has {', '.join(available) or 'none'}"
            )
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
                    admin._topic_config(name).compact,
                )
            )
        self._ids |= {name: available[name] for name in names}
        self._check(self._now())
        return tuple(result)

    def others(self, topics: Iterable[TopicHere]) -> tuple[str, ...]:
        moving = {topic.name for topic in topics}
        return tuple(name for name in sorted(self._db.admin.list_topics()) if name not in moving)

    def groups(self, topics: Iterable[TopicHere]) -> tuple[Group, ...]:
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
                result.append(Group(name, len(described.members), own))
        return tuple(result)

    def open_transactions(self, topics: Iterable[TopicHere]) -> tuple[OpenTransaction, ...]:
        """The open transactions with records of these topics, or with group offsets in them."""
        names = {topic.name for topic in topics}
        transactions: dict[str | None, OpenTransaction] = {}
        for entry in self._db.admin.open_transactions():
            if entry.topic in names:
                name, at = entry.transactional_id, (entry.topic_partition, entry.start_offset)
                transactions[name or str(at)] = OpenTransaction(name, at)
        for listed in self._db.broker.describe_groups():
            try:
                report = self._db.admin.describe_group_offsets(listed.group_id)
            except GroupIdNotFoundError:
                continue
            for partition in report.partitions:
                if partition.topic in names:
                    for name in partition.pending:
                        transactions.setdefault(name, OpenTransaction(name))
        return tuple(transactions.values())

    def counts(self) -> Mapping[str, int]:
        return {
            "transactional_ids": len(self._db.broker.list_transactions()),
            "acls": len(self._db.admin.list_acls()),
            "users": len({credential.user for credential in self._db.admin._list_credentials()}),
        }

    # -- changes --------------------------------------------------------------------------------------

    def close(self, topics: Iterable[TopicHere], address: str) -> None:
        """Refuse all writes and offset commits of these topics from now on, in one commit."""
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
        except (UnknownTopicIdError, UnknownTopicOrPartitionError):
            self._check(self._now())
            raise

    def end(self, transaction: OpenTransaction) -> None:
        """Abort the transaction, or complete it as decided. Ignores one that has ended meanwhile."""
        try:
            if transaction.at is not None:  # A later transaction may differ.
                self._db.admin.abort_transaction(*transaction.at)
            elif transaction.transactional_id is not None:
                self._db.admin.fence_producer(transaction.transactional_id)
        except (TransactionalIdNotFoundError, InvalidRequestError):
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
                raise EosdbError(f"{self.where}: {tp}: nothing could be read at offset {at}")
            at = block.stop
