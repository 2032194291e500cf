"""Writes docs/cli.md from the commands' own help, so that it cannot disagree with them (`make docs`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Final

import click

from eosdb.cli.file_command import FOOTER
from eosdb.cli.main import GROUPS, main

PAGE: Final = Path(__file__).parents[1] / "docs/cli.md"
INTRODUCTION = """# The command line

Made from the commands' own help by `make docs`.

Name the database first (`eosdb topics list shop.db`), or with `--db PATH` anywhere in the line, or in
`EOSDB_DB`. A word is FILE if the command's own arguments are complete without it.
Where an argument may be left out or repeated (`topics describe [TOPIC]`, `consume TOPICS...`), the first
word is FILE only if neither `--db` nor `EOSDB_DB` names the file. If `EOSDB_DB` does and the word is a
database, the command asks for `--db`.

Kafka's options for arguments are understood: `--topic`, `--partition`, `--group`, `--transactional-id`.
These names stay valid and hidden: `log dump`, `snapshots take|list|show`, `journal`, `rebuild` (now below
`inspect`), and `migrate` (now `init`).

Listings take `--format table|json|jsonl|csv`; JSON is one array. Exit status: 0 done, 1 refused or
failed (one line on stderr: the error's name, what was found, what to do), 3 failed, although data is
stored, or [may be](errors.md), 2 usage, 4 not eosdb's (`verify --untrusted`), 130 Ctrl-C, 143 SIGTERM
([what they stop](operations.md#ctrl-c-and-sigterm)). Shell completion,
of topics, groups and transactional ids, too:
`eval "$(_EOSDB_COMPLETE=bash_source eosdb)"` (or `zsh_source`, `fish_source`).
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
    """The help of a command, without what the heading, with its arguments, and the introduction say."""
    command, context = leaf
    shown = copy(command)
    shown.params = [
        each for each in command.get_params(context) if each.get_help_record(context) not in common
    ]
    shown.add_help_option = False
    text = shown.get_help(context).replace("\b", "").partition(FOOTER)[0].strip()
    path = context.command_path
    text = text.removeprefix(f"Usage: {path} [OPTIONS] [FILE]\n\n")
    text = text.removeprefix(f"Usage: {path} [OPTIONS]\n\n")
    arguments = ""
    if text.startswith(usage := f"Usage: {path} [OPTIONS] "):
        arguments, _, text = text.removeprefix(usage).partition("\n\n")
    for said in (f"  Example:\n    {path}\n", "  Example:\n", "Options:\n"):
        text = text.replace(said, "")
    text = text.removesuffix(f"  Example:\n    {path}").rstrip()
    heading = " ".join((path, *arguments.removeprefix("[FILE]").split()))
    return f"### `{heading}`\n\n```text\n{text}\n```\n"


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
    parts = [
        INTRODUCTION,
        f"Options that many commands have, told once:\n\n```text\n{options.getvalue()}```\n",
    ]
    for heading, names in GROUPS.items():
        parts.append(f"## {heading}\n")
        parts += [
            section(leaf, set(common))
            for leaf in commands
            if leaf[1].command_path.split()[1] in names
        ]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
