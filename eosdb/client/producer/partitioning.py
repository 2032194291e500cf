"""Chooses a record's partition (given, by its key, or sticky: KIP-480), and its batch there."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from typing import Final

from eosdb.client.producer.accumulator import ProducerBatch
from eosdb.client.producer.driver import Driver
from eosdb.client.transport import call
from eosdb.errors import ConfigError, InvalidTopicExceptionError, UnknownTopicOrPartitionError
from eosdb.model.records.partitioner import partitioner_of
from eosdb.model.records.serializing import as_far_as_it_goes
from eosdb.model.requests import Topic
from eosdb.model.validation import check_text
from eosdb.model.values import PARTITIONS_MAX, TopicPartition

_NONE: Final = -1 - PARTITIONS_MAX
"""No partition, and no waiting partition either."""


class _Topic:
    """A topic's partitions, the newest batch of each, and the sticky partition."""

    __slots__ = ("count", "newest", "sticky", "sticky_bytes")

    def __init__(self, count: int) -> None:
        self.count = count
        self.newest: Final[dict[int, ProducerBatch]] = {}
        self.sticky = _NONE
        self.sticky_bytes = 0


class PartitionChooser:
    """Holds the partition counts of the topics, their sticky partitions and their newest batches."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._transport = driver.sender.transport
        self.clock: Final = driver.clock
        self.settings: Final = driver.sender.settings
        self.accumulator: Final = driver.sender.accumulator
        self._partitioner = partitioner_of(self.settings.partitioner)
        self._topics: dict[str, _Topic] = {}

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions, looked up once per topic. Raises UnknownTopicOrPartitionError
        and InvalidTopicExceptionError."""
        return self._topic(check_text("topic", topic, InvalidTopicExceptionError)).count

    def batch_for(
        self, topic: str, partition: int | None, key: bytes | None, size: int
    ) -> ProducerBatch:
        """Choose the record's partition (see `number_for`), and return its batch there (see `filling`)."""
        state = self._topics.get(topic) if type(topic) is str else None
        if state is not None and partition is None and key is None:
            # Usually the record joins its predecessor.
            accumulator, batch = self.accumulator, state.newest.get(state.sticky)
            taken = state.sticky_bytes + size
            if (
                batch is not None
                and batch.is_filling
                and taken <= accumulator.batch_size
                and batch.size + size <= accumulator.most_bytes
            ):
                state.sticky_bytes = taken
                return batch
        return self.filling(topic, self.number_for(topic, partition, key, size), size)

    def number_for(self, topic: str, partition: int | None, key: bytes | None, size: int) -> int:
        """Choose the partition for a record of `size` bytes. Raises UnknownTopicOrPartitionError and
        InvalidTopicExceptionError, and ConfigError if the partitioner returns no valid partition."""
        topic_state = self._topics.get(topic) if isinstance(topic, str) else None
        if topic_state is None:
            topic_state = self._topic(check_text("topic", topic, InvalidTopicExceptionError))
        if partition is not None:
            return self._given(topic_state, topic, partition)
        return self._sticky(topic_state, size) if key is None else self._by_key(topic_state, key)

    def numbers_for(
        self,
        topic: str,
        partitions: Sequence[int | None],
        keys: Sequence[bytes | None],
        sizes: Sequence[int],
    ) -> tuple[list[int], Exception | None]:
        """Choose the partitions of many records, up to the first without a valid partition. Also returns
        the error that `number_for` would raise for it. `partitions` and `keys` may be empty."""
        topic_state = self._topic(check_text("topic", topic, InvalidTopicExceptionError))
        if not partitions and not keys:
            return self._sticky_ones(topic_state, sizes), None
        given: Iterable[int | None] = partitions or repeat(None)
        columns = list(zip(given, keys or repeat(None), sizes))  # noqa: B905
        keyless = [size for number, key, size in columns if number is None and key is None]
        sticky = iter(self._sticky_ones(topic_state, keyless))
        return as_far_as_it_goes(
            self._given(topic_state, topic, number)
            if number is not None
            else next(sticky)
            if key is None
            else self._by_key(topic_state, key)
            for number, key, _ in columns
        )

    def filling(self, topic: str, number: int, size: int) -> ProducerBatch:
        """Return the batch of a chosen partition, with room for `size` bytes."""
        newest = self._topics[topic].newest
        batch = newest.get(number)
        if batch is None or not batch.is_filling or batch.size + size > self.accumulator.most_bytes:
            tp = TopicPartition(topic, number) if batch is None else batch.tp
            batch = newest[number] = self.accumulator.new_batch(tp, self.clock, self._driver)
        return batch

    def _given(self, topic_state: _Topic, topic: str, partition: int) -> int:
        if not (type(partition) is int and 0 <= partition < topic_state.count):
            self._look_again(topic_state, topic, partition)
        return partition

    def _by_key(self, topic: _Topic, key: bytes) -> int:
        number = self._partitioner(key, topic.count)
        if not (type(number) is int and 0 <= number < topic.count):
            raise ConfigError(
                f"partitioner: got partition {number!r}, expected one from 0 to {topic.count - 1}"
            )
        return number

    def _sticky_ones(self, topic: _Topic, sizes: Sequence[int]) -> list[int]:
        if topic.count == 1:
            return [0] * len(sizes)
        numbers: list[int] = []
        ends = list(accumulate(sizes))
        while (begin := len(numbers)) < len(sizes):
            number = self._sticky(topic, sizes[begin])
            room = self.accumulator.batch_size - topic.sticky_bytes
            end = bisect_right(ends, ends[begin] + room, begin + 1)
            topic.sticky_bytes += ends[end - 1] - ends[begin]
            numbers += [number] * (end - begin)
        return numbers

    def _sticky(self, topic: _Topic, size: int) -> int:
        """Choose the partition for a record without a key. It changes after `batch_size` bytes, and when
        its waiting batch was sent."""
        batch, taken = topic.newest.get(topic.sticky), topic.sticky_bytes + size
        if batch is None or not batch.is_filling or taken > self.accumulator.batch_size:
            topic.sticky = random.randrange(topic.count) if topic.count > 1 else 0
            taken = size
        topic.sticky_bytes = taken
        return topic.sticky

    def _topic(self, topic: str) -> _Topic:
        cached = self._topics.get(topic)
        if cached is None:
            cached = self._topics[topic] = _Topic(self._ask(topic))
        return cached

    def _ask(self, topic: str) -> int:
        return call(
            self._transport,
            self.clock,
            Topic(topic),
            retry_backoff_ms=self.settings.retry_backoff_ms,
            timeout_ms=self.settings.max_block_ms,
        ).partitions

    def _look_again(self, topic_state: _Topic, topic: str, partition: object) -> None:
        """Look the topic up again: partitions may have been added."""
        count = topic_state.count = max(self._ask(topic), topic_state.count)
        if not (type(partition) is int and 0 <= partition < count):
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has partitions 0 to {count - 1}, got {partition!r}"
            )
