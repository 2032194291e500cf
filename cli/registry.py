"""The commands of `eosdb` by name: a command is one row here, and its module is imported when it is used.

Without the texts, `eosdb --help` would import every module, and with them most of eosdb: 0.6 s of CPU,
which a shell loop, a completion and a health check pay each time.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: Final = {
    "init": ("operate.database", "Create the database file if it does not exist."),
    "info": ("operate.database", "Show sizes, counts and versions of the file."),
    "stats": ("operate.database", "Show what takes the space of the file."),
    "migrate": ("operate.database", "Upgrade the file to the schema of this version."),
    "sql": ("operate.database", "Run a read-only SQL QUERY (- reads it from standard input)."),
    "verify": (
        "operate.maintenance",
        "Replay every event and compare the result with every table.",
    ),
    "rebuild": (
        "operate.maintenance",
        "Rebuild every derived table from the events, in one commit.",
    ),
    "backup": ("operate.maintenance", "Copy the file to TARGET while others write it."),
    "restore": (
        "operate.maintenance",
        "Restore the file as it was after an event or at a time into a new file.",
    ),
    "housekeeping": (
        "operate.maintenance",
        "Run what is due: transaction timeouts, expirations, retention, compaction.",
    ),
    "compact": (
        "operate.maintenance",
        "Shrink the file: write it anew without its free pages, in one commit.",
    ),
    "adopt": (
        "operate.adopt",
        "Put eosdb's tables beside those of another application's SQLite database.",
    ),
    "extract": ("operate.adopt", "Take eosdb's tables out of FILE."),
    "publish": ("copies.publish", "Publish the file as it is now at TARGET."),
    "fetch": ("copies.publish", "Fetch the latest published snapshot at URL."),
    "topics": ("data.topics", "Create, list, describe, alter and delete topics."),
    "produce": ("data.records", "Append each line of standard input to TOPIC."),
    "consume": ("data.records", "Print the records of TOPICS as a consumer sees them."),
    "tail": ("data.records", "Print the last committed records of TOPIC, by time."),
    "ingest": ("data.ingest", "Append each line of FILES to TOPIC exactly once."),
    "export": ("copies.export", "Append the committed records that TARGET does not have yet."),
    "groups": ("groups", "List, describe, reset and delete consumer groups."),
    "transactions": ("transactions", "List, describe and end transactions, and find hanging ones."),
    "why": ("why", "Explain why a consumer is stuck."),
    "top": ("top.top", "Show what a file does: lag of groups, open transactions."),
    "timeline": ("data.timeline", "Draw the transactions of TOPIC along its offsets."),
    "log": ("data.log", "Inspect the log as it is stored."),
    "snapshots": ("data.log", "Take, list and show producer state snapshots."),
    "delete-records": ("data.log", "Delete the oldest records of a partition."),
    "journal": ("data.journal", "Show the journal: every event of the file, in order."),
    "views": ("data.views", "Typed views over the JSON values of a topic, for SQL and Spark."),
    "acls": ("operate.acls", "Add, list and remove ACLs."),
    "users": ("operate.users", "Add, list and remove users of the server."),
    "dlq": ("dead_letters", "Inspect and replay dead letters."),
    "relay": ("kafka.relay", "Relay the committed records of FILE."),
    "migrate-to-kafka": (
        "kafka.migrate",
        "Move the topics of FILE (or that of --db) to a Kafka cluster.",
    ),
    "datasette-metadata": ("operate.datasette", "Print metadata for Datasette about FILE."),
    "metrics": ("operate.metrics", "Print the figures of FILE for Prometheus, or serve them."),
    "serve": ("kafka.serve", "Serve FILE (or that of --db) to Kafka's clients."),
    "ui": ("operate.ui", "Show FILE (or that of --db) as a page in a browser, live."),
    "simulate": (
        "operate.simulate",
        "Simulate producers, workers, readers and zombies on bad networks.",
    ),
    "perf": ("operate.perf", "Measure write and read throughput."),
    "spark": ("spark", "Query and stream with Spark."),
}
"""Name: the module of this package that defines it (as `delete_records` for `delete-records`), and how its
help begins, short enough for a line of 100 columns; a test compares."""


class _Loaded(MutableMapping[str, click.Command]):
    """The commands of the table, each imported when it is first asked for."""

    def __init__(self) -> None:
        self._commands: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._commands:
            module, _ = COMMANDS[name]
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
    """A group that names its commands in `--help` and to the shell without importing them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands = _Loaded()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        texts = {name: click.Command(name, help=text) for name, (_, text) in COMMANDS.items()}
        click.Group(commands=texts).format_commands(ctx, formatter)

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
