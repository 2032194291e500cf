"""Parameter types, options and arguments shared by several commands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eosdb import TopicPartition
from eosdb.model.clock import parse_time_ms

if TYPE_CHECKING:
    _Base = click.ParamType[int]
else:
    _Base = click.ParamType  # Not generic in every version of click.


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
            return parse_time_ms(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME_MS = TimeMs()

command_config_option = click.option(
    "--command-config", "config", type=click.Path(dir_okay=False), metavar="PATH",
    help="Property file for the Kafka client, librdkafka's names: sasl.password, ssl.ca.location, …",
)  # fmt: skip
metrics_port_option = click.option(
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


F = TypeVar("F", bound=Callable[..., Any])


def partition_argument(*, whole_topic: bool = False) -> Callable[[F], F]:
    """Pass a `TopicPartition` to the command as `where`. With `whole_topic`, the partition may be left out,
    and is -1 then."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def command(
            *args: Any,
            topic: str | None,
            partition: int | None,
            topic_option: str | None,
            partition_option: int | None,
            **options: Any,
        ) -> Any:
            where = _where(topic, partition, topic_option, partition_option)
            if where.partition < 0 and not whole_topic:
                raise click.UsageError(f"name the partition, such as {where.topic}/0")
            return function(*args, where=where, **options)

        for add in (
            click.option("--partition", "partition_option", type=int, hidden=True),
            click.option("--topic", "topic_option", hidden=True),
            click.argument("partition", required=False, type=int),
            click.argument("topic", required=False, metavar="TOPIC[/PARTITION]"),
        ):
            command = add(command)
        return command  # type: ignore[return-value]

    return decorate


def _where(
    topic: str | None, partition: int | None, topic_option: str | None, partition_option: int | None
) -> TopicPartition:
    if (topic is None) == (topic_option is None):
        raise click.UsageError("name one topic, such as orders, or one partition, such as orders/0")
    name, slash, number = (topic or topic_option or "").partition("/")
    given = [n for n in (partition, partition_option) if n is not None]
    if slash:
        given.append(_number(number))
    if len(given) > 1:
        raise click.UsageError(
            f"the partition of {name} is given {len(given)} times; expected it once"
        )
    if given and given[0] < 0:
        raise click.UsageError(f"partition: got {given[0]}, expected 0 or more")
    return TopicPartition(name, given[0] if given else -1)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise click.UsageError(f"partition: got {text!r}, expected a number, such as orders/0")
    return int(text)
