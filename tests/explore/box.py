"""The real broker on one connection of SQLite, so that what was done can be undone.

Every write unit is a savepoint inside one transaction, and `trial` leaves a state by ROLLBACK TO.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import eosdb
from eosdb.broker import membership
from eosdb.coordinator import new_life
from eosdb.coordinator.projection import apply
from eosdb.errors import EosdbError
from eosdb.maintenance import replay
from eosdb.maintenance.verify import RecordCheck
from eosdb.model.requests import Request
from eosdb.store.file.connection import connect
from eosdb.store.writing.unit import Unit
from tests.simulation.model import require

T = TypeVar("T")
START_MS: Final = 1_700_000_000_000
_TABLES: Final = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'sqlite_*' ORDER BY name"
)
_GUARDS: Final = "SELECT name FROM sqlite_schema WHERE type = 'trigger'"


class Crash(Exception):
    """The process of the coordinator ends here."""


class Clock(eosdb.ManualClock):
    """Its time of day may jump, and all of it may go back, to leave a state."""

    shift_ms = 0

    def time_ms(self) -> int:
        return super().time_ms() + self.shift_ms


class Box:
    """A database whose write units are savepoints of one transaction, from `freeze` on."""

    def __init__(self, **config: Any) -> None:
        logging.disable(logging.CRITICAL)
        self._patched: list[tuple[Any, str, Any]] = []
        self.patch(new_life, "secrets", _NoChance)
        # Ids in the order of their making, so that clients may change places.
        self.patch(membership, "_new_id", _ordered_id)
        self._folder = tempfile.TemporaryDirectory(prefix="explore")
        self.path = f"{self._folder.name}/x.db"
        self.clock = Clock(START_MS)
        self.db = eosdb.connect(
            self.path, durability="off", clock=self.clock,
            config=eosdb.BrokerConfig(producer_id_block_size=1, **config),
        )  # fmt: skip
        self.core = self.db._core
        self.coordinator = self.core.coordinator
        self.leadership = self.coordinator.leadership
        self.history: list[str] | None = None
        """The calls of the path, while one is printed."""

    def freeze(self) -> None:
        self.leadership.ensure_elected()
        store: Any = self.db._store
        store._writer.connection.rollback()
        self.connection = connect(self.path, 5_000)
        self.connection.isolation_level = None
        self.connection.execute("PRAGMA temp_store = MEMORY")  # Savepoints need no files.
        self.connection.execute("PRAGMA cache_spill = 0")
        self._unit = Unit(self.connection, apply, store.timings.untold)
        self.connection.execute("BEGIN IMMEDIATE")
        store.write, store.read = self._write, self._read

    def close(self) -> None:
        self.connection.close()
        self.db._store.close(orderly=False)
        self._folder.cleanup()
        for owner, name, value in reversed(self._patched):
            setattr(owner, name, value)
        logging.disable(logging.NOTSET)

    def patch(self, owner: Any, name: str, value: Any) -> None:
        """Until `close`."""
        self._patched.append((owner, name, getattr(owner, name, None)))
        setattr(owner, name, value)

    def _write(self, function: Callable[[Unit], T], **_: Any) -> T:
        unit = self._unit
        unit.discard()
        self.connection.execute("SAVEPOINT unit")
        try:
            result = function(unit)
            unit.write_waiting()
        except BaseException:
            unit.discard()
            self.connection.execute("ROLLBACK TO unit")
            raise
        finally:
            self.connection.execute("RELEASE unit")
        return result

    @contextlib.contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        yield self.connection

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """What the block does is undone."""
        lead, attempts, clock = self.leadership, self.core.attempts, self.clock
        now, shift = clock.monotonic_ms(), clock.shift_ms
        memory = lead._elected, {*lead._completing}, {*lead._refused}, {**attempts._tried}
        self.connection.execute("SAVEPOINT trial")
        try:
            yield
        finally:
            self.connection.execute("ROLLBACK TO trial")
            self.connection.execute("RELEASE trial")
            lead._elected, lead._completing, lead._refused, attempts._tried = memory
            clock._now_ms, clock.shift_ms = now, shift
            self._unit.discard()

    def memory(self) -> object:
        """What the coordinator knows and the file does not."""
        lead, tried = self.leadership, self.core.attempts._tried
        return lead._elected, sorted(lead._completing), sorted(lead._refused), sorted(tried.items())

    # -- what happens: each is a line of the printed program -----------------------------------------

    def ask(self, request: Request[Any]) -> Any:
        """The answer of the broker, or its error."""
        answer: Any
        try:
            answer = self.db.broker.ask(request)
        except EosdbError as error:
            answer = error
        self._note(f"box.ask({request!r})", answer)
        return answer

    def advance(self, ms: int) -> None:
        """The clock moves, and what is due is done."""
        self.clock.advance(ms)
        self.coordinator.do_what_is_due()
        self._note(f"box.advance({ms})")

    def jump(self, ms: int) -> None:
        """The time of day jumps, as when somebody sets the clock."""
        self.clock.shift_ms += ms
        self._note(f"box.jump({ms})")

    def crash(self) -> None:
        """The process of the coordinator ends, and another one opens the file."""
        lead = self.leadership
        lead._elected = False
        lead._completing.clear()
        lead._refused.clear()
        self.core.attempts._tried.clear()
        lead.recover()
        self._note("box.crash()")

    def crash_between(self, request: Request[Any]) -> bool:
        """The same between the two steps of a transaction's end. Returns whether there was an end."""

        def dies(_: object) -> None:
            raise Crash

        self.leadership.complete = dies  # type: ignore[method-assign, assignment]
        try:
            self.db.broker.ask(request)
        except Crash:
            return True
        except EosdbError:
            pass
        finally:
            del self.leadership.complete
            self._note(f"box.crash_between({request!r})")
        return False

    def end_session(self, member_id: str) -> None:
        """The member's session ends."""
        self.rows("UPDATE group_sessions SET expires = 1 WHERE member_id = ?", member_id)
        self.coordinator.do_what_is_due()
        self._note(f"box.end_session({member_id!r})")

    def copy(self) -> dict[str, list[tuple[Any, ...]]]:
        self._note("copy = box.copy()")
        names = [name for (name,) in self.rows(_TABLES)]
        return {name: self.rows(f"SELECT * FROM {name}") for name in names}

    def unguard(self) -> None:
        """Before `freeze`: `restore` must delete what the file's triggers protect."""
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            for (name,) in connection.execute(_GUARDS).fetchall():
                connection.execute(f"DROP TRIGGER {name}")

    def restore(self, copy: dict[str, list[tuple[Any, ...]]]) -> None:
        """The file is the copy again, and begins a new life."""
        for name, rows in copy.items():
            if self.rows(f"SELECT * FROM {name}") == rows:
                continue
            self.connection.execute(f"DELETE FROM {name}")
            if rows:
                marks = ",".join("?" * len(rows[0]))
                self.connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        self.crash()
        self._write(lambda unit: new_life.begin(unit, self.leadership, self.clock.time_ms()))
        self._note("box.restore(copy)")

    def _note(self, call: str, answer: Any = None) -> None:
        if self.history is not None:
            shown = "" if answer is None else f"  # {answer!r:.150}"
            self.history.append(call + shown)

    def verify(self) -> None:
        check = RecordCheck(self.connection, 0)
        with self.trial():
            _, found = replay.verify(self.connection, apply, check.inspect, lambda *_: None)
            problems = [*found, *check.finish()]
        require(not problems, f"verify: {problems}")


def _ordered_id(client_id: str, *numbers: int) -> str:
    return "m-" + "".join(f"{number:09}" for number in numbers)


class _NoChance:
    """In the place of `secrets`."""

    token_hex = staticmethod(lambda n: "00" * n)
    randbits = staticmethod(lambda n: 0)
