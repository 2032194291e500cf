"""Interfaces of the source and the target of a relay.

Both raise the errors of `eosdb.integrations.relay.failure`: `InterruptedRelayError` makes the relay start
a new session, `TooLargeError` means that records are too large; any other error stops the relay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from eosdb.integrations.relay.values import (
    Bounds,
    Chunk,
    Limits,
    Outgoing,
    SourceTopic,
    TopicFacts,
)
from eosdb.model.values import TopicPartition


class Source(Protocol):
    """Where committed records come from. Used by one thread."""

    @property
    def where(self) -> str:
        """The source's name in messages."""

    def id(self) -> str:
        """The id under which positions are stored: constant as long as offsets keep their meaning."""

    def topics(self, requested: Iterable[str] | None) -> list[SourceTopic]:
        """The topics to relay. Raises UnknownTopicOrPartitionError for a topic that does not exist."""

    def departure(self, mark: str) -> str | None:
        """Why the mark is not of the source's history; None if it is, or if that is unknown."""

    def mark(self) -> str:
        """A mark of the source's current history; empty if the source has none."""

    def bounds(self, topics: Sequence[SourceTopic]) -> dict[TopicPartition, Bounds]:
        """The current start and end of each partition."""

    def begin(self, topics: Sequence[SourceTopic], starts: Mapping[TopicPartition, int]) -> None:
        """Start reading from these offsets."""

    def read(self, limits: Limits) -> Chunk:
        """Read the next chunk, and advance; empty if there is nothing to read."""

    def ends(self) -> dict[TopicPartition, int]:
        """The ends of the partitions when they were last looked up."""

    def is_caught_up(self) -> bool:
        """Whether the last `read` reached the end of every partition."""

    def wait(self, timeout_ms: int, stopped: Callable[[], bool]) -> None:
        """Wait until there may be more records, `timeout_ms` have passed, or `stopped` is true."""

    def note(self, relay: str, positions: Mapping[TopicPartition, int]) -> None:
        """Publish, at the source, how far it was relayed. For display only: the target's positions
        count."""

    def rest(self) -> None:
        """Release connections while the relay waits."""

    def close(self) -> None:
        """Close the source."""


class Target(Protocol):
    """Where records go, in one transaction per chunk. Used by one thread."""

    @property
    def where(self) -> str:
        """The target's name in messages."""

    def id(self) -> str:
        """The id of the target; must differ from the source's."""

    def ready(self) -> None:
        """Create the position topic if it does not exist."""

    def take_over(self, transactional_id: str, stopped: Callable[[], bool]) -> None:
        """Initialise the transactional id: end its previous holder's transaction and fence the holder.
        `stopped` is polled to interrupt waits, in this call and in later ones."""

    def position_records(self) -> Iterable[tuple[bytes | None, bytes | None]]:
        """Key and value of each committed record of the position topic, up to its current end."""

    def facts(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """Facts about those of these topics that exist."""

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic with those settings that the target knows."""

    def write(self, records: Sequence[Outgoing]) -> None:
        """Write the records in one transaction, and commit it."""

    def release(self) -> None:
        """Abort an open transaction, if that is possible soon, and give up the transactional id."""

    def close(self) -> None:
        """Close the target."""
