"""Ctrl-C at any instant: the object works or says that it is closed, no lock stays, nothing is lost.

Method: a program is interrupted again and again, each time at another of the places where CPython
looks for signals (interrupting.py), and goes on each time (interrupt_worker.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import eosdb
from tests.chaos.interrupt_worker import WORKS
from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("work", WORKS)
def test_a_program_that_is_interrupted_goes_on(db_path: Path, work: str, seeds: list[int]) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        db.admin.create_topic("in")
        with db.begin() as tx:
            tx.connection.exec_driver_sql("CREATE TABLE done (value TEXT UNIQUE)")
    done = ended(
        [
            sys.executable,
            "-m",
            "tests.chaos.interrupt_worker",
            db_path,
            work,
            str(seeds[0]),
            str(4 * len(seeds)),
        ],
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
