"""The commands of `eosdb`: each is a row here, and its module is imported when the command is used.

The help texts are repeated here so that `eosdb --help` need not import every module: 0.6 s of CPU, which a
shell loop, a completion and a health check pay each time.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

GROUPS: Final = {
    "Data": {
        "topics": ("data.topics", "Create, list, describe, alter and delete topics."),
        "produce": ("data.records", "Append each line of standard input to TOPIC."),
        "consume": ("data.records", "Print the records of TOPICS as a consumer sees them."),
        "ingest": ("data.ingest", "Append the lines of files to TOPIC exactly once."),
        "sql": ("operate.database", "Run a read-only SQL QUERY."),
        "views": ("data.views", "Create, list and drop typed views over JSON values."),
    },
    "Groups": {
        "groups": ("groups", "List, describe, reset and delete consumer groups."),
        "why": ("why", "Explain what stands still, most urgent first."),
        "dlq": ("dead_letters", "List, show and replay dead letters."),
        "scheduled": ("scheduled", "List and cancel records that are not due yet."),
        "transactions": ("transactions", "List, describe and end transactions."),
        "timeline": ("data.timeline", "Draw the transactions of TOPIC along offsets or time."),
    },
    "File": {
        "init": ("operate.database", "Create FILE if it does not exist, or upgrade it."),
        "info": ("operate.database", "Show sizes, counts and versions of the file."),
        "verify": ("operate.maintenance", "Compare every table with a replay of all events."),
        "inspect": ("inspect", "Show the log, journal and snapshots; rebuild tables."),
        "housekeeping": ("operate.maintenance", "Run due maintenance, such as retention."),
        "compact": ("operate.maintenance", "Shrink the file: rewrite it without its free pages."),
        "backup": ("operate.maintenance", "Copy FILE to TARGET while others write to it."),
        "restore": ("operate.maintenance", "Restore the state after an event or at a time."),
        "publish": ("copies.publish", "Upload a snapshot of FILE to object storage."),
        "fetch": ("copies.publish", "Download the latest published snapshot at URL."),
        "export": ("copies.export", "Append new committed records to the table TARGET."),
    },
    "Operate": {
        "top": ("top.top", "Show the activity of a file, such as lag, live."),
        "ui": ("operate.ui", "Serve a web page that shows FILE, updated live."),
        "metrics": ("operate.metrics", "Print metrics for Prometheus, or serve them."),
        "acls": ("operate.acls", "Add, list and remove ACLs."),
        "users": ("operate.users", "Add, list and remove users of the server."),
    },
    "Kafka": {
        "serve": ("kafka.serve", "Serve FILE to Kafka's clients."),
        "relay": ("kafka.relay", "Relay committed records to or from FILE."),
        "migrate-to-kafka": ("kafka.migrate", "Move the topics of FILE to a Kafka cluster."),
    },
}
"""Heading in `eosdb --help`, name of the command, the module that defines it (as `delete_records` for
`delete-records`), and the beginning of its help, which must fit a line of 100 columns; a test compares."""

HIDDEN: Final = {
    "log": "inspect",
    "snapshots": "inspect",
    "journal": "inspect",
    "rebuild": "inspect",
    "migrate": "operate.database",
    "delete-records": "data.topics",
    "simulate": "operate.simulate",
}
"""Names with a better one or for few people, and the modules; they stay valid."""

COMMANDS: Final = {name: row for rows in GROUPS.values() for name, row in rows.items()}


class _Loaded(MutableMapping[str, click.Command]):
    """The commands of the table, each imported on first use."""

    def __init__(self) -> None:
        self._commands: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._commands:
            module = HIDDEN[name] if name in HIDDEN else COMMANDS[name][0]
            self._commands[name] = getattr(
                import_module(f"{__package__}.commands.{module}"), name.replace("-", "_")
            )
        return self._commands[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class CommandsByName(click.Group):
    """A group that lists its commands, in `--help` and for completion, without importing them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands = _Loaded()

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Without a line in the help, which has one screen."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.hidden = True
        return option

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width, names = max(map(len, GROUPS)), max(map(len, COMMANDS))
        formatter.write_paragraph()
        for heading, rows in GROUPS.items():  # Headings take no line, so that it fits a screen.
            for name, (_, text) in rows.items():
                formatter.write(f"{heading:{width}}  {name:{names}}  {text}\n")
                heading = ""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [
            *(
                CompletionItem(name, help=click.Command(name, help=text).get_short_help_str())
                for name, (_, text) in sorted(COMMANDS.items())
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]
