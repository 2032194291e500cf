"""Records that have been polled but not yet delivered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from eosdb.model.values import ConsumerRecord, TopicPartition

Records: TypeAlias = "list[ConsumerRecord]"


class Buffer:
    """Undelivered records by partition, each partition's in order."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, tuple[Records, int]] = {}
        """The records, and the number of delivered ones; at least one is left."""

    def add(self, polled: Mapping[TopicPartition, Records]) -> None:
        """Add records of partitions that have none in the buffer."""
        for tp, records in polled.items():
            self._waiting[tp] = (records, 0)

    def take_one(self, wanted: Collection[TopicPartition]) -> ConsumerRecord | None:
        """The next record of the wanted partitions, or of any if `wanted` is empty."""
        for tp in wanted or self._waiting:
            if tp in self._waiting:
                records, place = self._waiting[tp]
                if place + 1 == len(records):
                    del self._waiting[tp]
                else:
                    self._waiting[tp] = (records, place + 1)
                return records[place]
        return None

    def take(
        self, wanted: Collection[TopicPartition], limit: int | None
    ) -> dict[TopicPartition, Records]:
        """The next records of the wanted partitions, at most `limit` altogether."""
        taken: dict[TopicPartition, Records] = {}
        for tp in [tp for tp in wanted or self._waiting if tp in self._waiting]:
            records, place = self._waiting.pop(tp)
            end = len(records) if limit is None else min(len(records), place + limit)
            if end < len(records):
                self._waiting[tp] = (records, end)
            if limit is not None:
                limit -= end - place
            if end > place:
                taken[tp] = records if end - place == len(records) else records[place:end]
        return taken

    def first_offsets(self) -> dict[TopicPartition, int]:
        """The offset of each partition's first undelivered record."""
        return {tp: records[place].offset for tp, (records, place) in self._waiting.items()}

    def put_back(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Remove the records of these partitions, or of all. Returns the offsets at which to poll them
        again."""
        firsts = self.first_offsets()
        going = firsts.keys() if partitions is None else firsts.keys() & set(partitions)
        for tp in going:
            del self._waiting[tp]
        return {tp: firsts[tp] for tp in going}
