"""Runs part of the tests with every Python and every SQLite found here (`make matrix`), and prints a table.

A Python is one of the supported versions on PATH or among pyenv's. A SQLite is the one a Python has, and
any `libsqlite3.so.0` in the folders that are given. The package pysqlite3-binary brings another, but as a
driver of its own without extended error codes. What is needed is installed below `.matrix`. Exit status
1: a combination failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".matrix"
MINORS: Final = (11, 12, 13, 14)
TESTS: Final = (
    "tests/events",
    "tests/log",
    "tests/store/schema",
    "tests/entrance/test_public_names.py",
)
LEFT_OUT: Final = ("--ignore", "tests/store/schema/test_adoption.py")
"""It needs other people's programs, and a SQLite with all their modules."""
ASK: Final = "import sqlite3, sys; print(sqlite3.sqlite_version)"
OPEN: Final = "import eosdb, sys; eosdb.connect(sys.argv[1]).close()"


@dataclass(frozen=True, slots=True)
class Sqlite:
    """A SQLite: how it is called, and the variables that make a Python use it."""

    name: str
    variables: Mapping[str, str]


def pythons() -> Iterator[tuple[str, Path]]:
    """The newest of each supported version."""
    for minor in MINORS:
        name = f"python3.{minor}"
        installed = sorted(
            Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"),
            key=lambda path: int(path.parts[-3].rpartition(".")[2]),
        )
        on_path = shutil.which(name)
        if installed or on_path:
            yield f"3.{minor}", installed[-1] if installed else Path(str(on_path))


def prepared(version: str, python: Path) -> Path:
    """The Python of an environment with eosdb and what its tests need."""
    folder = FOLDER / version
    inside = folder / "bin/python"
    pip = (str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if not (folder / "ready").exists():
        subprocess.run([str(python), "-m", "venv", str(folder)], check=True)
        subprocess.run([*pip, "pip>=25.1"], check=True)
        subprocess.run(
            [*pip, "-e", f"{ROOT}[publish]", "--group", f"{ROOT}/pyproject.toml:test"], check=True
        )
        (folder / "ready").touch()
    return inside


def sqlites(folders: list[str]) -> Iterator[Sqlite]:
    yield Sqlite("its own", {})
    for folder in folders:
        yield Sqlite("a library", {"LD_LIBRARY_PATH": str(Path(folder).resolve())})


def outcome(python: Path, sqlite: Sqlite) -> tuple[str, str]:
    """The version of SQLite, and: passed, refused, or failed and why."""
    environment = {**os.environ, **sqlite.variables}

    def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
        )

    version = asked("-c", ASK)
    if version.returncode:
        return "?", f"this Python cannot load it: {version.stderr.splitlines()[-1]}"
    opened = asked("-c", OPEN, ":memory:")
    if "IllegalStateError: eosdb needs SQLite" in opened.stderr:
        return version.stdout.strip(), "refused"
    done = asked("-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, *LEFT_OUT)
    print(done.stdout[-2000:] if done.returncode else "", end="", file=sys.stderr)
    last = (done.stdout or done.stderr).strip().splitlines()[-1]
    return (
        version.stdout.strip(),
        f"{'failed' if done.returncode else 'passed'}: {last.strip('= ')}",
    )


def main(folders: list[str]) -> int:
    FOLDER.mkdir(exist_ok=True)
    print("| Python | SQLite | of | outcome |\n|---|---|---|---|", flush=True)
    failed = False
    for version, found in pythons():
        python = prepared(version, found)
        for sqlite in sqlites(folders):
            number, what = outcome(python, sqlite)
            failed |= what.startswith("failed")
            print(f"| {version} | {number} | {sqlite.name} | {what} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
