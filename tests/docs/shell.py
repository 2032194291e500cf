"""A reader's shell, in which `eosdb` and `python` are those of the tests."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Final

from tests.programs import ended

_PROGRAMS: Final = {"eosdb": [sys.executable, "-m", "eosdb.cli"], "python": [sys.executable]}
_FUNCTIONS: Final = "\n".join(
    f'{name}() {{ {shlex.join(words)} "$@"; }}' for name, words in _PROGRAMS.items()
)


@dataclass(frozen=True, slots=True)
class Shell:
    """One that stands in a folder, and remembers what is exported."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """The status and the output of a line. A program of ours that ends it is started from here, so that
        it is forked (tests/zygote.py); bash does everything else."""
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self.settings[name] = value
            return subprocess.CompletedProcess(line, 0, "", "")
        before, _, last = line.rpartition(" | ")
        if line.startswith("!") or not _is_ours(last):
            return self._done(["bash", "-c", f"{_FUNCTIONS}\n{line}"])
        given = self._done(["bash", "-c", before]).stdout
        environment = {**os.environ, **self.settings, "PWD": str(self.folder)}
        name, *words = shlex.split(Template(last).safe_substitute(environment))
        return self._done([*_PROGRAMS[name], *words], given)

    def _done(self, command: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
        return ended(
            command, input=given, cwd=self.folder, env={**os.environ, **self.settings}, timeout=600
        )


def _is_ours(command: str) -> bool:
    words = shlex.shlex(command, posix=False, punctuation_chars=True)
    words.whitespace_split = True
    first, *others = words
    return first in _PROGRAMS and not any(set(word) <= set("();<>|&") for word in others)
