"""Small bugs as data, and how one is planted in a copy of the tree.

A bug is a text in one file, the text that replaces it, and the tests that find it. `tests/simulation` has
mutants of its own, which patch a running program; those here also reach C, SQL and whole modules.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.tidy.tree import ROOT

HERE: Final = Path(__file__).parent
RESULT: Final = HERE / "result.json"
"""Which test found each bug when it was planted last; empty for one that did not end."""
_LEFT_OUT: Final = shutil.ignore_patterns(".git", ".*_cache", ".matrix", ".venv", "build", "dist")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+::\S+)", re.MULTILINE)
_TIMEOUT_S: Final = 60
"""For each test: some bugs make a program wait for ever."""


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug. One of the tests `found_by`, arguments for pytest, fails with it."""

    name: str
    what: str
    file: str
    old: str
    new: str
    found_by: tuple[str, ...]

    def problem(self, tree: Path = ROOT) -> str | None:
        """Why the bug cannot be planted in this tree, if so."""
        path = tree / self.file
        if not path.is_file():
            return f"{self.name}: {self.file} is gone"
        if (count := path.read_text().count(self.old)) != 1:
            return f"{self.name}: {self.file} has the old text {count} times, expected once"
        return f"{self.name}: the new text is the old one" if self.old == self.new else None


@dataclass(frozen=True, slots=True)
class Answer:
    """The exit status of pytest: 1 if a test failed, which is the first, 0 if the bug survived."""

    status: int
    test: str
    output: str

    def __str__(self) -> str:
        if self.status == 1:
            return f"found by {self.test or 'a test that did not end'}"
        if self.status == 0:
            return "SURVIVED"
        return f"NOT TRIED, pytest ended with {self.status}:\n{self.output[-2_000:]}"


def bugs(folder: Path = HERE) -> dict[str, Bug]:
    """All bugs by name. A file has those of a room."""
    found: dict[str, Bug] = {}
    for file in sorted(folder.glob("*.toml")):
        for name, fields in tomllib.loads(file.read_text()).items():
            assert name not in found, f"{name} is there twice"
            found[name] = Bug(name, **fields | {"found_by": tuple(fields["found_by"])})
    return found


def results() -> dict[str, str]:
    """The content of RESULT."""
    found: dict[str, str] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    return found


def copy_tree(to: Path) -> Path:
    """Copy the tree as it is now, with the accelerator as it was built."""
    shutil.copytree(ROOT, to, symlinks=True, ignore=_LEFT_OUT)
    return to


def try_one(bug: Bug, tree: Path) -> Answer:
    """Plant the bug in `tree`, ask its tests, and take it out again."""
    problem = bug.problem(tree)
    assert problem is None, problem
    file = tree / bug.file
    sound = file.read_text()
    try:
        _write(file, sound.replace(bug.old, bug.new), tree)
        return _ask(bug.found_by, tree)
    finally:
        _write(file, sound, tree)


def _write(file: Path, text: str, tree: Path) -> None:
    file.write_text(text)
    # Python knows stale compiled code by the second and the size, and a bug may leave both as they are.
    shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)
    if file.suffix in (".c", ".h"):
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--force"]
        subprocess.run(build, cwd=tree, check=True, capture_output=True)


def _ask(tests: tuple[str, ...], tree: Path) -> Answer:
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", f"--timeout={_TIMEOUT_S}"]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "-o",
            f"hanging_timeout={_TIMEOUT_S + 20}",
            *tests,
        ],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = _FAILED.search(run.stdout)
    return Answer(run.returncode, failed[1] if failed else "", run.stdout + run.stderr)
