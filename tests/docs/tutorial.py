"""The tutorial as a reader follows it: files are saved, commands are typed, and output is compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.shell import Shell

_BLOCK = re.compile(r"(?ms)^```(\w*)\n(.*?)^```$")
_NAME = re.compile(r"# (\w+\.py)\n")


def follow(page: Path, shell: Shell) -> None:
    """Does what the page says. Raises AssertionError where something else is printed."""
    for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            name = _NAME.match(text)
            assert name, f"{page.name}: a block that names no file: {text[:60]}"
            (shell.folder / name[1]).write_text(text, encoding="utf-8")
        elif language == "console":
            for command, printed in commands(text):
                said = shell.run(command).stdout
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
