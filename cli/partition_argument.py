"""The arguments for a partition: `TOPIC/PARTITION`, `TOPIC PARTITION`, or Kafka's --topic and
--partition."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from eosdb import TopicPartition

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
