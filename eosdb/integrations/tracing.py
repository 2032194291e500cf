"""OpenTelemetry spans, for programs that ask for them: what is sent, processed and committed.

`instrument` wraps the methods that do these things, as OpenTelemetry's own instrumentations do: a program
that does not call it pays nothing, and needs no package. A record carries its trace in the header
`traceparent` (W3C Trace Context), so a chain of processors in many processes is one trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from eosdb.aio.producer import AsyncProducer
from eosdb.broker.outbox import UserTransaction
from eosdb.client.processor.failure import Failure
from eosdb.client.processor.own_tables import UnitTransaction
from eosdb.client.processor.producing import ProducerTransaction
from eosdb.client.processor.record_handler import Attempt, RecordHandler
from eosdb.client.processor.transaction import ProcessingTransaction
from eosdb.client.producer.producer import Producer
from eosdb.errors import ConfigError
from eosdb.model.values import ConsumerRecord, Header, ProducerRecord

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, Tracer, TracerProvider

SYSTEM: Final = "eosdb"
"""`messaging.system`. Kafka's would have tools look for a cluster."""
_LINKS_MAX: Final = 128
"""What SDKs keep of a span's links."""
_originals: Final[dict[tuple[type, str], Callable[..., Any]]] = {}
_processed: Final[WeakKeyDictionary[object, list[SpanContext]]] = WeakKeyDictionary()
"""The spans of the records in a processor's open transaction."""
_is_given_up: Final = ContextVar("eosdb_gives_up", default=False)
_is_committing: Final = ContextVar("eosdb_commits", default=False)


# decisions/0047: asked for by a call, so that nobody else pays for it.
def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Make spans from now on, in this process; a second call changes nothing.

    `tracer_provider` gives the tracer; None for the global one. Raises ConfigError
    when opentelemetry-api is not installed.
    """
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise ConfigError(
            f"spans need OpenTelemetry: pip install 'eosdb[otel]' ({error})"
        ) from None
    if _originals:
        return
    tracer = trace.get_tracer("eosdb", tracer_provider=tracer_provider)
    for owner, name, make in (
        (Producer, "send", _sending),
        (Producer, "commit_transaction", _committing),
        (AsyncProducer, "send", _sending_async),
        (UserTransaction, "publish", _sending),
        (RecordHandler, "process", _processing),
        (RecordHandler, "send_failed", _sending_failed),
        (ProducerTransaction, "commit", _committing),
        (UnitTransaction, "commit", _committing),
        (ProcessingTransaction, "mend", _mending),
    ):
        original = _originals[owner, name] = owner.__dict__[name]
        setattr(owner, name, functools.wraps(original)(make(tracer, original)))


def uninstrument() -> None:
    """Make no more spans."""
    while _originals:
        (owner, name), original = _originals.popitem()
        setattr(owner, name, original)


def context_of(record: ConsumerRecord) -> Context:
    """The trace that a record carries, for programs that read with a consumer: give it as `context` when
    you start a span. Without a `traceparent` it is the current one."""
    from opentelemetry import propagate

    carrier = {name: data.decode(errors="replace") for name, data in record.headers if data}
    return propagate.extract(carrier)


# -- sending ------------------------------------------------------------------------------------


def _sending(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    from opentelemetry.trace import SpanKind

    def send(
        self: Any, topic: str, *args: Any, headers: Iterable[Header] = (), **options: Any
    ) -> Any:
        given = tuple(headers)
        if _is_traced(given):
            return original(self, topic, *args, headers=given, **options)
        if _is_given_up.get():
            return original(self, topic, *args, headers=(*given, *_injected()), **options)
        with tracer.start_as_current_span(
            f"send {topic}", kind=SpanKind.PRODUCER, attributes=_attributes(topic, "send", "send")
        ) as span:
            sent = original(self, topic, *args, headers=(*given, *_injected()), **options)
            _note_offset(span, sent)
            return sent

    return send


def _sending_async(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    """The loop's thread knows the current span; the one that sends does not, and finds the header."""
    from opentelemetry.trace import SpanKind

    async def send(
        self: Any, topic: str, *args: Any, headers: Iterable[Header] = (), **options: Any
    ) -> Any:
        given = tuple(headers)
        if _is_traced(given):
            return await original(self, topic, *args, headers=given, **options)
        with tracer.start_as_current_span(
            f"send {topic}", kind=SpanKind.PRODUCER, attributes=_attributes(topic, "send", "send")
        ):
            return await original(self, topic, *args, headers=(*given, *_injected()), **options)

    return send


def _is_traced(headers: Iterable[object]) -> bool:
    """Whether a record has a trace: somebody else's, or that of a record that is sent on."""
    return any(isinstance(one, tuple) and one[:1] == ("traceparent",) for one in headers)


def _injected() -> Iterator[Header]:
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return ((name, text.encode()) for name, text in carrier.items())


def _note_offset(span: Span, sent: Any) -> None:
    """What `publish` returns says where; a future does not know yet."""
    if (offset := getattr(sent, "offset", None)) is not None and isinstance(offset, int):
        span.set_attribute("messaging.destination.partition.id", str(sent.partition))
        span.set_attribute("messaging.eosdb.offset", offset)


# -- processing ---------------------------------------------------------------------------------


def _processing(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    from opentelemetry.trace import SpanKind

    def process(self: RecordHandler, origin: ConsumerRecord) -> Exception | None:
        attributes = _attributes(origin.topic, "process", "process") | _place(self, origin)
        with tracer.start_as_current_span(
            f"process {origin.topic}",
            context=context_of(origin),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        ) as span:
            error: Exception | None = original(self, origin)
            if error is not None:
                _note_failure(span, error)
        _processed.setdefault(self.transaction, []).append(span.get_span_context())
        return error

    return process


def _sending_failed(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    """A span for a record sent to a retry topic or as a dead letter, which keeps the trace that it has."""
    from opentelemetry.trace import SpanKind

    def send_failed(
        self: RecordHandler, attempt: Attempt, failure: Failure, record: ProducerRecord
    ) -> None:
        topic = str(record.topic)
        with tracer.start_as_current_span(
            f"send {topic}",
            context=context_of(attempt.record),
            kind=SpanKind.PRODUCER,
            attributes={
                **_attributes(topic, "send", "send"),
                "messaging.eosdb.dead_letter": topic == self.settings.dead_letter_topic,
                "messaging.eosdb.attempts": failure.attempts,
                "error.type": failure.error,
            },
        ):
            token = _is_given_up.set(True)
            try:
                original(self, attempt, failure, record)
            finally:
                _is_given_up.reset(token)

    return send_failed


def _place(handler: RecordHandler, record: ConsumerRecord) -> dict[str, str | int]:
    return {
        "messaging.destination.partition.id": str(record.partition),
        "messaging.eosdb.offset": record.offset,
        "messaging.consumer.group.name": handler.group_id,
    }


def _note_failure(span: Span, error: Exception) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, type(error).__name__))
    span.set_attribute("error.type", type(error).__name__)


# -- committing ---------------------------------------------------------------------------------


def _committing(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    """One span for a commit, also where a processor's commits by a producer's."""
    from opentelemetry.trace import SpanKind

    def commit(self: Any, *args: Any, **options: Any) -> Any:
        if _is_committing.get() or getattr(self, "records", 1) == 0:
            return original(self, *args, **options)
        processed = _processed.pop(self, [])
        with (
            _committing_now(),
            tracer.start_as_current_span(
                "commit",
                kind=SpanKind.CLIENT,
                links=_links(processed),
                attributes={
                    **_attributes(None, "commit", "settle"),
                    "messaging.batch.message_count": len(processed),
                },
            ),
        ):
            return original(self, *args, **options)

    return commit


def _links(contexts: Sequence[SpanContext]) -> list[Link]:
    from opentelemetry.trace import Link

    return [Link(context) for context in contexts[-_LINKS_MAX:]]


def _mending(_: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    """What is undone is not committed."""

    def mend(self: ProcessingTransaction) -> None:
        original(self)
        _processed.pop(self, None)

    return mend


@contextmanager
def _committing_now() -> Iterator[None]:
    token = _is_committing.set(True)
    try:
        yield
    finally:
        _is_committing.reset(token)


def _attributes(topic: str | None, name: str, kind: str) -> dict[str, str | int]:
    """The attributes that OpenTelemetry's conventions for messaging name."""
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if topic is not None:
        attributes["messaging.destination.name"] = topic
    return attributes
