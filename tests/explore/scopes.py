"""The scopes that are explored, and how a violation is told.

`SMALL` is explored by `make test`, `LARGE` by `make explore`. A scope is a world and what is limited in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tests.explore.core import Move, Result, World, explore, replay_path
from tests.explore.groups import Groups
from tests.explore.process import Process
from tests.explore.transactions import Transactions
from tests.simulation.model import Violation

Scope = tuple[type[World], dict[str, Any]]
SMALL: Final[dict[str, Scope]] = {
    "one producer": (
        Transactions,
        {"versions": (2,), "losses": 1, "repeats": 1, "timeouts": 1, "aborts": 1},
    ),
    "one producer of version 1": (
        Transactions,
        {"versions": (1,), "losses": 1, "repeats": 1, "timeouts": 1},
    ),
    "two producers of one id": (Transactions, {"losses": 1, "timeouts": 1}),
    "two versions of one id": (Transactions, {"versions": (1, 2), "crashes": 1}),
    "offsets": (Transactions, {"versions": (2,), "offsets": True, "aborts": 1, "crashes": 1}),
    "offsets by version 1": (Transactions, {"versions": (1,), "offsets": True, "repeats": 1}),
    "two ids": (Transactions, {"one_id": False, "aborts": 1, "timeouts": 1}),
    "two partitions": (
        Transactions,
        {"versions": (2,), "partitions": 2, "losses": 1, "timeouts": 1},
    ),
    "last epochs": (
        Transactions,
        {"versions": (2,), "last_epoch": 2, "transactions": 3, "losses": 1, "repeats": 1},
    ),
    "aborts by version 1": (Transactions, {"versions": (1,), "aborts": 1, "losses": 1}),
    "ids expire": (Transactions, {"expiries": 1, "timeouts": 1}),
    "a new life": (Transactions, {"copies": 1}),
    "half in the copy": (Transactions, {"versions": (2,), "partitions": 2, "copies": 1}),
    "eager": (Groups, {"members": ("e", "e"), "expiries": 1}),
    "eager and new": (Groups, {"members": ("e", "n"), "leaves": 1, "lates": 1}),
    "cooperative and new": (Groups, {"members": ("c", "n"), "expiries": 1}),
    "static and cooperative": (Groups, {"members": ("C", "c"), "overdues": 1}),
    "static restarts": (Groups, {"members": ("CC", "c"), "deaths": 1}),
    "static and new": (Groups, {"members": ("C", "n"), "leaves": 1}),
    "new protocol": (Groups, {"members": ("NN", "n"), "leaves": 1, "lates": 1}),
    "to the new protocol": (Groups, {"members": ("cn", "c"), "leaves": 1}),
    "to the classic protocol": (Groups, {"members": ("nc", "c"), "leaves": 1}),
    "a processor": (Process, {"size": 3, "faults": 1}),
    "two processors": (Process, {"copies": 2, "partitions": 2, "size": 3, "expiries": 1}),
    "tried twice": (Process, {"attempts": 2, "retries": False, "fails": 2}),
    "retried": (Process, {"records": 1, "fails": 2, "advances": 2}),
    "postponed": (Process, {"postpones": 2, "advances": 1}),
    "the clock jumps": (Process, {"records": 1, "fails": 1, "jumps": 1}),
}
LARGE: Final[dict[str, Scope]] = {
    "one id, all faults": (
        Transactions,
        {"versions": (1, 2), "losses": 1, "timeouts": 1, "crashes": 1},
    ),
    "one id, late requests": (Transactions, {"losses": 1, "timeouts": 1, "repeats": 1}),
    "two ids, late requests": (
        Transactions,
        {"versions": (1, 2), "one_id": False, "repeats": 1, "crashes": 1},
    ),
    "one id, last epochs": (
        Transactions,
        {"last_epoch": 2, "transactions": 2, "losses": 1, "timeouts": 1},
    ),
    "one id, offsets": (
        Transactions,
        {"versions": (1, 2), "offsets": True, "crashes": 1, "timeouts": 1},
    ),
    "one id, two partitions": (
        Transactions,
        {"versions": (1, 2), "partitions": 2, "crashes": 1, "timeouts": 1},
    ),
    "one id, ids expire": (
        Transactions,
        {"versions": (1, 2), "expiries": 1, "losses": 1, "timeouts": 1},
    ),
    "two versions, a new life": (Transactions, {"versions": (2, 1), "copies": 1, "timeouts": 1}),
    "cooperative": (Groups, {"members": ("c", "c"), "losses": 1, "expiries": 1, "lates": 1}),
    "static restarts, late joins": (Groups, {"members": ("CC", "c"), "deaths": 1, "overdues": 1}),
    "both change over": (Groups, {"members": ("cn", "cn"), "leaves": 2, "lates": 1}),
    "both change back": (Groups, {"members": ("nc", "nc"), "leaves": 2, "lates": 1}),
    "static and late": (Groups, {"members": ("Cn", "c"), "deaths": 1, "lates": 1}),
    "static changes over": (Groups, {"members": ("CN", "C"), "leaves": 1, "deaths": 1}),
    "new restarts": (Groups, {"members": ("nn", "n"), "deaths": 1, "lates": 1, "overdues": 1}),
    "mixed, late requests": (
        Groups,
        {"members": ("c", "n"), "deaths": 1, "losses": 1, "lates": 1},
    ),
    "two processors, all faults": (
        Process,
        {"copies": 2, "partitions": 2, "faults": 1, "fails": 1, "expiries": 1},
    ),
    "postponed, all faults": (
        Process,
        {"postpones": 1, "fails": 1, "faults": 1, "advances": 1},
    ),
    "postponed under faults": (
        Process,
        {"records": 1, "postpones": 1, "faults": 1, "advances": 1, "kinds": ("die",)},
    ),
    "the clock jumps twice": (Process, {"records": 1, "fails": 1, "postpones": 1, "jumps": 2}),
}
_SCENARIO: Final = '''
[name_me]
scope = "{scope}"
moves = """
{moves}
"""'''


def made(name: str) -> World:
    kind, scope = (SMALL | LARGE)[name]
    return kind(**scope)


def explored(name: str, seconds: float) -> Result:
    world = made(name)
    try:
        return explore(world, seconds)
    finally:
        world.box.close()


def replayed(name: str, moves: Sequence[Move]) -> tuple[str | None, list[str]]:
    """The violation of this history, if there is one, and the history's calls."""
    world = made(name)
    try:
        replay_path(world, moves)
        return None, world.box.history or []
    except Violation as error:
        return str(error), world.box.history or []
    finally:
        world.box.close()


def story(name: str, moves: Sequence[Move]) -> str:
    """A history as a program that can be run alone in a checkout, and as a scenario."""
    kind, scope = (SMALL | LARGE)[name]
    given = ", ".join(f"{key}={value!r}" for key, value in scope.items())
    program = [
        "from uuid import UUID",
        "from eosdb import *",
        "from eosdb.model.requests import *",
        f"from {kind.__module__} import {kind.__name__}",
        f"world = {kind.__name__}({given})",
        "box, state = world.box, world.start()",
        *replayed(name, moves)[1],
    ]
    told = _SCENARIO.format(scope=name, moves="\n".join(map(repr, moves)))
    return "\n".join([*program, "", "# As a scenario (tests/explore/scenarios.toml):", told])
