"""`make matrix`: what it finds, and how it takes a SQLite that is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eosdb.store.file.connection import OLDEST_SQLITE
from scripts import matrix
from tests.tidy.test_tree import project
from tests.tidy.tree import ROOT


@pytest.mark.process
def test_a_sqlite_that_eosdb_refuses_is_refused_and_runs_no_tests(tmp_path: Path) -> None:
    old = "import sqlite3; sqlite3.sqlite_version = '3.36.0'; sqlite3.sqlite_version_info = (3, 36, 0)"
    (tmp_path / "sitecustomize.py").write_text(old)
    sqlite = matrix.Sqlite("old", {"PYTHONPATH": str(tmp_path)})
    assert matrix.outcome(Path(sys.executable), sqlite) == ("3.36.0", "refused")


def test_the_pythons_of_the_matrix_are_those_of_the_classifiers_and_one_that_may_come() -> None:
    named = [f"Programming Language :: Python :: 3.{minor}" for minor in matrix.MINORS[:-1]]
    assert [c for c in project()["project"]["classifiers"] if "Python :: 3." in c] == named
    assert project()["project"]["requires-python"] == f">=3.{matrix.MINORS[0]}"


def test_the_page_about_support_names_the_oldest_sqlite() -> None:
    page = (ROOT / "docs/support.md").read_text(encoding="utf-8")
    assert f"SQLite {'.'.join(map(str, OLDEST_SQLITE))} or newer" in page
    assert all((ROOT / room).exists() for room in matrix.TESTS)
