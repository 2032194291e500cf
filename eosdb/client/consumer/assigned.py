"""A consumer's assigned partitions, and the callbacks when they change."""

from __future__ import annotations

from collections.abc import Callable, Collection

from eosdb.client.consumer.fetcher import Cursor
from eosdb.model.values import TopicPartition

OnChange = Callable[[list[TopicPartition]], object]


class AssignedPartitions:
    """Assigns and revokes, with the user's callbacks (Kafka: ConsumerRebalanceListener). Callbacks may
    read positions and commit: partitions stay assigned until their callback returns."""

    def __init__(
        self, cursors: dict[TopicPartition, Cursor], before_revoke: Callable[[], None]
    ) -> None:
        self._cursors = cursors
        self._before_revoke = before_revoke
        self._on_assign: OnChange | None = None
        self._on_revoke: OnChange | None = None
        self._on_lost: OnChange | None = None

    def listen(
        self, on_assign: OnChange | None, on_revoke: OnChange | None, on_lost: OnChange | None
    ) -> None:
        """Set the callbacks; without `on_lost`, `on_revoke` is called for lost partitions."""
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self._on_lost = on_lost or on_revoke

    def assigned(self) -> Collection[TopicPartition]:
        return self._cursors.keys()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Add the partitions. The callback also follows a rebalance that adds none."""
        given = sorted(partitions)
        for tp in given:
            self._cursors[tp] = Cursor()
        if self._on_assign is not None:
            self._on_assign(given)

    def revoke(self, partitions: Collection[TopicPartition], *, lost: bool = False) -> None:
        """Remove the partitions. If `lost`, other members may own them already, so nothing is committed."""
        revoked = sorted(partitions)
        callback = self._on_lost if lost else self._on_revoke
        try:
            if not lost:
                self._before_revoke()
            if callback is not None:
                callback(revoked)
        finally:
            for tp in revoked:
                self._cursors.pop(tp, None)

    def replace(self, partitions: Collection[TopicPartition]) -> bool:
        """Assign exactly these partitions. Returns whether anything has changed."""
        before, after = set(self._cursors), set(partitions)
        if gone := before - after:
            self.revoke(gone)
        if new := after - before:
            self.assign(new)
        return before != after
