"""Dead letters: inspect them, and replay them to their original topics, each exactly once.

The committed offsets of a separate group record the replayed letters: all letters below the offset, and the
letters above it in its metadata. Records and offsets share a transaction, and all replays of a topic
share a transactional id. So concurrent replays fence each other and no letter is sent twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from eosdb.client.consumer.consumer import Consumer
from eosdb.client.processor.failure import Failure, read_failure, unmarked
from eosdb.client.producer.producer import Producer
from eosdb.client.producer.settings import ProducerConfig
from eosdb.client.transport import Transport
from eosdb.errors import EosdbError, InvalidRequestError, UnknownTopicIdError, in_doubt, in_part
from eosdb.model.answers import Tabular
from eosdb.model.clock import Clock
from eosdb.model.config import INT32_MAX
from eosdb.model.records.failure_headers import replay_group, replayed_beyond
from eosdb.model.values import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    TopicPartition,
)
from eosdb.model.words import counted

REPLAYED_FROM: Final = "__eosdb.replayed-from"
"""The header of a replayed record that names its dead letter."""
_TRANSACTION_SIZE: Final = 500


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that has failed for good. `failure` is None if its headers do not have the reason."""

    record: ConsumerRecord
    failure: Failure | None
    is_replayed: bool


@dataclass(frozen=True, slots=True)
class ReplayReport(Tabular):
    """The numbers of dead letters that this replay sent, and skipped because earlier replays sent them."""

    replayed: int
    skipped: int


class DeadLetters:
    """The dead letters of one topic."""

    def __init__(self, transport: Transport, clock: Clock, topic: str) -> None:
        self._transport = transport
        self._clock = clock
        self._topic = topic
        self._name = replay_group(topic)

    def letters(self) -> Iterator[DeadLetter]:
        """Iterate over all letters still in the topic, in order of partition and offset.

        Raises UnknownTopicOrPartitionError, and UnknownTopicIdError if the topic is recreated meanwhile.
        """
        with self._consumer() as consumer:
            for tp in self._partitions(consumer):
                member, progress = _begin(consumer, tp)
                for record in _read(consumer, tp, member):
                    replayed = progress.has(record.offset)
                    yield DeadLetter(record, read_failure(record.headers), replayed)

    def letter(self, partition: int, offset: int) -> DeadLetter:
        """Return the letter at this offset. Raises InvalidRequestError if there is none."""
        tp = TopicPartition(self._topic, partition)
        with self._consumer() as consumer:
            member, progress = _begin(consumer, tp)
            consumer.seek(tp, offset)
            records = consumer.poll(max_records=1)
            _check_same(consumer, tp, member)
            if not records or records[0].offset != offset:
                raise InvalidRequestError(f"{tp} has no record at offset {offset}")
        replayed = progress.has(offset)
        return DeadLetter(records[0], read_failure(records[0].headers), replayed)

    def replay(
        self, offsets: Collection[tuple[int, int]] | None = None, to: str | None = None
    ) -> ReplayReport:
        """Replay the letters at the given (partition, offset) pairs, or all letters; none is replayed
        twice.

        Each is sent to its original topic and partition, or to the topic `to`, without the failure headers.
        Raises InvalidRequestError for an offset without a letter, and for a letter whose headers do not
        name its origin if there is no `to`; UnknownTopicIdError if the topic is recreated meanwhile;
        ProducerFencedError when another replay has taken over, and InvalidTxnStateError while another is
        taking over.
        """
        replayed = skipped = 0
        settings = ProducerConfig(transactional_id=self._name, max_request_size=INT32_MAX)
        with (
            self._consumer() as consumer,
            Producer(self._transport, self._clock, **settings) as producer,
        ):
            tps = self._partitions(consumer)
            producer.init_transactions()
            wanted = None if offsets is None else set(offsets)
            send_back = partial(_send_back, producer, to, offsets is None)
            try:
                for tp in tps:
                    member, progress = _begin(consumer, tp)
                    batch: list[ConsumerRecord] = []
                    for record in _read(consumer, tp, member):
                        if wanted is not None and (tp.partition, record.offset) not in wanted:
                            continue
                        if wanted is not None:
                            wanted.remove((tp.partition, record.offset))
                        if progress.has(record.offset):
                            skipped += 1
                            continue
                        batch.append(record)
                        if len(batch) == _TRANSACTION_SIZE:
                            replayed += send_back(member, tp, progress, batch)
                            batch = []
                    replayed += send_back(member, tp, progress, batch)
            except EosdbError as error:
                if replayed:
                    in_doubt(in_part(error, f"{counted(replayed, 'dead letter')} are replayed"))
                raise
        if wanted:
            missing = InvalidRequestError(
                f"{self._topic} has no dead letter at {sorted(wanted)} (partition, offset); the others "
                f"were replayed"
            )
            raise in_doubt(missing) if replayed else missing
        return ReplayReport(replayed, skipped)

    def _consumer(self) -> Consumer:
        return Consumer(self._transport, self._clock, self._name, auto_offset_reset="earliest")

    def _partitions(self, consumer: Consumer) -> list[TopicPartition]:
        return [TopicPartition(self._topic, p) for p in range(consumer.partitions_for(self._topic))]


class _Progress:
    """The replayed letters of a partition."""

    def __init__(self, committed: OffsetAndMetadata | None) -> None:
        self._below = 0 if committed is None else committed.offset
        beyond = replayed_beyond("" if committed is None else committed.metadata)
        self._beyond = {offset for offset in beyond if offset >= self._below}

    def has(self, offset: int) -> bool:
        return offset < self._below or offset in self._beyond

    def add(self, offsets: Iterable[int]) -> None:
        self._beyond.update(offsets)

    def advance(self, offset: int) -> None:
        """Mark all letters up to this offset as replayed."""
        assert offset >= self._below, offset
        self._below = offset + 1
        self._beyond = {beyond for beyond in self._beyond if beyond > offset}

    def as_offset(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self._below, ",".join(map(str, sorted(self._beyond))))


def _begin(consumer: Consumer, tp: TopicPartition) -> tuple[ConsumerGroupMetadata, _Progress]:
    """Go to the beginning of the partition. Returns the identity that commits its letters, with the
    topic's id, and the replayed letters."""
    consumer.assign([tp])  # Learns the topic's id, before its offsets are read.
    consumer.seek_to_beginning()
    return consumer.group_metadata(), _Progress(consumer.committed([tp]).get(tp))


def _read(
    consumer: Consumer, tp: TopicPartition, member: ConsumerGroupMetadata
) -> Iterator[ConsumerRecord]:
    """Iterate over the records of the partition. Raises UnknownTopicIdError if the topic was recreated."""
    end = consumer.end_offsets([tp])[tp]
    while consumer.position(tp) < end and (records := consumer.poll()):
        _check_same(consumer, tp, member)
        yield from records
    _check_same(consumer, tp, member)


def _check_same(consumer: Consumer, tp: TopicPartition, member: ConsumerGroupMetadata) -> None:
    if consumer.group_metadata().topic_ids.get(tp) != member.topic_ids[tp]:
        raise UnknownTopicIdError(
            f"{tp}: the topic was deleted and recreated while its dead letters were read. Earlier replays "
            "are stored; no letter of the new topic was replayed"
        )


def _send_back(
    producer: Producer,
    to: str | None,
    is_complete: bool,
    member: ConsumerGroupMetadata,
    tp: TopicPartition,
    progress: _Progress,
    batch: list[ConsumerRecord],
) -> int:
    """Replay a batch in one transaction. If `is_complete`, every letter between those of the batch was
    replayed before."""
    if not batch:
        return 0
    with producer.transaction():
        for record in batch:
            failure = read_failure(record.headers)
            if failure is None and to is None:
                raise InvalidRequestError(
                    f"{tp} offset {record.offset}: no header names its topic, so it is no dead letter of a "
                    "processor; to send it nevertheless, name a topic to replay to"
                )
            letter = f"{tp.topic}/{tp.partition}/{record.offset}".encode()
            producer.send(
                to or (failure.topic if failure else ""),
                record.value,
                key=record.key,
                partition=failure.partition if failure and to is None else None,
                headers=(*unmarked(record.headers), (REPLAYED_FROM, letter)),
                timestamp=(failure.back_at_origin(record) if failure else record).timestamp,
            )
        if is_complete:
            progress.advance(batch[-1].offset)
        else:
            progress.add(record.offset for record in batch)
        producer.send_offsets_to_transaction({tp: progress.as_offset()}, member)
    return len(batch)
