"""What the program loads before it does anything: little, whatever the command. What Ctrl-C does then."""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import eosdb.cli
from eosdb.cli.main import COMMANDS, GROUPS
from tests.cli.conftest import MAIN
from tests.programs import ended

pytestmark = [pytest.mark.process, pytest.mark.real_start]

SELDOM = (
    "alembic", "asyncio", "http", "importlib.metadata", "kafka", "matplotlib", "multiprocessing",
    "pyarrow", "pyspark", "rich", "sqlalchemy", "ssl", "starlette", "unittest",
)  # fmt: skip
LOADED = """
import json, sys
from eosdb.cli.main import main
try:
    main(json.loads(sys.argv[1]))
except SystemExit as end:
    print(json.dumps([end.code, *sys.modules]), file=sys.stderr)
"""


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a process has loaded when it has run a command."""
    command = [sys.executable, "-c", LOADED, json.dumps(arguments)]
    done = ended(command, input="one\n", check=True)
    status, *modules = json.loads(done.stderr.splitlines()[-1])
    assert status == 0
    return set(modules)


@pytest.mark.parametrize("command", [("--help",), ("produce", "--help")])
def test_help_loads_little_of_eosdb(command: tuple[str, ...]) -> None:
    loaded = loaded_by(*command)
    assert not loaded.intersection(SELDOM)
    assert not loaded.intersection(
        {"sqlite3", "eosdb.database", "eosdb.store.store", "eosdb.client"}
    )


def test_everyday_commands_load_nothing_that_they_seldom_need(db_path: Path) -> None:
    file = ("--db", str(db_path))
    for command in (
        ("init",),
        ("topics", "create", "lines"),
        ("topics", "list"),
        ("produce", "lines"),
        ("consume", "lines", "--from-beginning", "--max-records", "1"),
    ):
        assert not loaded_by(*file, *command).intersection(SELDOM), command


def test_what_opens_a_file_is_imported_before_ctrl_c_may_raise(db_path: Path) -> None:
    program = (
        "import sys, eosdb.cli.main as m; "
        "m.raising_on_interrupt = lambda: print('eosdb.database' in sys.modules, flush=True); "
        f"m.main(['init', {str(db_path)!r}])"
    )
    command = [sys.executable, "-c", program]
    done = ended(command, check=True)
    assert done.stdout.splitlines()[0] == "True"


def test_completion_of_a_name_loads_no_command() -> None:
    words = {"_EOSDB_COMPLETE": "bash_complete", "COMP_WORDS": "eosdb topi", "COMP_CWORD": "1"}
    command = [sys.executable, "-X", "importtime", "-m", "eosdb"]
    done = ended(command, env={**os.environ, **words}, check=True)
    assert done.stdout.split() == ["plain,topics"]
    assert "eosdb.cli.main" in done.stderr
    assert "eosdb.cli.commands.data.topics" not in done.stderr


def test_ctrl_c_at_any_moment_of_the_start_ends_it_without_a_traceback(db_path: Path) -> None:
    """-X importtime tells how far the start is; the last moments are the run of the command itself."""
    program = [sys.executable, "-X", "importtime", "-c", "from eosdb.__main__ import run; run()"]
    command = [*program, "--db", str(db_path), "produce", "t"]
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
    whole = ended(command, input="", check=True).stderr
    lines = whole.splitlines()
    settled = next(i for i, line in enumerate(lines) if line.endswith(" eosdb.__main__")) + 2
    moments = [settled + (len(lines) - settled) * i // 20 for i in range(20)]
    for moment in moments:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stderr is not None
            for _ in range(moment):
                process.stderr.readline()
            process.send_signal(signal.SIGINT)
            _, rest = process.communicate(timeout=120)
        # Python dies of the signal if it came within an exec(); a shell shows 130 for both.
        assert process.returncode in (130, -signal.SIGINT), moment
        assert b"Traceback" not in rest, moment
        assert b"ignored" not in rest, moment


def test_the_list_of_commands_says_how_the_help_of_each_begins() -> None:
    before = max(map(len, GROUPS)) + 2 + max(map(len, COMMANDS)) + 2
    for name, (_, text) in COMMANDS.items():
        command = MAIN.commands[name]
        assert (command.name, text[-1]) == (name, ".")
        assert " ".join(command.help.split()).startswith(text.removesuffix(".")), name
        assert len(text) <= 80 - before, f"{name}: {text!r} is too long for a line"


def test_the_list_of_commands_fits_a_screen() -> None:
    shown = CliRunner().invoke(MAIN, ["--help"]).output
    assert len(shown.splitlines()) <= 45
    assert all(f" {name} " in shown for name in COMMANDS)


def test_no_command_is_missing_in_the_list() -> None:
    listed = {id(command) for command in with_children(MAIN)}
    for module in pkgutil.iter_modules(eosdb.cli.__path__, "eosdb.cli."):
        if module.name != "eosdb.cli.__main__":  # It runs the program.
            for name, value in vars(import_module(module.name)).items():
                if isinstance(value, click.Command):
                    assert id(value) in listed, f"{module.name}.{name}"


def with_children(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from with_children(child)
