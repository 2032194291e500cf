"""Checks when members leave a group.

The next write must remove a member whose process has died. A member that hangs or is cut off goes when
its session has ended. No other member may be removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from eosdb.model.damage import parsed
from eosdb.testing.simulation.model import require

_NOTICED_MS: Final = 300
"""How long writes may continue after a death without noticing it."""
_WAITED_IN: Final = ("PreparingRebalance", "CompletingRebalance")
"""In these states a member that has joined may wait for others without heartbeats."""
Row = tuple[str, str, int, str, str, int]
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

    def look(self, rows: Iterable[Row], now_ms: int) -> None:
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


def _members(rows: Iterable[Row]) -> dict[tuple[str, str], _Seen]:
    seen_members: dict[tuple[str, str], _Seen] = {}
    for group_id, state, deadline, members, member_id, expires in rows:
        for member in parsed(members):
            if member["member_id"] == member_id:
                seen_members[group_id, member_id] = _Seen(
                    member.get("owner_lock", 0),
                    expires,
                    deadline,
                    member.get("group_instance_id"),
                    member["session_timeout_ms"],
                    state in _WAITED_IN and member.get("has_joined", True),
                )
    return seen_members
