"""The values of a relay: records with the fields that a target keeps, chunks, and positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eosdb.model.values import Header, TopicPartition


class RelayRecord(NamedTuple):
    """A committed record of the source. `offset` is the source's, `timestamp` in ms since the epoch; None
    if it is unknown."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class Position(NamedTuple):
    """A partition's position: the next offset of the source, the id of its topic, and the id of the
    target's topic that has the records before it (empty if unknown)."""

    offset: int
    topic_id: str
    target_id: str = ""


class Bounds(NamedTuple):
    """The start of a source partition, and the offset up to which it can be read now."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic of the source. `config` has the settings of the topic itself."""

    name: str
    topic_id: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The content of one transaction of the target: records in the order of their partitions, and the
    positions after them, which also skip markers, aborted records and gaps."""

    records: Sequence[RelayRecord] = ()
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a chunk. A single record may be larger."""

    records: int = 5_000
    bytes: int = 8_388_608


class Outgoing(NamedTuple):
    """A record in the form sent to the target; `origin` is the source's record, None for a position."""

    topic: str
    partition: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    origin: RelayRecord | None = None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A target's facts about one of its topics."""

    partitions: int
    log_append_time: bool = False
    max_message_bytes: int | None = None
    """None if it is unknown."""
    topic_id: str = ""
    """Empty if it is unknown."""
