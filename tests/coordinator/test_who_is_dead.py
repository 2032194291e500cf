"""Members are seen as they are stored now, not as they were when somebody last looked."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import ManualClock
from eosdb.coordinator.groups import rows
from eosdb.coordinator.presence import LOOK_EVERY_MS, Presences
from eosdb.events.encoding import members_json
from eosdb.model.protocol.members import Member

Stored = list[tuple[str, str]]


def members(*locks: int) -> str:
    return members_json([Member(f"m{lock}", owner_lock=lock) for lock in locks])


def test_a_member_that_joined_since_the_last_look_is_looked_at(
    db: eosdb.Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: Stored = [("g", members())]
    monkeypatch.setattr(rows, "stored_members", lambda _: stored)
    presences = Presences(db._store, clock)
    with db._store.read() as connection:
        assert presences.dead(connection) == {}
        stored[0] = ("g", members(5))
        assert presences.dead(connection) == {"g": {"m5"}}
        stored.append(("h", members(6, 7)))
        assert presences.dead(connection) == {"g": {"m5"}, "h": {"m6", "m7"}}
        stored[:] = [("h", members(7))]
        assert presences.dead(connection) == {"h": {"m7"}}


def test_a_look_without_a_find_is_the_last_for_a_fifth_of_a_second(
    db: eosdb.Database, clock: ManualClock
) -> None:
    presences = Presences(db._store, clock)
    assert presences.is_look_due()
    with db._store.read() as connection:
        assert not presences.has_dead(connection)
    clock.advance(199)
    assert not presences.is_look_due()
    clock.advance(1)
    assert presences.is_look_due()
    assert LOOK_EVERY_MS == 200


def test_the_lock_of_a_member_is_none_of_a_transactions(
    db: eosdb.Database, clock: ManualClock
) -> None:
    presences = Presences(db._store, clock)
    presence = presences.begin(lambda: None, None)
    assert presences.is_there(presence.number)
    assert not db._store.is_owned(presence.number)
    presence.end()
    assert not presences.is_there(presence.number)
