"""What a program without logging prints: its warnings with logger and level, each once, and counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import logging, os, sys
import eosdb
from eosdb.model.notices.catalog import ATTEMPT_FAILED
{settings}
def fail(offset, cause):
    ATTEMPT_FAILED.say(
        group_id="g", topic="t", partition=0, offset=offset, attempt=1, attempts=3, cause=cause,
        error="ValueError", next_step="retry", next_step_text="tried again", delay_ms=0,
    )
for offset in range(27):
    fail(offset, "no price")
fail(30, "no colour")
{rest}
"""
LINE = "WARNING eosdb.processor: group g: t-0 offset %d: attempt 1 of 3 failed: %s; tried again"
COLOUR = LINE % (30, "no colour")


def printed(settings: str = "", rest: str = "", ends_with: int = 0) -> list[str]:
    program = PROGRAM.format(settings=settings, rest=rest)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", ends_with)
    return done.stderr.splitlines()


def test_lines_that_differ_in_numbers_alone_are_counted() -> None:
    assert printed() == [
        LINE % (0, "no price"),
        LINE % (9, "no price") + " (10 such lines)",
        COLOUR,
        LINE % (26, "no price") + " (27 such lines)",
    ]


def test_the_error_that_ends_a_program_is_its_last_line() -> None:
    assert printed(rest="raise ValueError('no price')", ends_with=1)[-1] == "ValueError: no price"


def test_a_child_does_not_count_what_its_parent_has_told() -> None:
    rest = "import warnings; warnings.simplefilter('ignore')\nif os.fork():\n    os.wait()"
    assert printed(rest=rest) == printed()


def test_a_program_that_configures_logging_gets_every_line(tmp_path: Path) -> None:
    lines = printed("logging.basicConfig(format='%(levelname)s %(name)s: %(message)s')")
    assert lines == [*(LINE % (offset, "no price") for offset in range(27)), COLOUR]
    settings = (
        f"logging.getLogger('eosdb').addHandler(logging.FileHandler({str(tmp_path / 'log')!r}))"
    )
    assert printed(settings) == []
    assert len((tmp_path / "log").read_text().splitlines()) == 28


@pytest.mark.parametrize(
    "settings",
    [
        "logging.getLogger('eosdb').addHandler(logging.NullHandler())",
        "logging.getLogger('eosdb').setLevel(logging.ERROR)",
        "logging.disable()",
        "logging.lastResort = None",
        "logging.getLogger('eosdb.processor').addFilter(lambda record: False)",
        "sys.stderr = None",
    ],
)
def test_a_program_that_wants_no_lines_gets_none(settings: str) -> None:
    assert printed(settings) == []
