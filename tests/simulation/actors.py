"""The programs of the simulation, written as users write them.

Each program is a plain function that runs until it is killed, or returns because its producer is fenced;
then a successor is started. A member of a KIP-848 group sends plain heartbeats, and some answers are lost.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from eosdb import errors
from eosdb.client.consumer.consumer import Consumer
from eosdb.client.producer.producer import Producer
from eosdb.model.requests import ConsumerGroupHeartbeat, OffsetCommit
from eosdb.model.values import (
    AssignedTopic,
    ConsumerGroupMetadata,
    ConsumerRecord,
    IsolationLevel,
    OffsetAndMetadata,
    RecordMetadata,
    TopicPartition,
)
from tests.simulation import model
from tests.simulation.ledger import TransactionRecord
from tests.simulation.world import TOPICS, World

T = TypeVar("T")
_REVOKE_MS: Final = 2_000
_FENCED: Final = (
    errors.UnknownMemberIdError,
    errors.FencedMemberEpochError,
    errors.FencedInstanceIdError,
    errors.GroupIdNotFoundError,
)


class CoordinatedMember:
    """A group member with one membership after another, and the consumer of its partitions."""

    def __init__(self, world: World, name: str, node: int, rng: random.Random, place: str) -> None:
        self._world = world
        self._name = name
        self._node = node
        self._rng = rng
        self._presence = world.presence(node, None)
        self._instance = place if rng.random() < 0.4 else None
        self._sent: list[ConsumerGroupHeartbeat] = []
        self._joins = 0
        self._consumer = world.consumer(node, model.MEMBERS)
        self._member_id, self._epoch = "", 0
        self._owned: dict[UUID, tuple[int, ...]] = {}
        self._is_unsure, self._has_changed = True, False
        self._forget()

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(model.MEMBERS, self._epoch, self._member_id, self._instance)

    def beat(self) -> None:
        """Send a heartbeat, and apply the answer, unless the answer is lost. Raises EosdbError."""
        joins, is_full = self._epoch == 0, self._is_unsure
        by_name = self._joins % 2 or not is_full
        beat = ConsumerGroupHeartbeat(
            model.MEMBERS,
            member_id=self._member_id,
            member_epoch=self._epoch,
            group_instance_id=self._instance,
            rebalance_timeout_ms=_REVOKE_MS if is_full else -1,
            subscribed_topic_names=[model.INPUT] if is_full and by_name else None,
            subscribed_topic_regex=None if by_name else f"{model.INPUT}|nowhere.*",
            server_assignor=self._rng.choice((None, "range")) if joins else None,
            topic_partitions=dict(self._owned) if is_full or self._has_changed else None,
            owner_lock=0 if self._presence is None else self._presence.number,
        )
        self._is_unsure = True
        self._sent.append(beat)
        try:
            answer = self._world.ask(self._node, beat)
        except _FENCED:
            self._forget()
            raise
        if self._rng.random() < 0.05:
            return
        self._is_unsure = self._has_changed = False
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._take(answer.assignment)
        self._world.ledger.believe(self.metadata, self._consumer.assignment())

    def repeat(self) -> None:
        """Let an old heartbeat arrive, perhaps again."""
        older = [beat for beat in self._sent if beat.member_epoch < self._epoch]
        if older:
            late = self._rng.choice(older[-6:])
            with contextlib.suppress(errors.EosdbError):
                self._world.ask(self._node, late)

    def leave(self) -> None:
        """Leave the group: for good, or as a static member for a while."""
        epoch = -1 if self._instance is None else -2
        beat = ConsumerGroupHeartbeat(
            model.MEMBERS,
            member_id=self._member_id,
            member_epoch=epoch,
            group_instance_id=self._instance,
        )
        with contextlib.suppress(errors.EosdbError):
            self._world.ask(self._node, beat)
        self._forget()

    def poll(self) -> list[ConsumerRecord]:
        """Poll records of the member's own partitions. Raises EosdbError."""
        if not self._owned:
            return []
        return list(self._consumer.poll(max_records=self._rng.randint(1, 4)))

    def forget_positions(self) -> None:
        """Return to the committed offsets after a failed transaction."""
        self._consumer.assign([])
        self._assign()

    def _take(self, assignment: tuple[AssignedTopic, ...]) -> None:
        owned = {part.topic_id: part.partitions for part in assignment}
        if owned != self._owned:
            self._owned, self._has_changed = owned, True
            self._assign()

    def _assign(self) -> None:
        numbers = [number for numbers in self._owned.values() for number in numbers]
        self._consumer.assign([TopicPartition(model.INPUT, number) for number in numbers])

    def _forget(self) -> None:
        """Give up the partitions, and join as another member next time."""
        self._joins += 1
        self._member_id = f"{self._name}#{self._joins}"
        self._epoch = 0
        self._owned = {}
        self._is_unsure, self._has_changed = True, False
        self._consumer.assign([])


class Me(NamedTuple):
    """The identity of an actor: its role's name, the number of its life, its node, and the numbers of its
    transactions."""

    name: str
    life: int
    node: int
    rng: random.Random
    numbers: Iterator[int]

    @property
    def full_name(self) -> str:
        return f"{self.name}@{self.life}"


PLAIN: Final = 1_000_000
"""Added to offsets that are committed outside of a transaction, to tell them apart."""

_STATIC: Final = 0.4
"""The share of changing members that are static."""
_ENDS: Final = 0.04

Role = Callable[[World, Me], None]


def idempotent_writer(world: World, me: Me) -> None:
    """Writes the input without transactions, also between the records of other transactions."""
    producer = world.producer(me.full_name, me.node)
    number = 0
    while True:
        for _ in range(me.rng.choice((1, 3, 6, 25))):
            tp = (
                TopicPartition(model.INPUT, me.rng.randrange(model.INPUTS))
                if me.rng.random() < 0.7
                else world.data_partition(me.rng)
            )
            value = f"{me.full_name}|-|{number}".encode()
            number += 1

            def acknowledged(
                error: errors.EosdbError | None,
                metadata: RecordMetadata | None,
                value: bytes = value,
                tp: TopicPartition = tp,
            ) -> None:
                world.counts["acknowledged" if error is None else "failed"] += 1
                if metadata is not None:
                    world.ledger.acknowledge(value, tp, metadata.offset)

            producer.send(tp.topic, value, partition=tp.partition, on_delivery=acknowledged)
        if me.rng.random() < 0.5:
            producer.flush()
        world.clock.sleep_ms(me.rng.randint(0, 150))


def transactional_writer(world: World, me: Me) -> None:
    """Commits transactions over several partitions, some of them with offsets."""
    producer = _initialized(world, me)
    while True:
        record = _begin(world, me, producer)
        try:
            for i in range(me.rng.choice((1, 2, 4, 16))):
                key, tp = None, world.data_partition(me.rng)
                if me.rng.random() < 0.3:
                    key, tp = f"key {me.rng.randrange(4)}", TopicPartition(model.TABLE, 0)
                value = f"{record.key}|{i}".encode()
                record.sent[value] = tp
                producer.send(tp.topic, value, key=key, partition=tp.partition)
                if me.rng.random() < 0.2:
                    producer.flush()
                    world.clock.sleep_ms(me.rng.choice((0, 10, 30, 30, 30, 2_000)))
            if me.rng.random() < 0.4:
                _send_offsets(world, me, producer, record)
            if me.rng.random() < 0.25:
                producer.abort_transaction()
                world.ledger.answered(record, "aborted")
            else:
                producer.commit_transaction()
                world.ledger.answered(record, "committed")
            world.counts[record.answer] += 1
        except errors.InvalidRequestError:
            raise
        except errors.EosdbError:
            _resolve(world, me, producer, record)
        world.clock.sleep_ms(me.rng.randint(0, 100))


def _send_offsets(world: World, me: Me, producer: Producer, record: TransactionRecord) -> None:
    """Commit an offset in the transaction, and sometimes a plain one after it, which must win."""
    record.group = f"{model.OF_ITS_OWN}{me.name}"
    number = int(record.key.rpartition("|")[2])
    record.offsets = {world.data_partition(me.rng): me.life * 10_000 + number}
    producer.send_offsets_to_transaction(
        {tp: OffsetAndMetadata(offset) for tp, offset in record.offsets.items()}, record.group
    )
    if me.rng.random() < 0.3:
        plain = {tp: OffsetAndMetadata(PLAIN + offset) for tp, offset in record.offsets.items()}
        group = ConsumerGroupMetadata(record.group)
        world.ask(me.node, OffsetCommit(group=group, offsets=plain))


def worker(world: World, me: Me) -> None:
    """Consumes, processes and produces: one input partition, one result for each record."""
    source = TopicPartition(model.INPUT, int(me.name.removeprefix("worker")))
    producer = _initialized(world, me)
    consumer = world.consumer(me.node, model.WORKERS)
    while True:
        try:
            consumer.assign([source])
            while not (records := consumer.poll(max_records=me.rng.randint(1, 4))):
                world.clock.sleep_ms(me.rng.randint(20, 100))
        except errors.EosdbError:
            world.clock.sleep_ms(100)
            continue
        record = _begin(world, me, producer)
        try:
            _commit_results(world, producer, record, records, consumer.group_metadata())
            world.counts["processed"] += len(records)
        except errors.EosdbError:
            _resolve(world, me, producer, record)
            consumer.close()
            consumer = world.consumer(me.node, model.WORKERS)


def member(world: World, me: Me, *, changes: bool = False) -> None:
    """Shares the input as a member of a group. Every life has its own transactional id, so only its
    membership can fence it (KIP-447). With `changes` it may use a server, and ends now and then."""
    producer = _initialized(world, me, me.full_name)
    consumer: Consumer | None = None
    instance = _seat(me) if changes and me.rng.random() < _STATIC else None
    is_far = changes and me.rng.random() < 0.5
    while True:
        try:
            if consumer is None:
                consumer = world.member(me.full_name, me.node, instance, is_far=is_far)
                consumer.subscribe(model.INPUT)
            elif me.rng.random() < 0.1:
                consumer.enforce_rebalance()
            while not (records := consumer.poll(max_records=me.rng.randint(1, 4))):
                world.ledger.believe(consumer.group_metadata(), consumer.assignment())
                world.clock.sleep_ms(me.rng.randint(20, 100))
                if changes and me.rng.random() < _ENDS:
                    consumer.close()
                    return
        except errors.FencedInstanceIdError:
            return
        except errors.EosdbError:
            world.clock.sleep_ms(100)
            continue
        record = _begin(world, me, producer)
        try:
            metadata = consumer.group_metadata()
            world.ledger.believe(metadata, consumer.assignment())
            for _ in range(
                me.rng.choice((0, 0, 1, 4))
            ):  # More records may come from the next generation.
                world.clock.sleep_ms(me.rng.randint(20, 300))
                records = [*records, *consumer.poll(max_records=me.rng.randint(1, 4))]
            _commit_results(world, producer, record, records, metadata, me.rng)
            world.counts["processed by members"] += len(records)
        except errors.EosdbError:
            _resolve(world, me, producer, record)
            with contextlib.suppress(errors.EosdbError):
                consumer.close()
            consumer = None


def assigned_member(world: World, me: Me, *, changes: bool = False) -> None:
    """Shares the input as a member of a KIP-848 group. With `changes`, old heartbeats arrive again, and the
    member ends now and then."""
    producer = _initialized(world, me, me.full_name)
    place = _seat(me) if changes else "place"
    mine = CoordinatedMember(world, me.full_name, me.node, me.rng, place)
    while True:
        try:
            if me.rng.random() < 0.04:
                mine.leave()
                if changes:
                    return
            if changes and me.rng.random() < _ENDS:
                mine.repeat()
            mine.beat()
            records = mine.poll()
        except errors.EosdbError:
            world.clock.sleep_ms(100)
            continue
        if not records:
            world.clock.sleep_ms(me.rng.randint(20, 100))
            continue
        record = _begin(world, me, producer)
        try:
            _commit_results(world, producer, record, records, mine.metadata, me.rng)
            world.counts["processed by assigned members"] += len(records)
        except errors.EosdbError:
            _resolve(world, me, producer, record)
            mine.forget_positions()


def changing_member(world: World, me: Me) -> None:
    """A member of a group that changes between the classic protocol and KIP-848 with its members."""
    role = member if me.rng.random() < 0.6 else assigned_member
    world.counts[f"a life of a changing member: {role.__name__}"] += 1
    role(world, me, changes=True)


def _seat(me: Me) -> str:
    """The group instance id of all lives of an actor."""
    return f"seat of {me.name}"


def _commit_results(
    world: World,
    producer: Producer,
    record: TransactionRecord,
    records: Sequence[ConsumerRecord],
    group: ConsumerGroupMetadata,
    pauses: random.Random | None = None,
) -> None:
    """Send a result for each record, and commit the results with the records' offsets. With `pauses`, it
    sometimes waits before the commit. Raises EosdbError."""
    topic = next(topic for topic, name in model.RESULTS.items() if name == group.group_id)
    for consumed in records:
        value = f"{record.key}|{consumed.offset * model.INPUTS + consumed.partition}".encode()
        tp = record.sent[value] = TopicPartition(topic, consumed.offset % TOPICS[topic])
        producer.send(tp.topic, value, partition=tp.partition)
    if pauses is not None and pauses.random() < 0.2:
        world.clock.sleep_ms(pauses.randint(0, 2_000))
    offsets = {
        TopicPartition(it.topic, it.partition): OffsetAndMetadata(it.offset + 1) for it in records
    }
    producer.send_offsets_to_transaction(offsets, group)
    producer.commit_transaction()
    world.ledger.answered(record, "committed")


def reader(world: World, me: Me, isolation_level: IsolationLevel) -> None:
    """Reads all topics, and reports the records to the checker."""
    consumer = world.reader(me.node, isolation_level)
    consumer.assign([TopicPartition(t, p) for t, count in TOPICS.items() for p in range(count)])
    while True:
        for got in consumer.poll(max_records=me.rng.randint(1, 40)):
            assert isinstance(got.value, bytes)
            tp = TopicPartition(got.topic, got.partition)
            read = (me.full_name, isolation_level == "read_committed", tp, got.offset, got.value)
            world.checker.reads.append(read)
            world.counts[isolation_level] += 1
        world.clock.sleep_ms(me.rng.randint(20, 200))


class GivesUp(Exception):
    """The producer cannot go on, so its actor ends."""


def _initialized(world: World, me: Me, transactional_id: str | None = None) -> Producer:
    """A producer that has initialised its transactional id. Raises GivesUp."""
    producer = world.producer(
        me.full_name,
        me.node,
        transactional_id=transactional_id or me.name,
        transaction_timeout_ms=me.rng.choice((1_500, 6_000, 30_000)),
    )
    _repeated(producer, producer.init_transactions)
    return producer


def _begin(world: World, me: Me, producer: Producer) -> TransactionRecord:
    """Begin a transaction. Raises GivesUp if the last one was empty and no new epoch was available."""
    token = _repeated(producer, producer.begin_transaction)
    return world.ledger.begin(f"{me.full_name}|{next(me.numbers)}", token)


def _repeated(producer: Producer, call: Callable[[], T]) -> T:
    """The result of a call that is made three times at most. Raises GivesUp."""
    for _ in range(3):
        try:
            return call()
        except errors.EosdbError:
            if producer.state == "FATAL_ERROR":
                break
    raise GivesUp


def _resolve(world: World, me: Me, producer: Producer, record: TransactionRecord) -> None:
    """After an error, abort, or repeat the request. Raises GivesUp if the producer cannot continue; then
    the database tells the outcome of the transaction."""
    for _ in range(3):
        try:
            if producer.state == "COMMITTING_TRANSACTION":
                producer.commit_transaction()
                world.ledger.answered(record, "committed")
                return
            if producer.state in ("IN_TRANSACTION", "ABORTABLE_ERROR", "ABORTING_TRANSACTION"):
                producer.abort_transaction()
                world.ledger.answered(record, "aborted")
                return
        except errors.EosdbError:
            continue
        break
    world.counts["unknown to the producer"] += 1
    outcome = world.nodes[me.node].outcome(record.token)
    world.counts[f"resolved as {outcome}"] += 1
    if outcome != "open":
        world.ledger.answered(record, outcome)
    raise GivesUp


ROLES: Final[dict[str, tuple[Role, Sequence[str]]]] = {
    "idempotent": (idempotent_writer, ("writer0", "writer1")),
    "transactional": (transactional_writer, ("shop", "till", "depot")),
    "worker": (worker, tuple(f"worker{i}" for i in range(model.INPUTS))),
    "member": (member, ("member0", "member1", "member2")),
    "assigned_member": (assigned_member, ("assigned0", "assigned1", "assigned2")),
    "changing_member": (changing_member, ("changing0", "changing1", "changing2")),
    "committed_reader": (partial(reader, isolation_level="read_committed"), ("committed",)),
    "uncommitted_reader": (partial(reader, isolation_level="read_uncommitted"), ("uncommitted",)),
    "admin": (lambda world, me: None, ()),
}
"""The function and the actors of each role. The run itself chooses the admin's actions."""
