"""The two ends of a relay, as its loop sees them.

Both raise what `eosdb.integrations.relay.failure` names: `InterruptedRelayError` to begin anew, and
`TooLargeError`; any other error stops the relay.
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
    """Where committed records come from. One thread uses it."""

    @property
    def where(self) -> str:
        """What messages call it."""

    def id(self) -> str:
        """What positions are kept under: the same for as long as offsets mean the same."""

    def topics(self, asked: Iterable[str] | None) -> list[SourceTopic]:
        """The topics to relay. Raises UnknownTopicOrPartitionError for one that is not there."""

    def departure(self, mark: str) -> str | None:
        """Why the source is not the one that the mark was taken of; None if it is, or cannot tell."""

    def mark(self) -> str:
        """A mark of the source's history as it is now; empty if there is nothing like it."""

    def bounds(self, topics: Sequence[SourceTopic]) -> dict[TopicPartition, Bounds]:
        """Where each partition begins and ends now."""

    def begin(self, topics: Sequence[SourceTopic], starts: Mapping[TopicPartition, int]) -> None:
        """Go on reading from these offsets."""

    def read(self, limits: Limits) -> Chunk:
        """The next chunk, empty if there is nothing. After it the source stands behind the chunk."""

    def ends(self) -> dict[TopicPartition, int]:
        """How far the partitions could be read when they were last looked at."""

    def is_caught_up(self) -> bool:
        """Whether the last `read` found the end of every partition."""

    def wait(self, timeout_ms: int, stopped: Callable[[], bool]) -> None:
        """Wait until there may be more, or for so long, or until it is stopped."""

    def note(self, relay: str, positions: Mapping[TopicPartition, int]) -> None:
        """Let those who look at the source know how far it has been relayed. Only shown: what counts is in
        the target."""

    def rest(self) -> None:
        """Hold nothing: the target is away."""

    def close(self) -> None:
        """Let go of it."""


class Target(Protocol):
    """Where records go, one transaction for each chunk. One thread uses it."""

    @property
    def where(self) -> str:
        """What messages call it."""

    def id(self) -> str:
        """Another one than the source's."""

    def ready(self) -> None:
        """See to the position topic: create it if it is not there."""

    def take_over(self, transactional_id: str, stopped: Callable[[], bool]) -> None:
        """Take the transactional id: what its previous holder left open is ended, and it is fenced.
        `stopped` tells when not to wait any longer, then and later."""

    def position_records(self) -> Iterable[tuple[bytes | None, bytes | None]]:
        """Key and value of each committed record of the position topic, up to its end as it is now."""

    def facts(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """What there is of these topics."""

    def create(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic, with those of the settings that are known there."""

    def write(self, records: Sequence[Outgoing]) -> None:
        """All in one transaction, which is committed when this returns."""

    def release(self) -> None:
        """Abort what is open, if that can be done soon, and give up the transactional id."""

    def close(self) -> None:
        """Let go of it."""
