"""Writes docs/cli.md from the commands' own help, so that it cannot disagree with them (`make docs`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from eosdb.cli.main import main

PAGE: Final = Path(__file__).parents[1] / "docs/cli.md"
INTRODUCTION = """# The command line

Made from the commands' own help by `make docs`.

`--db PATH` or the environment variable `EOSDB_DB` names the file. Listings take
`--format table|json|csv`; JSON is one array. Exit status: 0 done, 1 refused or failed (one line on
stderr: the error's name, what was found, what to do), 2 usage, 130 Ctrl-C.
Shell completion: `eval "$(_EOSDB_COMPLETE=bash_source eosdb)"` (or `zsh_source`, `fish_source`).
"""


def sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """The help of a command and of all below it."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.commands[name]
            yield from sections(
                child, child.make_context(name, [], parent=context, resilient_parsing=True)
            )
    else:
        text = command.get_help(context).replace("\b", "").strip()
        yield f"## `{context.command_path}`\n\n```text\n{text}\n```\n"


def document() -> str:
    context = main.make_context("eosdb", [], resilient_parsing=True, terminal_width=100)
    return "\n".join([INTRODUCTION, *sections(main, context)])


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
