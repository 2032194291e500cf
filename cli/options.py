"""The options, and types of parameters, that several commands share: each means the same everywhere."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eosdb import TopicPartition
from eosdb.model.clock import format_time_ms, parse_time_ms

if TYPE_CHECKING:
    _Base = click.ParamType[int]
else:
    _Base = click.ParamType  # click.ParamType is not generic in every version.


class TimeMs(_Base):
    """Milliseconds since the epoch, or an ISO 8601 time."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Parse to milliseconds; invalid text is a usage error."""
        if isinstance(value, int):
            return value
        try:
            found = parse_time_ms(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        # A year, a day such as 20261121, seconds or microseconds: as ms, before 2001 or after 5138.
        if str(value).isdecimal() and (found >= 10**14 or 10**3 <= found < 10**12):
            self.fail(
                f"got {value}, which as milliseconds since 1970 is {format_time_ms(found)}; expected a "
                "number of milliseconds after 2001, or an ISO 8601 time such as 2026-11-21T12:00",
                param,
                ctx,
            )
        return found


TIME_MS = TimeMs()
yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
execute = click.option(
    "--execute", is_flag=True, help="Make the changes; without it, they are only shown."
)
dry_run = click.option("--dry-run", is_flag=True, help="Only show the changes.")
create = click.option("--create", is_flag=True, help="Create the file if it is missing.")
follow = click.option(
    "--follow", is_flag=True, help="Wait for what is new; stop with SIGTERM or Ctrl-C."
)
topic = click.option("--topic", help="Only this topic.")
topics = click.option(
    "--topic", "topics", multiple=True, help="Only this topic (repeatable); default: all."
)
partition = click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
files = click.option(
    "--files", multiple=True, metavar="PATTERN",
    help="Read all of these files instead of FILE: a path, a folder (its *.db) or a quoted pattern "
    "(repeatable).",
)  # fmt: skip
transaction_size = click.option(
    "--transaction-size", "max_records", type=click.IntRange(min=1), default=5_000, show_default=True,
    help="Records per transaction.",
)  # fmt: skip
port = functools.partial(click.option, "--port", type=click.IntRange(0, 65_535), metavar="PORT")
command_config = click.option(
    "--command-config", "config", type=click.Path(dir_okay=False), metavar="PATH",
    help="Property file for the Kafka client, with librdkafka's names, such as sasl.password.",
)  # fmt: skip
metrics_port = click.option(
    "--metrics-port", type=click.IntRange(0, 65_535), metavar="PORT",
    help="Serve metrics for Prometheus at http://127.0.0.1:PORT/metrics; 0 takes a free port.",
)  # fmt: skip


def settings(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The callback of a repeatable option NAME=VALUE."""
    pairs = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"got {text!r}, expected NAME=VALUE such as retention.ms=1000")
        pairs[name.strip()] = value.strip()
    return pairs


setting = functools.partial(click.option, multiple=True, metavar="NAME=VALUE", callback=settings)
F = TypeVar("F", bound=Callable[..., Any])


def partition_argument(*, required: bool = True, whole_topic: bool = False) -> Callable[[F], F]:
    """Pass a `TopicPartition` to the command as `where`: None if it is not required and left out. With
    `whole_topic`, the partition may be left out, and is -1 then."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def command(*args: Any, topic: str | None, partition: int | None, **options: Any) -> Any:
            where = None if topic is None else _where(topic, partition)
            if where is not None and where.partition < 0 and not whole_topic:
                raise click.UsageError(f"name the partition, such as {where.topic}/0")
            return function(*args, where=where, **options)

        for add in (
            click.argument("partition", required=False, type=int),
            click.argument(
                "topic",
                required=required,
                metavar="TOPIC[/PARTITION]" if required else "[TOPIC/PARTITION]",
            ),
        ):
            command = add(command)
        return command  # type: ignore[return-value]

    return decorate


def _where(topic: str, partition: int | None) -> TopicPartition:
    name, slash, number = topic.partition("/")
    if slash and partition is not None:
        raise click.UsageError(f"the partition of {name} is given twice; expected it once")
    if slash and not (number.isascii() and number.isdigit()):
        raise click.UsageError(f"partition: got {number!r}, expected a number, such as orders/0")
    if partition is not None and partition < 0:
        raise click.UsageError(f"partition: got {partition}, expected 0 or more")
    return TopicPartition(name, int(number) if slash else -1 if partition is None else partition)
