"""The tutorial as a reader follows it: files are saved, commands are typed, and output is compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_BLOCK = re.compile(r"(?ms)^```(\w*)\n(.*?)^```$")
_NAME = re.compile(r"# (\w+\.py)\n")


def follow(page: Path, folder: Path, settings: dict[str, str]) -> None:
    """Does what the page says in `folder`, in a shell that has exported `settings`. Raises AssertionError
    where something else is printed."""
    for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            name = _NAME.match(text)
            assert name, f"{page.name}: a block that names no file: {text[:60]}"
            (folder / name[1]).write_text(text, encoding="utf-8")
        elif language == "console":
            for command, printed in commands(text):
                if command.startswith("export "):
                    key, _, value = command.removeprefix("export ").partition("=")
                    settings[key] = value
                    continue
                said = _typed(command, folder, settings)
                assert agrees(said, printed), (
                    f"{page.name}: $ {command}\n{said}instead of\n{printed}"
                )


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, and what is printed below it."""
    for part in re.split(r"(?m)^\$ ", block)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def agrees(said: str, printed: str) -> bool:
    """Whether the output is the one shown, in which `…` stands for anything, or for any lines."""
    pattern = re.escape(_even(printed)).replace("…", ".*")
    return re.fullmatch(pattern, _even(said), re.DOTALL) is not None


def _even(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _typed(command: str, folder: Path, settings: dict[str, str]) -> str:
    shell = "\n".join(
        (
            f'eosdb() {{ "{sys.executable}" -m eosdb.cli "$@"; }}',
            f'python() {{ "{sys.executable}" "$@"; }}',
            command,
        )
    )
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=folder,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stdout
