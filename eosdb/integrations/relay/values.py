"""What moves through a relay: records with all that a target keeps of them, chunks, and where a partition
stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eosdb.model.values import Header, TopicPartition


class RelayRecord(NamedTuple):
    """A committed record of the source. `offset` is the source's, `timestamp` in ms since the epoch; None
    if the source does not know one."""

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
    """The next offset of the source to be relayed, the id of the topic that it is an offset of, and that of
    the topic which has what lies before it (empty: not known)."""

    offset: int
    topic_id: str
    target_id: str = ""


class Bounds(NamedTuple):
    """Where a partition of the source begins, and how far it can be read now."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic of the source. `config` are its own settings."""

    name: str
    topic_id: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one transaction of the target carries: records in the order of their partitions, and the
    positions behind them, which also pass markers, aborted records and gaps."""

    records: Sequence[RelayRecord] = ()
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a chunk holds. A single record may be larger."""

    records: int = 5_000
    bytes: int = 8_388_608


class Outgoing(NamedTuple):
    """A record as it is sent to the target; `origin` is the one that it stands for, None for a position."""

    topic: str
    partition: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    origin: RelayRecord | None = None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What a target says of one of its topics."""

    partitions: int
    log_append_time: bool = False
    max_message_bytes: int | None = None
    """None if it does not say."""
    topic_id: str = ""
    """Empty if it does not say."""
