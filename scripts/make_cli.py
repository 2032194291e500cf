"""Writes docs/cli.md from the commands' own help, so that it cannot disagree with them (`make docs`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
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
COMMON: Final = 10
"""An option that is the same in so many commands is told once."""

_Leaf = tuple[click.Command, click.Context]


def leaves(command: click.Command, context: click.Context) -> Iterator[_Leaf]:
    """The command, or all below it if it is a group."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.commands[name]
            yield from leaves(
                child, child.make_context(name, [], parent=context, resilient_parsing=True)
            )
    else:
        yield command, context


def section(leaf: _Leaf, common: set[tuple[str, str]]) -> str:
    """The help of a command without the options that many have."""
    command, context = leaf
    shown = copy(command)
    shown.params = [
        each for each in command.get_params(context) if each.get_help_record(context) not in common
    ]
    shown.add_help_option = False
    text = shown.get_help(context).replace("\b", "").strip()
    return f"## `{context.command_path}`\n\n```text\n{text}\n```\n"


def document() -> str:
    context = main.make_context("eosdb", [], resilient_parsing=True, terminal_width=100)
    commands = list(leaves(main, context))
    records = Counter(
        record
        for command, below in commands
        for each in command.get_params(below)
        if (record := each.get_help_record(below)) and record[0].startswith("-")
    )
    common = [record for record, count in records.items() if count >= COMMON]
    options = context.make_formatter()
    options.write_dl(common)
    return "\n".join(
        [
            INTRODUCTION,
            f"Options that many commands have, told once:\n\n```text\n{options.getvalue()}```\n",
            *(section(leaf, set(common)) for leaf in commands),
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
