"""Answers as handlers write them, made into messages.

An answer is a dict of a response's fields, whose structures are dicts, too. An `error` among the fields,
at any depth, becomes the error code that its version knows, and a text where the response has a place
for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from eosdb.errors import EosdbError
from eosdb.model.values import TopicPartition
from eosdb.wire import borrowed
from eosdb.wire.errors import message_of
from eosdb.wire.session import NO_TOPIC

Fields = dict[str, Any]
CodeOf = Callable[[EosdbError], int]
Answer = Callable[[TopicPartition, Any], Fields | EosdbError | None]
"""Answers for a partition, of which the request says this: with fields, with an error (returned or raised),
or with nothing, when it is done."""


class OfTopic(NamedTuple):
    """The answers for the partitions of a topic, which the response names as the request does."""

    asked: Any
    partitions: list[tuple[int, Fields]]


def message(kind: Any, fields: Fields, code_of: CodeOf) -> Any:
    """The response, or a structure of it. Raises RefusedByFileError."""
    structures, made = borrowed.structures(kind), dict(fields)
    for name in structures.keys() & made.keys():
        inner, value = structures[name], made[name]
        if isinstance(value, dict):
            made[name] = message(inner, value, code_of)
        elif value is not None:
            made[name] = [
                message(inner, _named(inner, one) if isinstance(one, OfTopic) else one, code_of)
                for one in value
            ]
    code, has_text = borrowed.error_fields(kind)
    error = made.pop("error", None)
    if error is not None:
        made[code] = code_of(error)
    if has_text:
        made.setdefault("error_message", None if error is None else message_of(error))
    return kind(**made)


def per_partition(
    topics: Iterable[Any], answer: Answer, with_error: Mapping[str, Any] | None = None
) -> list[OfTopic]:
    """An answer for each partition of a request, in its order; one with an error has `with_error`, too."""
    return [
        OfTopic(
            topic,
            [
                (tp.partition, attempt(answer, tp, of, with_error=with_error))
                for tp, of in partitions_of([topic])
            ],
        )
        for topic in topics
    ]


def attempt(
    answer: Callable[..., Fields | EosdbError | None],
    *of: Any,
    with_error: Mapping[str, Any] | None = None,
) -> Fields:
    """One answer of several: its fields, or its error and `with_error`."""
    try:
        found = answer(*of)
    except EosdbError as error:
        found = error
    if isinstance(found, EosdbError):
        return {**(with_error or {}), "error": found}
    return found or {}


def partitions_of(topics: Iterable[Any]) -> Iterator[tuple[TopicPartition, Any]]:
    """Each partition of a request's topics, and what the request says of it."""
    for topic in topics:
        name, partitions, index = borrowed.names_of_topic(topic.__class__)
        topic_name = getattr(topic, name)
        for of in getattr(topic, partitions):
            yield TopicPartition(topic_name, getattr(of, index) if index else of), of


def by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions by topic, in their order."""
    found: dict[str, list[int]] = {}
    for name, index in tps:
        found.setdefault(name, []).append(index)
    return found


def name_by_id(topics: Iterable[Any], names: Mapping[UUID, str]) -> None:
    """Give the topics of a request the names of their ids; None where no topic has the id."""
    for topic in topics:
        topic.topic_id = topic.topic_id or NO_TOPIC
        topic.name = names.get(topic.topic_id)


def _named(kind: Any, answered: OfTopic) -> Fields:
    name, partitions, index = borrowed.names_of_topic(kind)
    asked = answered.asked
    named: Fields = {
        name: getattr(asked, borrowed.names_of_topic(asked.__class__)[0]),
        partitions: [{index: at, **fields} for at, fields in answered.partitions],
    }
    if "topic_id" in kind.fields:
        named["topic_id"] = asked.topic_id
    return named
