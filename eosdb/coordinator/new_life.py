"""Begins the new life of a copied or restored file, before its first writer does anything else.

Clients of the time that the copy does not contain may live on. They hold producer ids, epochs, member ids
and offsets which this file would give out a second time. So all of these skip ahead, in one unit.
decisions/0094.
"""

from __future__ import annotations

import secrets
from typing import Final

from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.leadership import Leadership
from eosdb.coordinator.transactions import decisions
from eosdb.coordinator.transactions import rows as transaction_rows
from eosdb.coordinator.transactions.producer_ids import NEXT_PRODUCER_ID
from eosdb.events.kinds import LifeBegan
from eosdb.log import lives
from eosdb.store.counters import counter
from eosdb.store.writing.unit import STEPS_PER_UNIT, Unit

_NUMBERED_FROM_S: Final = 1_577_836_800
"""2020 began. Numbers are seconds from then on, so that a second restore of a copy gets a higher one."""
_HIGHEST: Final = 2**31 - 2**20
"""The highest number by the clock, however wrong it is. A leader epoch is an int32."""
_RANDOM_BITS: Final = 22
"""Producer ids begin at a random place behind the number; all of them stay below 2**53, for JSON."""
_EVER: Final = -(2**62)
_OPEN: Final = (
    f"SELECT transactional_id FROM transactional_ids WHERE state {transaction_rows.IS_ONGOING}"
)
_COORDINATOR_EPOCH: Final = "SELECT coalesce(max(coordinator_epoch), 0) FROM partition_producers"
_GROUPS: Final = "SELECT group_id FROM groups WHERE state <> 'Empty'"


def is_copy(stored: str | None, place: str, last_position: int, known_position: int) -> bool:
    """Whether a file at `place` is a copy: it was last written at another place, or the lock file knows a
    newer position. A new file has no place yet."""
    return stored not in (None, place) or last_position < known_position


def number(last: int, now_ms: int) -> int:
    """The number of the life after `last`."""
    assert last >= 0, last
    return max(last + 1, min(now_ms // 1000 - _NUMBERED_FROM_S, _HIGHEST))


def begin(unit: Unit, leadership: Leadership, now_ms: int) -> int:
    """Begin a new life: abort open transactions, forget all transactional ids, remove all members, and skip
    ids. Returns the life's number."""
    life, ended = number(lives.current(unit), now_ms), counter(unit, NEXT_PRODUCER_ID)
    first = max(ended, life << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS))
    unit.record(LifeBegan(now_ms, life, secrets.token_hex(8), ended, first))
    (above,) = unit.execute(_COORDINATOR_EPOCH).fetchone()
    leadership.elect_and_complete(unit, above)
    for (transactional_id,) in unit.execute(_OPEN).fetchall():
        current = transaction_rows.load(unit, transactional_id)
        assert current is not None
        prepared, epoch = decisions.fence(current, now_ms), transaction_rows.epoch(unit)
        transaction_rows.record(unit, current, prepared, now_ms)
        transaction_rows.write_markers_and_complete(unit, prepared, epoch, now_ms)
    while transaction_rows.expire(unit, now_ms, _EVER):
        pass
    while groups := unit.execute(_GROUPS).fetchmany(STEPS_PER_UNIT):
        members = {}
        for (group_id,) in groups:
            group = group_rows.load(unit, group_id)
            assert group is not None
            members[group_id] = [member.member_id for member in group.members]
        group_rows.expire_members(unit, now_ms, members)
    return life
