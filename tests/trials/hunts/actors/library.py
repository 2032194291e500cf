"""The library's own ways to write."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from types import MappingProxyType
from typing import Final

import eosdb
from eosdb import TopicPartition
from tests.trials.hunts.actors.actor import Actor, Need
from tests.trials.hunts.programs.working import TOPIC
from tests.trials.hunts.programs.writers import DUE, TABLE
from tests.trials.hunts.world import World
from tests.waiting import eventually

_ROWS: Final = f"SELECT value, place FROM {TABLE}"
_MESSAGES: Final = (
    f"SELECT rtrim(CAST(value AS TEXT)), \"offset\" FROM committed_records WHERE topic = '{TOPIC}'"
)
_OF_NO_MESSAGE: Final = f"SELECT value, place FROM ({_ROWS} EXCEPT {_MESSAGES})"
_WITH_DUE: Final = (
    "SELECT timestamp, headers FROM committed_records WHERE topic = ? AND headers LIKE '%\"due\"%'"
)
_WITHOUT_ROW: Final = f"SELECT count(*) FROM ({_MESSAGES} EXCEPT {_ROWS})"


class Library(Actor):
    """Writes by a program of `tests.trials.hunts.programs`."""

    def __init__(self, name: str, summary: str, module: str = "writers") -> None:
        self.name, self.summary, self.module = name, summary, module


class WithPlaces(Library):
    """Commits its number as a group's place with each operation."""

    def problems(self, world: World) -> list[str]:
        """The place of the group is that of a last operation: none that is written began behind it."""
        operations = world.ledgers.operations.values()
        newest = max(it.began for it in operations if it.outcome == "written")
        possible = [
            it.number for it in operations if it.outcome != "not written" and it.ended >= newest
        ]
        with eosdb.connect(world.path) as db:
            place = db.broker.offset_fetch("places")[TopicPartition(TOPIC, 0)].offset
        return [] if place in possible else [f"the group stands at {place}, expected {possible}"]


class Block(WithPlaces):
    """With a row of its own table for each message: both, or neither, at any instant."""

    is_adopted = True
    has = Actor.has | {Need.OWNER}

    def look(self, world: World) -> list[str]:
        with closing(sqlite3.connect(world.path, timeout=60)) as connection:
            tables = "SELECT count(*) FROM sqlite_schema WHERE name = ?"
            if connection.execute(tables, (TABLE,)).fetchone() == (0,):
                return []  # It has not begun.
            connection.execute("BEGIN")
            rows = set(connection.execute(_OF_NO_MESSAGE))
            (messages,) = connection.execute(_WITHOUT_ROW).fetchone()
        rows -= {
            ((it.value or b"").decode().rstrip(), offset)
            for (_, offset), it in [*world.removed.items()]
        }
        if rows or messages:
            return [f"{len(rows)} rows have no message, {messages} messages have no row"]
        return []

    def problems(self, world: World) -> list[str]:
        return self.look(world) + super().problems(world)


class AppendOnce(Library):
    cannot = MappingProxyType(
        {"zombie": "a batch is identified only by its number, and two programs would use the same"}
    )


class Frozen(WithPlaces):
    cannot = MappingProxyType(
        dict.fromkeys(("clock-forward", "clock-back"), "the clocks of its program stand still")
    )


_BY_DUE_TIME: Final = (
    "records enter by due time, so those of two clocks do not stand as they were sent"
)


class Later(Library):
    """Its records are due a moment after they are stored."""

    cannot = MappingProxyType(
        {
            "upgrade": "a file of an earlier schema has no scheduled records, and would lose them",
            **dict.fromkeys(("clock-forward", "clock-back"), _BY_DUE_TIME),
        }
    )

    def settle(self, world: World) -> None:
        with eosdb.connect(world.path) as db:

            def all_are_there() -> bool:
                db.housekeeping()
                return not db.admin.list_scheduled()

            eventually(all_are_there)

    def problems(self, world: World) -> list[str]:
        return (
            [f"{early} records have entered before they were due"]
            if (early := _early(world))
            else []
        )


def _early(world: World) -> int:
    with closing(sqlite3.connect(world.path, timeout=60)) as connection:
        rows = connection.execute(_WITH_DUE, (TOPIC,)).fetchall()
    dues = [int(base64.b64decode(dict(json.loads(headers))[DUE])) for _, headers in rows]
    return sum(time_ms < due for (time_ms, _), due in zip(rows, dues, strict=True))


ACTORS: Final[list[Actor]] = [
    WithPlaces(
        "producer", "the library's producer: transactions with offsets, one in seven aborted"
    ),
    Library(
        "send-many", "`send_many` without a transaction, also of more records than one commit takes"
    ),
    Block("block", "`db.begin()` in an adopted file: own rows and messages, one in seven raises"),
    WithPlaces(
        "aio",
        "`eosdb.aio`: transactions and `db.begin()`, cancelled in the middle of everything",
        "aio",
    ),
    Library(
        "aio-records",
        "`eosdb.aio` without transactions, cancelled; its futures have the outcomes",
        "aio",
    ),
    Library(
        "threads",
        "an idempotent producer that four threads share; its futures have the outcomes",
        "threads",
    ),
    Later("later", "transactions of records with `deliver_at`, one in seven aborted"),
    Later("later-block", "`db.begin()` with records with `deliver_at`, one in seven raises"),
    Block("reads-itself", "as `block`, and in each block the program reads its own files"),
    WithPlaces(
        "time-limit",
        "the library's producer, interrupted by the exception of a signal handler (Celery, RQ)",
    ),
    Frozen("frozen", "the library's producer while freezegun holds and moves the clocks"),
    Library(
        "produce",
        "the command `eosdb produce`, fed by a pipe; its exit status is the outcome",
        "produce",
    ),
    AppendOnce(
        "append-once",
        "`append_once`; calls with an unknown outcome are repeated, also after a kill",
    ),
]
