"""What waiting consumers ask a broker in one question, on one snapshot, instead of in many requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from eosdb.model.requests import Question
from eosdb.model.values import IsolationLevel, TopicPartition


@dataclass(frozen=True, slots=True)
class HaveMoved(Question[bool]):
    """Whether any partition of `listed` (see `lag.listed`) has another end for this isolation level, or was
    deleted. Checks no rights, since the following read does."""

    listed: str
    isolation_level: IsolationLevel


@dataclass(frozen=True, slots=True)
class Moved(Question[list[TopicPartition]]):
    """The partitions that may have something to read at these positions (by topic and partition): all but
    those that end there, may be read, and belong to a topic with the id in `topic_ids`."""

    positions: Mapping[str, Mapping[int, int]]
    topic_ids: Mapping[str, UUID]
    isolation_level: IsolationLevel


class Seen(NamedTuple):
    """The answer to `TopicsAndGroup`."""

    counts: Mapping[str, int]
    """The topics that the principal may describe, with their numbers of partitions."""
    generation: int | None
    """The group's generation; -1 while its members join. None without a group that may be described."""


@dataclass(frozen=True, slots=True)
class TopicsAndGroup(Question[Seen]):
    """The topics of these names (None: all) and the group, on one snapshot."""

    names: Collection[str] | None
    group_id: str | None
