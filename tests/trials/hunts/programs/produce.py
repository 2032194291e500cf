"""The command `eosdb produce`, fed by a pipe: its exit status says what became of the lines."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from eosdb.errors import Outcome
from tests.trials.hunts.ledger import Operation
from tests.trials.hunts.programs.working import Setting, work

_OUTCOMES: Final[dict[int, Outcome]] = {0: "written", 1: "not written", 3: "unknown"}


class Command:
    """All lines in one transaction of the command."""

    is_atomic = True

    def __init__(self, setting: Setting) -> None:
        self._command = [sys.executable, "-m", "eosdb.cli", "produce", str(setting.path)]
        self._command += ["--transactional-id", setting.name]

    def store(self, operation: Operation, values: list[bytes]) -> Outcome:
        place = operation.places[0]
        command = [*self._command, place.topic, "--partition", str(place.partition)]
        done = subprocess.run(command, input=b"\n".join(values), capture_output=True, check=False)
        if done.returncode:
            print(done.returncode, done.stderr.decode(), file=sys.stderr)
        return _OUTCOMES.get(done.returncode, "unknown")

    def close(self) -> None:
        """Nothing is open between two commands."""


if __name__ == "__main__":
    work(Command, (), is_spread=False)
