"""The assertions of the coordinator: each is seen to fail, by a value that eosdb never passes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from eosdb.coordinator import new_life, presence
from eosdb.coordinator.leadership import Decision, Leadership
from eosdb.coordinator.transactions import decisions, rows

NOTHING: Any = None
EMPTY = decisions.init_producer_id(None, "t", 1, None, 1, 0)
OTHER = decisions.init_producer_id(None, "u", 1, None, 2, 0)
LEADERSHIP = Leadership(NOTHING, NOTHING, 1)


def locked(number: int, *, at_once: bool) -> None:
    owners: Any = SimpleNamespace(_store=SimpleNamespace(owner_locks=list), _own_ids=set())
    with patch.object(presence, "owner_lock", lambda *_: number):
        if at_once:
            presence.Presences.begin(owners, NOTHING, "t")
        else:
            with presence.Presences.owning(owners, "t", 0):
                pass


CASES: dict[str, Callable[[], object]] = {
    "a life below 0": lambda: new_life.number(-1, 0),
    "a lock among those of members": lambda: locked(presence._MEMBERS_AT, at_once=False),
    "locks that reach those of members": lambda: locked(presence._MEMBERS_AT - 1, at_once=True),
    "no time-out": lambda: decisions.init_producer_id(None, "t", 0, None, 1, 0),
    "a prolongation by nothing": lambda: decisions.prolong(EMPTY, 1, 0, 0, 0),
    "version 3": lambda: decisions.end(EMPTY, 1, 0, True, 0, version=3),
    "a change of the id": lambda: rows.record(NOTHING, EMPTY, OTHER, 0),
    "the end of what is not decided": lambda: LEADERSHIP.complete(Decision(EMPTY, 1)),
    "the same at once": lambda: LEADERSHIP.completed_at_once(NOTHING, Decision(EMPTY, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_value_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError):
        CASES[name]()
