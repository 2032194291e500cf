"""A model of the log, built from its rows by Kafka's rules alone.

A marker ends its producer's open transaction in the partition. Data counts if it is outside of a
transaction or followed by a COMMIT marker. Of a group's commits, inside and outside of transactions, the
later request wins, not the later marker; the journal has their order.

The next write must remove a member whose process has died. A member that hangs or is cut off goes when its
session has ended. No other member may be removed.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from eosdb.model.damage import parsed
from eosdb.model.values import TopicPartition

_NOTICED_MS: Final = 300
"""How long (ms) after the death of a member writes may leave it in its group."""
_WAITED_IN: Final = ("PreparingRebalance", "CompletingRebalance")
"""The states of a group in which a member that has joined may wait for others without heartbeats."""
Lease = tuple[str, str, int, str, str, int]
"""A member's lease: group, its state, rebalance deadline and members, member id, expiry."""


class KnownPresence(Protocol):
    """The true state of a member's process."""

    @property
    def ended_ms(self) -> int | None:
        """When the process ended; None while it is alive."""


@dataclass(frozen=True, slots=True)
class _Seen:
    number: int
    expires: int
    deadline: int
    instance: str | None
    session_ms: int
    waits: bool


class Attendance:
    def __init__(self, presences: Mapping[int, KnownPresence], counts: Counter[str]) -> None:
        self._presences = presences
        self._counts = counts
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._left: set[tuple[str, str]] = set()
        self._last_write_ms = 0
        self._now_ms = 0

    def wrote(self, now_ms: int) -> None:
        """Called after the answer to a request that writes."""
        self._last_write_ms = now_ms

    def asked_to_leave(self, group_id: str, member_id: str) -> None:
        self._left.add((group_id, member_id))

    def look(self, rows: Iterable[Lease], now_ms: int) -> None:
        """Called after every change of the file."""
        self._now_ms = now_ms
        before, self._seen = self._seen, _members(rows)
        for gone in sorted(before.keys() - self._seen.keys() - self._left):
            self._check_removal(gone, before[gone])
        for member, seen in self._seen.items():
            self._check_stay(member, seen)

    def _check_removal(self, member: tuple[str, str], seen: _Seen) -> None:
        is_dead = self._ended_ms(seen) is not None
        is_late = seen.expires < self._now_ms or 0 <= seen.deadline < self._now_ms
        places = {other.instance for other in self._seen.values() if other.instance is not None}
        require(
            is_dead or is_late or seen.instance in places,
            f"{member} was removed, though its process lives and its session goes on",
        )
        if seen.number:
            reason = "its process died" if is_dead else "its session ended"
            self._counts[f"a member was removed: {reason}"] += 1

    def _check_stay(self, member: tuple[str, str], seen: _Seen) -> None:
        ended = self._ended_ms(seen)
        if ended is not None:
            late = self._last_write_ms - ended
            require(late <= _NOTICED_MS, f"{member} is a member {late} ms after its process died")
        ends_in = seen.expires - self._now_ms
        require(
            seen.waits or ends_in <= seen.session_ms,
            f"{member} waits for nothing, and its session of {seen.session_ms} ms ends in {ends_in} ms",
        )
        late = self._last_write_ms - seen.expires
        require(late <= _NOTICED_MS, f"{member} is a member {late} ms after its session ended")

    def _ended_ms(self, seen: _Seen) -> int | None:
        presence = self._presences.get(seen.number)
        return None if presence is None else presence.ended_ms


_DEFAULTS: Final[tuple[Any, ...]] = (
    "", None, "", "", 45_000, 300_000, 0, [], "", True, [], 0, 0, [], [], "Stable",
)  # fmt: skip
"""The parts of a member that may be missing at its end (docs/internals/format.md)."""


class StoredMember:
    """A member of a group, from its JSON array."""

    def __init__(self, parts: Sequence[Any]) -> None:
        whole: list[Any] = [*parts, *_DEFAULTS[len(parts) :]]
        (
            self.member_id, self.group_instance_id, _, _, self.session_timeout_ms, _, self.owner_lock, _,
            assignment, self.has_joined, _, self.member_epoch, _, self._shares, _, self.state,
        ) = whole[: len(_DEFAULTS)]  # fmt: skip
        self.assigned = assigned(b64decode(assignment))
        """The partitions of a classic member."""
        self.owned = self.kept_since(2**31)
        """Topic number and partition number of each that a member of the new protocol has."""

    def kept_since(self, epoch: int) -> set[tuple[int, int]]:
        """What it has had since this epoch without a break."""
        shares = [topics for since, topics in self._shares if since <= epoch]
        return {(topic, n) for topics in shares for topic, numbers in topics for n in numbers}


def members_of(text: str) -> list[StoredMember]:
    return [*map(StoredMember, parsed(text))]


def _members(rows: Iterable[Lease]) -> dict[tuple[str, str], _Seen]:
    seen_members: dict[tuple[str, str], _Seen] = {}
    for group_id, state, deadline, members, member_id, expires in rows:
        for member in members_of(members):
            if member.member_id == member_id:
                seen_members[group_id, member_id] = _Seen(
                    member.owner_lock,
                    expires,
                    deadline,
                    member.group_instance_id,
                    member.session_timeout_ms,
                    state in _WAITED_IN and member.has_joined,
                )
    return seen_members


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
        """Add new requests: position, kind, detail. A commit outside of transactions counts at once."""
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
        """Count an offset as committed, either with its transaction or without one."""
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
"""The topics of results, each with the group that produces it."""
INPUTS: Final = 2


class Violation(AssertionError):
    """The engine has broken a promise."""


class SeenRow(NamedTuple):
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

    rows: list[SeenRow] = field(default_factory=list)
    committed: dict[int, bytes] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    open: dict[int, list[SeenRow]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    log_start: int = 0
    last_stable: int = 0

    def expected_last_stable(self) -> int:
        first_open = min((rows[0].offset for rows in self.open.values()), default=len(self.rows))
        return max(first_open, self.log_start)

    def newest_by_key(self, below: int) -> dict[bytes | None, int]:
        """For each key the last committed offset below this one, which compaction must keep."""
        return {self.rows[o].key: o for o in sorted(self.committed) if o < below}


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


def assigned(data: bytes) -> set[tuple[str, int]]:
    """The partitions of an assignment (Kafka: ConsumerProtocolAssignment); empty without an assignment."""
    tps: set[tuple[str, int]] = set()
    at = 2  # Skips the version, which has two bytes.
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
