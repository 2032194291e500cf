"""Whatever somebody types: an answer and an exit status, never a traceback, and a file that is as before
unless the command was done."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eosdb.store.file.file_system import LOCKS
from tests.cli.conftest import MAIN
from tests.cli.test_every_command import COMMANDS, LEAVES, make
from tests.readers import copy_as_original, dump_state

NEVER_ENDING = {
    "serve",
    "ui",
    "top",
    "metrics",
}
ANYWHERE = {"export"}
"""It makes the folder that it is told, wherever; tests/cli/test_export.py looks at it."""
WAITING = {"--follow", "-f", "--timeout-ms", "--help", "-h"}
"""They may wait for ever, or do nothing but print, as they should."""
FOR_A_CLUSTER = {"--execute", "--undo"}
"""With these `migrate-to-kafka` waits for ever for a cluster that is away; tests/integrations/moving has
one. A relay waits for it, too, so it is told of none, and ends with --once.

Nothing here may never end: Hypothesis takes the time limit for a failure, and tries the line again.
"""
A_CLUSTER = re.compile(r".:\d")
WORDS = [
    "", " ", "-", "--", "0", "-1", "1.5", "1e9", str(2**31), str(2**63), str(-(2**63) - 1), "NaN",
    "orders", "orders/0", "orders/1", "orders/99", "orders/-1", "orders/x", "orders/0/0", "/", "nowhere",
    "nowhere/0", "billing", "open", "typed", "a:INTEGER", "a:WHAT", ":", "a'b\"c", "ö\u2028\ud800",
    "\x1b[31m", "x" * 300, "__eosdb.x", "__consumer_offsets", "..", "eosdb_x", "journal",
    "retention.ms=abc", "cleanup.policy=compact", "=", "nothing=1", "User:a", "2026-13-01",
    "2026-11-21", "SELECT 1", "DELETE FROM topics", "PRAGMA user_version=9", "SELECT", "ATTACH 'x' AS y",
    "json", "file.db", "orders:0,1", "orders:x", "orders:", "all", "topic", "/dev/null", "/etc",
    "/no/such/file",
]  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bad") / "small.db"
    make(path, 20)
    return path


def option_names(name: str) -> Iterator[str]:
    for parameter in LEAVES[name].params:
        if isinstance(parameter, click.Option):
            yield from (o for o in parameter.opts if o not in WAITING and o.startswith("--"))


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command that exists, whose good arguments are changed, taken away and added to at random."""
    name = draw(st.sampled_from(sorted(set(LEAVES) - NEVER_ENDING - ANYWHERE)))
    word = st.sampled_from(WORDS) | st.text(max_size=8).filter(lambda text: "\0" not in text)
    line = list(COMMANDS[name])
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(line)))
        match draw(st.integers(0, 3)):
            case 0 if at < len(line):
                line[at] = draw(word)
            case 1 if at < len(line):
                del line[at]
            case 2:
                line.insert(at, draw(word))
            case _:
                option = draw(st.sampled_from([*option_names(name), "--nonsense"]))
                line += [option, draw(word)] if draw(st.booleans()) else [option]
    if name == "relay":
        line = ["--once", *(word for word in line if not A_CLUSTER.search(word))]
    left_out = WAITING | FOR_A_CLUSTER if name == "migrate-to-kafka" else WAITING
    return [*name.split(), *(word for word in line if word not in left_out)]


@pytest.mark.slow
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(line=command_lines(), stdin=st.binary(max_size=40), place=st.integers(0, 2))
def test_no_command_line_gives_a_traceback_or_harms_the_file(
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: list[str],
    stdin: bytes,
    place: int,
) -> None:
    monkeypatch.setattr("eosdb.integrations.moving.move._PLAN_PATIENCE_MS", 0)  # Nobody is there.
    path = tmp_path / "file.db"
    for suffix in ("", "-wal", "-shm", *LOCKS):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    copy_as_original(small, path)
    before = dump_state(path)
    with contextlib.chdir(tmp_path):
        result = CliRunner().invoke(MAIN, _given(str(path), line, place), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2)
    assert "Traceback" not in result.output
    if result.exit_code == 1:
        assert result.stderr.strip(), "a refusal says why"
    if result.exit_code != 0 and line[0] not in ("produce", "ingest", "dlq"):
        # What these did before they met something bad stays, as they say.
        assert dump_state(path) == before


def _given(path: str, line: list[str], place: int) -> list[str]:
    """The command line with the file in one of the places where it may stand."""
    if place == 0:
        return ["--db", path, *line]
    end = 2 if " ".join(line[:2]) in LEAVES else 1
    return [*line[:end], *(["--db", path] if place == 1 else [path]), *line[end:]]


@pytest.mark.parametrize("words", [["--db"], ["--nonsense"], ["nonsense"], ["topics", "nonsense"]])
def test_usage_errors_have_status_2(words: list[str]) -> None:
    result = CliRunner().invoke(MAIN, words)
    assert result.exit_code == 2
    assert result.stderr.strip()
