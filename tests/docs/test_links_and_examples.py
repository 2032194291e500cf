"""Documentation is executed: links lead somewhere, Python blocks of the README run, commands exist."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from eosdb.cli.main import main
from eosdb.spark_io import jdbc
from eosdb.testing.kafka import KafkaDouble
from scripts import pages
from scripts.commands import leaves
from tests.cases import each
from tests.docs.shell import Shell
from tests.integrations.relay.contents import values
from tests.programs import ended
from tests.spark import small
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


@each("path", DOCUMENTS)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (path.parent / target).exists(), target


EMPTIED = """
import os, shutil
for entry in os.scandir():
    shutil.rmtree(entry) if entry.is_dir() else os.unlink(entry)
"""


def python_in(page: str) -> str:
    """The page's Python blocks."""
    text = pages.python_of((ROOT / page).read_text())
    assert text
    return text


def python_of(page: str, folder: Path, *, followed_by: str = "") -> None:
    """Runs the page's Python blocks, as one program."""
    program = folder / "page.py"
    program.write_text(python_in(page) + followed_by)
    done = ended([sys.executable, str(program)], cwd=folder)
    assert done.returncode == 0, done.stderr


def commands_of(page: str, folder: Path) -> None:
    """Runs the lines of the blocks marked `console` after `$`, in one shell."""
    text = pages.commands_of((ROOT / page).read_text())
    assert text
    shell = Shell(folder)
    for line in text.splitlines():
        done = shell.run(line)
        assert done.returncode == 0, f"$ {line}\n{done.stdout}{done.stderr}"


PAGES = (
    ("README.md", "python"),
    ("README.md", "commands"),
    ("docs/index.md", "python"),
    ("docs/cli.md", "commands"),
    ("docs/wire.md", "python"),
    ("docs/guide.md", "python python"),
    ("docs/recipes.md", "python"),
    ("docs/errors.md", "python"),
    ("docs/groups.md", "python"),
    ("docs/processing.md", "python commands"),
    ("docs/sql.md", "commands"),
    ("docs/observability.md", "python"),
    ("docs/backups.md", "commands python"),
    ("docs/relay.md", "python commands"),
    ("docs/outbox.md", "python"),
    ("docs/scheduling.md", "python"),
    ("docs/why-not.md", "python"),
    ("docs/asyncio.md", "python python"),
    ("docs/adopt.md", "python commands"),
    ("docs/lakehouse.md", "commands python"),
)
"""Pages, and what of each runs in one folder, in this order: `python` as one program, or `commands`."""


@pytest.mark.parametrize(("page", "what"), PAGES)
def test_a_page_does_what_it_says(page: str, what: str, tmp_path: Path) -> None:
    for part in what.split():
        {"python": python_of, "commands": commands_of}[part](page, tmp_path)


def test_the_page_about_the_move_to_kafka_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python_of("docs/moving-to-kafka.md", tmp_path)
    with KafkaDouble(tmp_path / "real.db") as real, KafkaDouble(tmp_path / "test.db") as other:
        monkeypatch.setenv("BROKER", real)
        monkeypatch.setenv("TEST_BROKER", other)
        commands_of("docs/moving-to-kafka.md", tmp_path)
        assert {b"coffee", b"tea", b"milk"} == set(values(real.db))


def test_the_pages_about_many_files_and_spark_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One program, and so one JVM, which keeps its working directory: the second page finds it empty.

    Spark gives a Python process ten seconds to connect; no setting changes that (PythonWorkerFactory). It
    may be too short on a crowded machine, so the pages then have a second attempt.
    """
    if shutil.which("java") is None or jdbc.find() is None:
        pytest.skip(f"NO JAVA OR SQLITE JDBC DRIVER: these pages are not run; {jdbc.INSTALL}")
    for name, value in small.environment().items():
        monkeypatch.setenv(name, value)
    for attempt in (tmp_path / "first", tmp_path / "second"):
        attempt.mkdir()
        monkeypatch.setenv("EOSDB_CACHE", f"{attempt}.cache")
        commands_of("docs/fleet.md", attempt)
        try:
            python_of("docs/fleet.md", attempt, followed_by=EMPTIED + python_in("docs/spark.md"))
        except AssertionError as error:
            if "failed to connect back" not in str(error) or attempt.name == "second":
                raise
        else:
            break


def test_every_command_has_help_with_an_example() -> None:
    for name, command in commands(main, "eosdb"):
        assert command.help, name
        if not isinstance(command, click.Group):
            assert "Example:" in command.help, name


def test_every_command_stands_in_a_task_of_its_page() -> None:
    tasks = pages.section((ROOT / "docs/cli.md").read_text(), "Tasks")
    rows = [
        set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`]+)`", row))))
        for row in tasks.splitlines()
        if row.startswith("| ")
    ]
    context = main.make_context("eosdb", [], resilient_parsing=True)
    for _, below in leaves(main, context):
        path = below.command_path.split()[1:]
        assert any(row.issuperset(path) for row in rows), path


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    for key, command in group.commands.items():
        yield f"{name} {key}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {key}")
