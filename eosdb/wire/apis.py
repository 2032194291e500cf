"""The registry of served APIs: versions, permission and handler of each, and how answers become messages.

Each file of `eosdb.wire.handlers` registers its API here. The versions are those of Kafka 4.4 whose
features eosdb implements (docs/wire.md). A handler answers with a dict of the response's fields; nested
structures are dicts, too. At any depth, the key `error` becomes the error code that the version knows, and
an error text if the structure has a field for one. The key `like` copies fields of a value that have the
same names; `asked` does so for requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from kafka.protocol.api_message import ApiMessage

from eosdb.errors import EosdbError
from eosdb.model.values import TopicPartition
from eosdb.wire import borrowed
from eosdb.wire.errors import code_of, message_of
from eosdb.wire.messages import FetchAnswer, Response
from eosdb.wire.session import NO_TOPIC
from eosdb.wire.session import Session as Session

T = TypeVar("T")
Fields = dict[str, Any]
CodeOf = Callable[[EosdbError], int]
Answer = Callable[[TopicPartition, Any], Fields | EosdbError | None]
"""Returns the answer for one partition of a request: its fields, an error (which may also be raised), or
None for success without fields."""
Handler = Callable[[Session, Any, int], Fields | FetchAnswer | None]
"""Returns a version's answer to a request; None if no answer is sent (acks=0). A raised EosdbError is
answered, too."""
Failed = Callable[[Any, EosdbError, int], Fields]
Codes = Mapping[range, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Api:
    """A served API of Kafka's protocol: its versions, its handler, and its error codes."""

    request: type[ApiMessage]
    lowest: int
    highest: int
    handle: Handler
    code_of: CodeOf
    codes: Codes
    right: str | None
    failed: Failed | None

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")

    @property
    def key(self) -> int:
        return int(self.request.API_KEY)

    def has_code(self, version: int) -> bool:
        """Whether a response of this version has an error code for the request as a whole."""
        place = borrowed.response_of(self.key).fields.get("error_code")
        return place is not None and bool(place.for_version_q(version))

    def answer(self, session: Session, request: ApiMessage, version: int) -> Response | None:
        """Handle a request and return the response. Raises EosdbError if the response has no field for an
        error."""
        answer: Fields | FetchAnswer | None
        try:
            if self.right is not None:
                session.check(self.right)
            answer = self.handle(session, request, version)
        except EosdbError as error:
            if self.failed is not None:
                answer = self.failed(request, error, version)
            elif self.has_code(version):
                answer = {"error": error}
            else:
                raise
        return self.message(answer, version) if isinstance(answer, dict) else answer

    def message(self, answer: Fields, version: int) -> ApiMessage:
        """Build the response from the handler's fields. Raises RefusedByFileError."""
        kind = borrowed.response_of(self.key)
        made: ApiMessage = message(kind, answer, lambda error: self._code(error, version))
        return made

    def _code(self, error: EosdbError, version: int) -> int:
        code = self.code_of(error)
        for versions, instead in self.codes.items():
            if version in versions:
                code = instead.get(code, code)
        return code


SERVED: Final[dict[int, Api]] = {}
"""The served APIs by key; complete once `eosdb.wire.handlers` has been imported."""


def serves(
    request: type[ApiMessage],
    lowest: int,
    highest: int,
    code_of: CodeOf = code_of,
    *,
    codes: Codes | None = None,
    right: str | None = None,
    failed: Failed | None = None,
) -> Callable[[Handler], Handler]:
    """Register the decorated handler for these versions of an API.

    `code_of` converts an error to its code. `codes` has the codes for versions that do not know this one.
    `right` is the operation on the cluster that every request needs; the broker checks all other rights.
    `failed` answers a request that fails as a whole, if an error code does not suffice.
    """

    def register(handle: Handler) -> Handler:
        api = Api(request, lowest, highest, handle, code_of, codes or {}, right, failed)
        SERVED[api.key] = api
        return handle

    return register


class OfTopic(NamedTuple):
    """A topic's answers, by partition. The response gets the topic's name or id from `asked`."""

    asked: Any
    partitions: list[tuple[int, Fields]]


def message(kind: Any, fields: Fields, code_of: CodeOf) -> Any:
    """Build a response, or a structure within it, from a dict. Raises RefusedByFileError."""
    structures, made = borrowed.structures(kind), dict(fields)
    if (value := made.pop("like", None)) is not None:
        made = {
            name: getattr(value, name) for name in borrowed.shared(kind, value.__class__)
        } | made
    for name, inner in structures.items():
        value = made.get(name)
        if isinstance(value, dict):
            made[name] = message(inner, value, code_of)
        elif value is not None:
            made[name] = [
                message(inner, _named(inner, one) if isinstance(one, OfTopic) else one, code_of)
                for one in value
            ]
    code, has_text = borrowed.error_fields(kind)
    if (error := made.pop("error", None)) is not None:
        made[code] = code_of(error)
    if has_text:
        made.setdefault("error_message", None if error is None else message_of(error))
    return kind(**made)


def per_partition(
    topics: Iterable[Any], answer: Answer, with_error: Mapping[str, Any] | None = None
) -> list[OfTopic]:
    """Call `answer` for each partition of a request, in order. An answer with an error gets the fields
    `with_error`."""
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
    """Return the fields from `answer`, or its error together with the fields `with_error`."""
    try:
        found = answer(*of)
    except EosdbError as error:
        found = error
    if isinstance(found, EosdbError):
        return {**(with_error or {}), "error": found}
    return found or {}


def partitions_of(topics: Iterable[Any]) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield each partition of a request's topics, with its structure in the request."""
    for topic in topics:
        name, partitions, index = borrowed.names_of_topic(topic.__class__)
        topic_name = getattr(topic, name)
        for of in getattr(topic, partitions):
            yield TopicPartition(topic_name, getattr(of, index) if index else of), of


def asked(kind: Callable[..., T], message: Any, **others: Any) -> T:
    """Build a request to the broker, or a value in it. Copies the fields that the message has by the same
    names, unless `others` has them."""
    same = borrowed.shared(message.__class__, kind) - others.keys()
    return kind(**{name: getattr(message, name) for name in same}, **others)


def by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, index in tps:
        found.setdefault(name, []).append(index)
    return found


def name_by_id(topics: Iterable[Any], names: Mapping[UUID, str]) -> None:
    """Replace the topic ids of a request by names; None for an unknown id."""
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
