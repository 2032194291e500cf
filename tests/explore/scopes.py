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


def _of(kind: type[World], scopes: dict[str, dict[str, Any]]) -> dict[str, Scope]:
    return {name: (kind, scope) for name, scope in scopes.items()}


# fmt: off
SMALL: Final = {
    **_of(Transactions, {
        "one producer": {"versions": (2,), "losses": 1, "repeats": 1, "timeouts": 1, "aborts": 1},
        "one producer of version 1": {"versions": (1,), "losses": 1, "repeats": 1, "timeouts": 1},
        "two producers of one id": {"losses": 1, "timeouts": 1},
        "two versions of one id": {"versions": (1, 2), "crashes": 1},
        "offsets": {"versions": (2,), "offsets": True, "aborts": 1, "crashes": 1},
        "offsets by version 1": {"versions": (1,), "offsets": True, "repeats": 1},
        "two ids": {"one_id": False, "aborts": 1, "timeouts": 1},
        "two partitions": {"versions": (2,), "partitions": 2, "losses": 1, "timeouts": 1},
        "last epochs": {"versions": (2,), "last_epoch": 2, "transactions": 3, "losses": 1, "repeats": 1},
        "aborts by version 1": {"versions": (1,), "aborts": 1, "losses": 1},
        "ids expire": {"expiries": 1, "timeouts": 1},
        "a new life": {"copies": 1},
        "half in the copy": {"versions": (2,), "partitions": 2, "copies": 1},
    }),
    **_of(Groups, {
        "eager": {"members": ("e", "e"), "expiries": 1},
        "eager and new": {"members": ("e", "n"), "leaves": 1, "lates": 1},
        "cooperative and new": {"members": ("c", "n"), "expiries": 1},
        "static and cooperative": {"members": ("C", "c"), "overdues": 1},
        "static restarts": {"members": ("CC", "c"), "deaths": 1},
        "static and new": {"members": ("C", "n"), "leaves": 1},
        "new protocol": {"members": ("NN", "n"), "leaves": 1, "lates": 1},
        "to the new protocol": {"members": ("cn", "c"), "leaves": 1},
        "to the classic protocol": {"members": ("nc", "c"), "leaves": 1},
        "new joins again": {"members": ("n", "n"), "rejoins": 1},
        "eager and new join again": {"members": ("e", "n"), "rejoins": 1},
        "three eager": {"members": ("e", "e", "e"), "lates": 1},
        "three new": {"members": ("n", "n", "n"), "lates": 1},
        "eager restored": {"members": ("e", "e"), "copies": 1},
    }),
    **_of(Process, {
        "a processor": {"size": 3, "faults": 1},
        "two processors": {"processors": 2, "partitions": 2, "size": 3, "expiries": 1},
        "tried twice": {"attempts": 2, "retries": False, "fails": 2},
        "retried": {"records": 1, "fails": 2, "advances": 2},
        "postponed": {"postpones": 2, "advances": 1},
        "the clock jumps": {"records": 1, "fails": 1, "jumps": 1},
    }),
}
LARGE: Final = {
    **_of(Transactions, {
        "one id, all faults": {"versions": (1, 2), "losses": 1, "timeouts": 1, "crashes": 1},
        "one id, late requests": {"losses": 1, "timeouts": 1, "repeats": 1},
        "two ids, late requests": {"versions": (1, 2), "one_id": False, "repeats": 1, "crashes": 1},
        "one id, last epochs": {"last_epoch": 2, "transactions": 2, "losses": 1, "timeouts": 1},
        "one id, offsets": {"versions": (1, 2), "offsets": True, "crashes": 1, "timeouts": 1},
        "one id, two partitions": {"versions": (1, 2), "partitions": 2, "crashes": 1, "timeouts": 1},
        "one id, ids expire": {"versions": (1, 2), "expiries": 1, "losses": 1, "timeouts": 1},
        "two versions, a new life": {"versions": (2, 1), "copies": 1, "timeouts": 1},
    }),
    **_of(Groups, {
        "cooperative": {"members": ("c", "c"), "losses": 1, "expiries": 1, "lates": 1},
        "static restarts, late joins": {"members": ("CC", "c"), "deaths": 1, "overdues": 1},
        "both change over": {"members": ("cn", "cn"), "leaves": 2, "lates": 1},
        "both change back": {"members": ("nc", "nc"), "leaves": 2, "lates": 1},
        "static and late": {"members": ("Cn", "c"), "deaths": 1, "lates": 1},
        "static changes over": {"members": ("CN", "C"), "leaves": 1, "deaths": 1},
        "new restarts": {"members": ("nn", "n"), "deaths": 1, "lates": 1, "overdues": 1},
        "mixed, late requests": {"members": ("c", "n"), "deaths": 1, "losses": 1, "lates": 1},
        "three eager, expiries": {"members": ("e", "e", "e"), "lates": 1, "expiries": 1},
        "three cooperative, late": {"members": ("c", "c", "c"), "lates": 1},
        "three new, all faults": {
            "members": ("n", "n", "n"), "losses": 1, "lates": 1, "rejoins": 1, "leaves": 1,
        },
        "two eager and new": {"members": ("e", "e", "n"), "lates": 1, "leaves": 1},
        "two cooperative and new": {"members": ("c", "c", "n"), "lates": 1, "leaves": 1},
        "static eager restarts": {"members": ("EE", "e"), "deaths": 1, "lates": 1},
        "static eager changes over": {"members": ("En", "e"), "deaths": 1, "lates": 1},
        "static and two new": {"members": ("C", "n", "n"), "lates": 1, "leaves": 1},
        "cooperative and two new": {"members": ("c", "n", "n")},
        "one of three new restarts": {"members": ("Nn", "n", "n"), "lates": 1, "rejoins": 1},
        "eager waits for two": {"members": ("e", "n", "n"), "partitions": 6, "lates": 1},
        "one of three changes over": {"members": ("en", "e", "e"), "leaves": 1},
        "eager, lost members": {"members": ("ee", "e"), "copies": 1, "leaves": 1},
        "eager and new, restored": {"members": ("e", "n"), "copies": 1, "lates": 1},
        "new restored": {"members": ("n", "n"), "copies": 1},
        "three new, restored": {"members": ("n", "n", "n"), "copies": 1, "lates": 1},
    }),
    **_of(Process, {
        "two processors, all faults": {
            "processors": 2, "partitions": 2, "faults": 1, "fails": 1, "expiries": 1,
        },
        "postponed, all faults": {"postpones": 1, "fails": 1, "faults": 1, "advances": 1},
        "postponed under faults": {
            "records": 1, "postpones": 1, "faults": 1, "advances": 1, "kinds": ("die",),
        },
        "a processor restored": {"records": 1, "copies": 1},
        "two processors restored": {"processors": 2, "partitions": 2, "copies": 1},
        "retried and restored": {"records": 1, "copies": 1, "fails": 1, "faults": 1},
        "postponed and restored": {"records": 1, "copies": 1, "postpones": 1, "advances": 1},
        "the clock jumps twice": {"records": 1, "fails": 1, "postpones": 1, "jumps": 2},
    }),
}
# fmt: on
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
        "\n# As a scenario (tests/explore/scenarios.toml):\n\n[name_me]",
        f'scope = "{name}"\nmoves = """{moves}"""',
    ]
    return "\n".join(program)
