"""Records that have been polled and not been delivered yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from eosdb.model.values import ConsumerRecord, TopicPartition

Records: TypeAlias = "list[ConsumerRecord]"


class Buffer:
    """Records by partition, each partition's in order."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, tuple[Records, int]] = {}
        """The records, and how many of them have been delivered; at least one has not."""

    def add(self, found: Mapping[TopicPartition, Records]) -> None:
        """Records of partitions that have none here."""
        for tp, records in found.items():
            self._waiting[tp] = (records, 0)

    def take_one(self, wanted: Collection[TopicPartition]) -> ConsumerRecord | None:
        """The next record of the wanted partitions; none named: of all."""
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
        """Where each partition goes on."""
        return {tp: records[place].offset for tp, (records, place) in self._waiting.items()}

    def put_back(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Forget the records of these partitions, or of all; returns where to poll them again."""
        firsts = self.first_offsets()
        going = firsts.keys() if partitions is None else firsts.keys() & set(partitions)
        for tp in going:
            del self._waiting[tp]
        return {tp: firsts[tp] for tp in going}
