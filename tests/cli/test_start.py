"""What the program loads before it does anything: little, whatever the command."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import click

import eosdb.cli
from eosdb.cli.commands import COMMANDS
from tests.cli.conftest import MAIN


def test_the_list_of_commands_says_how_the_help_of_each_begins() -> None:
    widest = max(map(len, COMMANDS))
    for name, (_, text) in COMMANDS.items():
        command = MAIN.commands[name]
        assert (command.name, text[-1]) == (name, ".")
        assert " ".join(command.help.split()).startswith(text.removesuffix(".")), name
        assert len(text) <= 100 - 6 - widest, f"{name}: {text!r} is too long for a line"


def test_no_command_is_missing_in_the_list() -> None:
    listed = {id(command) for command in with_children(MAIN)}
    for module in pkgutil.iter_modules(eosdb.cli.__path__, "eosdb.cli."):
        if module.name != "eosdb.cli.__main__":
            for name, value in vars(import_module(module.name)).items():
                if isinstance(value, click.Command):
                    assert id(value) in listed, f"{module.name}.{name}"


def with_children(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from with_children(child)
