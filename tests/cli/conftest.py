"""The `eosdb` command as users call it: through its entry point, in this process or in one of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eosdb.cli.main import main

MAIN: Any = main
Run = Callable[..., Result]


@pytest.fixture
def run(db_path: Path) -> Run:
    """Runs a command on the test's file; fails the test on an exception that no user may see."""

    def call(*arguments: str, stdin: str | bytes = "") -> Result:
        result = CliRunner().invoke(MAIN, ["--db", str(db_path), *arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def start(db_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command in a process of its own; none outlives its test."""
    started: list[subprocess.Popen[str]] = []

    def call(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "eosdb.cli", "--db", str(db_path), *arguments]
        started.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield call
    for process in started:
        process.kill()
        process.communicate()
