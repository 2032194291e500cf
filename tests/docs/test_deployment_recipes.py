"""The recipes for systemd and containers: their command lines are complete; the probe works."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from copy import copy
from typing import Any

import click
import pytest

import eosdb
from eosdb.cli.commands.kafka.serve import serve
from eosdb.cli.file_command import Session
from eosdb.integrations.exposition import FigureServer
from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
SERVE: Any = serve


def exec_form(instruction: str) -> list[str]:
    """The words of an instruction of the Dockerfile."""
    found = re.search(rf"(?m)^{instruction}.*?(\[.*\])$", PAGE)
    assert found is not None
    words: list[str] = json.loads(found[1])
    return words


def command_lines() -> list[list[str]]:
    unit = re.search(r"(?m)^ExecStart=(.*)$", PAGE)
    assert unit is not None
    inside = exec_form("ENTRYPOINT")
    runs = re.findall(r"(?m)^\$ docker run .*? eosdb\b([^#\n]*)", PAGE)
    assert len(runs) == 2
    return [shlex.split(unit[1]), *(inside + shlex.split(it) for it in runs)]


@pytest.mark.parametrize("line", command_lines(), ids=str)
def test_the_servers_command_lines_are_understood(line: list[str]) -> None:
    program, command, file, *options = line
    assert (program, command) == ("/opt/eosdb/bin/eosdb", "serve")
    assert file.endswith("/shop.db")
    # A copy, for click notes in a command that its --help was made.
    with copy(SERVE).make_context("serve", options, obj=Session(None)) as context:
        assert isinstance(context, click.Context)
        assert context.params["metrics_port"] == 9404


@pytest.mark.process
def test_the_health_check_passes_while_the_file_can_be_read(db: eosdb.Database) -> None:
    _, option, program = exec_form("HEALTHCHECK")

    def status(port: int) -> int:
        assert "127.0.0.1:9404" in program
        here = program.replace("9404", str(port))
        return subprocess.run(
            [sys.executable, option, here], stderr=subprocess.DEVNULL, check=False
        ).returncode

    with FigureServer(0, db.metrics_text) as figures:
        assert status(figures.port) == 0
        db.close()
        assert status(figures.port) == 1
    assert status(figures.port) == 1
