"""What a program knows of what it stored: a line before each operation, and one with its outcome.

A line is JSON and one `write` to a file opened with O_APPEND: it outlives the program, whatever kills it.
An operation that has no second line was under way when its program died: its outcome is unknown. Values
name their operation, so that a reader can tell a part of one: `LIFE/NUMBER/INDEX/COUNT` and spaces.
An operation that is not atomic has an outcome for each of its records, and 0 as its COUNT.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from eosdb.errors import Outcome

LEDGER: Final = "ledger."
"""What the names of ledgers begin with; the name of their program follows."""


Told = Outcome | list[Outcome]
"""What a program has learned of an operation: of all of it, or of each record."""


class Place(NamedTuple):
    """Where a record of an operation goes to."""

    topic: str
    partition: int


@dataclass(slots=True)
class Operation:
    """A transaction, or what else is stored by one call."""

    life: str
    number: int
    places: tuple[Place, ...]
    is_atomic: bool
    told: Told = "unknown"
    is_closed: bool = False
    """Whether its program has learned the outcome."""
    began: int = 0
    ended: int = 0
    """The lines of the ledger at which it was tried and closed; the same where it was never closed."""
    is_lost: bool = False
    """Whether the file became older than the operation: what is "written" may be gone."""

    @property
    def outcome(self) -> Outcome:
        """Of all of it; unknown where its records differ."""
        distinct = {*self.told} if isinstance(self.told, list) else {self.told}
        outcome = distinct.pop() if len(distinct) == 1 else "unknown"
        return "unknown" if self.is_lost and outcome == "written" else outcome

    def outcomes(self) -> list[Outcome]:
        """Of each record."""
        told = self.told if isinstance(self.told, list) else [self.told] * len(self.places)
        return ["unknown" if self.is_lost and it == "written" else it for it in told]

    def values(self) -> list[str]:
        count = len(self.places) if self.is_atomic else 0
        return [f"{self.life}/{self.number}/{i}/{count}" for i in range(len(self.places))]


@dataclass(frozen=True, slots=True)
class Value:
    """The parts of a value."""

    life: str
    number: int
    index: int
    count: int

    @classmethod
    def of(cls, value: bytes) -> Value:
        life, number, index, count = value.decode().rstrip().split("/")
        return cls(life, int(number), int(index), int(count))


class Ledger:
    """Appends to the ledger of a program. A life is one process of it, or one client
    where nothing fences the one before."""

    def __init__(self, folder: Path, name: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(folder / f"{LEDGER}{name}", flags, 0o644)
        self.life = self._process = f"{name}-{os.getpid()}"
        self._number = self._clients = 0

    def attempt(self, places: Sequence[Place], *, is_atomic: bool) -> Operation:
        """Note what is about to be stored."""
        self._number += 1
        operation = Operation(self.life, self._number, tuple(places), is_atomic)
        self._write(["try", self.life, self._number, operation.places, is_atomic])
        return operation

    def close(self, operation: Operation, told: Told) -> None:
        """Note what became of it. A transaction that was aborted is not written."""
        self._write([told, operation.life, operation.number])

    def another_client(self) -> None:
        """Begin another life: what an earlier client has under way may still come, behind what is new."""
        self._clients += 1
        self.life = f"{self._process}.{self._clients}"

    def _write(self, line: object) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


@dataclass(slots=True)
class Ledgers:
    """All ledgers of a folder, read as far as their lines are whole."""

    folder: Path
    operations: dict[tuple[str, int], Operation] = field(default_factory=dict)
    _read: dict[Path, int] = field(default_factory=dict)
    _lines_read: int = 0

    def refresh(self) -> None:
        for path in sorted(self.folder.glob(f"{LEDGER}*")):
            for line in self._lines(path):
                self._lines_read += 1
                match json.loads(line):
                    case ["try", life, number, places, is_atomic]:
                        operation = Operation(
                            life, number, tuple(Place(*place) for place in places), is_atomic
                        )
                        operation.began = operation.ended = self._lines_read
                        self.operations[life, number] = operation
                    case [told, life, number]:
                        operation = self.operations[life, number]
                        operation.told, operation.is_closed = told, True
                        operation.ended = self._lines_read

    def line(self) -> int:
        """How many lines there are."""
        self.refresh()
        return self._lines_read

    def lose(self, since: int) -> None:
        """The file is as it was about this line. What was acknowledged since, or is under way, counts as
        unknown: it is there once and whole, or not. What is "not written" is still not there."""
        self.refresh()
        for operation in self.operations.values():
            operation.is_lost |= not operation.is_closed or operation.ended > since

    def _lines(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            for line in file:
                if line.endswith(b"\n"):
                    self._read[path] = self._read.get(path, 0) + len(line)
                    yield line

    def count(self, outcome: Outcome = "written", of: str = "") -> int:
        """How many operations have this outcome, of the programs whose name begins so."""
        self.refresh()
        return sum(
            operation.outcome == outcome and operation.is_closed
            for (life, _), operation in self.operations.items()
            if life.startswith(of)
        )
