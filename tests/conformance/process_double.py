"""A server in a process of its own as a system under test: its first line of output ends with its address,
and a restart is a SIGKILL."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.conformance.through_confluent import ThroughConfluent

KFAKE: Final = Path(__file__).parent / "kfake"
"""The Go program."""
_EOSDB: Final = (
    sys.executable, "-m", "eosdb.cli", "serve", "{folder}/kafka.db", "--create", "--port=0",
    "--listen=127.0.0.1", "--config=auto.create.topics.enable=true", "--config=num.partitions=2",
    "--config=group.min.session.timeout.ms=1",
)  # fmt: skip


class Served(ThroughConfluent):
    def __init__(self, command: Sequence[str]) -> None:
        """`{folder}` in the command is where its data belongs."""
        self._folder = tempfile.TemporaryDirectory()
        self._command = [part.format(folder=self._folder.name) for part in command]
        super().__init__()

    def start(self) -> str:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()[-1]

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def clean_up(self) -> None:
        self._folder.cleanup()


def served_eosdb() -> Served:
    return Served(_EOSDB)


def kfake() -> Served:
    """With its data on disk, synced, so that it has something to start again from."""
    return Served([f"{_kfake_folder().name}/kfake", "{folder}/kfake"])


@cache
def _kfake_folder() -> tempfile.TemporaryDirectory[str]:
    """Where the program is, built from the versions that its go.mod names; removed at the end."""
    folder = tempfile.TemporaryDirectory()
    subprocess.run(["go", "build", "-o", folder.name, "."], cwd=KFAKE, check=True)
    return folder
