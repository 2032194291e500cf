"""A model of the log, built from its rows by Kafka's rules alone.

A marker ends its producer's open transaction in the partition. Data counts if it is outside of a
transaction or followed by a COMMIT marker. Of a group's commits, inside and outside of transactions, the
later request wins, not the later marker; the journal has their order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eosdb.model.damage import parsed
from eosdb.model.values import TopicPartition

OF_ITS_OWN: Final = "offsets of "
"""Groups to which a producer commits in both ways. One request commits each offset, and may be repeated."""
Place = tuple[str, TopicPartition]


class Commits:
    def __init__(self) -> None:
        self.expected: dict[Place, int] = {}
        self.seen = 0
        """The journal position up to which requests have been read."""
        self._requested: dict[tuple[Place, int], int] = {}
        self._newest: dict[Place, int] = {}

    def add(self, requests: Iterable[tuple[int, str, str]]) -> None:
        """Add new requests: position, kind, detail. A plain commit counts at once."""
        for position, kind, detail in requests:
            self.seen = position
            event = parsed(detail)
            if not event["group_id"].startswith(OF_ITS_OWN):
                continue
            for commit in event["offsets"]:
                tp = TopicPartition(commit["topic"], commit["partition"])
                place = (event["group_id"], tp)
                self._requested[place, commit["offset"]] = position
                if kind == "OffsetsCommitted":
                    self.count(*place, commit["offset"])

    def count(self, group: str, tp: TopicPartition, offset: int) -> None:
        """Count an offset as committed: its transaction was committed, or it was in none."""
        place = (group, tp)
        position = self._requested.get((place, offset), -1)
        require(position >= 0, f"{group} {tp}: offset {offset} counts, but was never sent")
        if position > self._newest.get(place, -1):
            self._newest[place] = position
            self.expected[place] = offset


INPUT: Final = "in"
OUTPUT: Final = "out"
SHARED: Final = "shared"
TABLE: Final = "table"
"""A compacted topic, whose records have keys."""
WORKERS: Final = "workers"
MEMBERS: Final = "members"
RESULTS: Final = {OUTPUT: WORKERS, SHARED: MEMBERS}
"""Topics of results, and the group that produces them."""
INPUTS: Final = 2


class Violation(AssertionError):
    """A promise was broken."""


class Row(NamedTuple):
    """One stored record."""

    offset: int
    value: bytes | None
    producer_id: int
    producer_epoch: int
    sequence: int
    is_transactional: bool
    control: str | None
    position: int
    key: bytes | None


@dataclass(slots=True)
class PartitionModel:
    """The model of one partition."""

    rows: list[Row] = field(default_factory=list)
    committed: dict[int, bytes] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    open: dict[int, list[Row]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    log_start: int = 0
    last_stable: int = 0

    def expected_last_stable(self) -> int:
        first_open = min((rows[0].offset for rows in self.open.values()), default=len(self.rows))
        return max(first_open, self.log_start)

    def newest_by_key(self, below: int) -> dict[bytes | None, int]:
        """By key the last committed offset below this one: the records that a compaction must keep."""
        return {self.rows[o].key: o for o in sorted(self.committed) if o < below}


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


def assigned(data: bytes) -> set[tuple[str, int]]:
    """The partitions of an assignment (Kafka: ConsumerProtocolAssignment); empty before there is one."""
    tps: set[tuple[str, int]] = set()
    at = 2  # Behind the version.
    (topics,) = struct.unpack_from(">i", data, at) if data else (0,)
    at += 4
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", data, at)
        topic = data[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (count,) = struct.unpack_from(">i", data, at)
        tps |= {(topic, n) for n in struct.unpack_from(f">{count}i", data, at + 4)}
        at += 4 + 4 * count
    return tps
