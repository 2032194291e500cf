"""All commands of `eosdb`, for what is made of them or compares with them."""

from __future__ import annotations

from collections.abc import Iterator

import click


def leaves(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """The command, or all below it if it is a group."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.commands[name]
            yield from leaves(
                child, child.make_context(name, [], parent=context, resilient_parsing=True)
            )
    else:
        yield command, context
