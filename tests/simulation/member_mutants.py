"""Deliberate bugs in telling which members are gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from eosdb.client.consumer.membership import Membership
from eosdb.coordinator.due import Due
from eosdb.coordinator.presence import Presences
from tests.simulation.planting import instead_of, mutant


@mutant("nobody looks whether the processes of members have died")
def the_dead_remain_members() -> Any:
    def nobody(self: Any, source: Any) -> Iterator[tuple[str, str]]:
        return iter(())

    return mock.patch.object(Presences, "_dead", nobody)


@instead_of("a member whose session is half over is taken for dead", Presences, "_dead")
def who_hangs_is_taken_for_dead(dead: Any, self: Any, source: Any) -> Iterator[tuple[str, str]]:
    yield from dead(self, source)
    half = self._clock.time_ms() + 400
    query = "SELECT group_id, member_id FROM group_sessions WHERE expires < ?"
    yield from source.execute(query, (half,)).fetchall()


@instead_of("a member that joins again gives up its lock first", Membership, "_owner_lock")
def joining_again_gives_up_the_lock(owner_lock: Any, self: Any) -> int:
    number = owner_lock(self)
    if self._member_id and self._presence is not None:
        self._presence._real.end()
    return int(number)


@mutant("a session that begins does not bring forward when somebody looks whether it has ended")
def sessions_are_not_due() -> Any:
    return mock.patch.object(Due, "by", return_value=None)
