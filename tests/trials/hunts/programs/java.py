"""Kafka's Java producer, by `Transactions.java`: this program notes what it has it store.

Its classes are in the folder `classes`, beside the file CLASS_PATH that names Kafka's jars.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from eosdb.errors import Outcome
from tests.trials.hunts import meanings
from tests.trials.hunts.ledger import Operation
from tests.trials.hunts.programs.working import BrokenError, Setting, work

SOURCES: Final = Path(__file__).parent
CLASSES: Final = "classes"
CLASS_PATH: Final = "classes/path"
MEMORY: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class ProgramError(Exception):
    """The Java program has ended, or says why it will."""


class Transactions:
    """Of one producer in a process of its own. Every seventh is aborted; an exception makes it anew."""

    is_atomic = True

    def __init__(self, setting: Setting) -> None:
        path = f"{setting.folder / CLASSES}:{(setting.folder / CLASS_PATH).read_text()}"
        command = ["java", *MEMORY, "-cp", path, "Transactions", setting.address, setting.name]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if (said := self._answer()) != "ready":
            self.close()
            raise ProgramError(said)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def store(self, operation: Operation, values: list[bytes]) -> Outcome:
        fields = ["commit" if operation.number % 7 else "abort"]
        for place, value in zip(operation.places, values, strict=True):
            fields += [place.topic, str(place.partition), value.decode()]
        said = self._ask("\t".join(fields))
        match said.split():
            case ["written"]:
                return "written"
            case ["aborted"]:
                return "not written"
            case ["before", _]:
                raise BrokenError("not written")
            case ["ending", exception]:
                raise BrokenError(meanings.of_java(exception, committing=True))
            case _:  # It was killed.
                raise BrokenError("unknown")

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self._answer()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    work(Transactions, (ProgramError,))
