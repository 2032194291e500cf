"""OpenTelemetry spans for sending, processing and committing records.

`instrument` wraps the methods of eosdb, like OpenTelemetry's own instrumentations: a program that does not
call it has no overhead and needs no package. A record carries its trace in the header `traceparent` (W3C
Trace Context), so a chain of processors in many processes is one trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from eosdb.aio.producer import AsyncProducer
from eosdb.broker.outbox import LogTransaction
from eosdb.client.processor import transaction
from eosdb.client.processor.failure import Failure, RetryAt
from eosdb.client.processor.record_handler import Attempt, RecordHandler, Run
from eosdb.client.processor.unit_transaction import UnitTransaction
from eosdb.client.producer.producer import Producer
from eosdb.errors import ConfigError
from eosdb.model.values import ConsumerRecord, Header, ProducerRecord
from eosdb.model.words import needs_extra

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, Tracer, TracerProvider

SYSTEM: Final = "eosdb"
"""The value of `messaging.system`. With Kafka's value, tools would look for a Kafka cluster."""
_LINKS_MAX: Final = 128
"""The most links in a span that SDKs keep."""
_originals: Final[dict[tuple[type, str], Callable[..., Any]]] = {}
_processed: Final[WeakKeyDictionary[object, list[SpanContext]]] = WeakKeyDictionary()
"""The spans of the records in a processor's open transaction."""
_is_given_up: Final = ContextVar("eosdb_gives_up", default=False)
_is_committing: Final = ContextVar("eosdb_commits", default=False)


# decisions/0047: methods are wrapped only when a program calls this. Other programs have no overhead.
def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Make spans in this process from now on; idempotent. `tracer_provider` provides the tracer; None for
    the global provider. Raises ConfigError if opentelemetry-api is not installed."""
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise ConfigError(needs_extra("tracing", "otel", error)) from None
    if _originals:
        return
    tracer = trace.get_tracer("eosdb", tracer_provider=tracer_provider)
    for owner, name, make in (
        (Producer, "send", _sending),
        (Producer, "commit_transaction", _committing),
        (AsyncProducer, "send", _sending_async),
        (LogTransaction, "publish", _sending),
        (RecordHandler, "process", _processing),
        (RecordHandler, "call", _calling),
        (RecordHandler, "send_failed", _sending_failed),
        (transaction.ProducerTransaction, "commit", _committing),
        (UnitTransaction, "commit", _committing),
        (transaction.ProcessingTransaction, "mend", _mending),
    ):
        original = _originals[owner, name] = owner.__dict__[name]
        setattr(owner, name, functools.wraps(original)(make(tracer, original)))


def uninstrument() -> None:
    """Stop making spans."""
    while _originals:
        (owner, name), original = _originals.popitem()
        setattr(owner, name, original)


def context_of(record: ConsumerRecord) -> Context:
    """Return the trace context of a record, for programs that read with a consumer: pass it as `context`
    to start a span. A record without `traceparent` gets the current context."""
    from opentelemetry import propagate

    carrier = {name: data.decode(errors="replace") for name, data in record.headers if data}
    return propagate.extract(carrier)


# -- sending ------------------------------------------------------------------------------------


def _sending(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    def send(
        self: Any, topic: str, *args: Any, headers: Iterable[Header] = (), **options: Any
    ) -> Any:
        with _span_of_send(tracer, topic, headers) as (own, span):
            sent = original(self, topic, *args, headers=own, **options)
            # `publish` returns partition and offset; a future does not have them yet.
            if span is not None and isinstance(getattr(sent, "offset", None), int):
                span.set_attribute("messaging.destination.partition.id", str(sent.partition))
                span.set_attribute("messaging.eosdb.offset", sent.offset)
            return sent

    return send


def _sending_async(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap AsyncProducer.send, which runs in the event loop: the sending thread does not know the current
    span."""

    async def send(
        self: Any, topic: str, *args: Any, headers: Iterable[Header] = (), **options: Any
    ) -> Any:
        with _span_of_send(tracer, topic, headers) as (own, _):
            return await original(self, topic, *args, headers=own, **options)

    return send


@contextmanager
def _span_of_send(
    tracer: Tracer, topic: str, headers: Iterable[Header]
) -> Iterator[tuple[tuple[Header, ...], Span | None]]:
    """Yield the headers to send, and the span; None if the record has a trace already, or failed."""
    from opentelemetry.trace import SpanKind

    given = tuple(headers)
    if _is_traced(given) or _is_given_up.get():
        yield (given if _is_traced(given) else (*given, *_injected())), None
        return
    with tracer.start_as_current_span(
        f"send {topic}", kind=SpanKind.PRODUCER, attributes=_attributes(topic, "send", "send")
    ) as span:
        yield (*given, *_injected()), span


def _is_traced(headers: Iterable[object]) -> bool:
    """Whether a record has a trace already, for example because it is forwarded."""
    return any(isinstance(one, tuple) and one[:1] == ("traceparent",) for one in headers)


def _injected() -> Iterator[Header]:
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return ((name, text.encode()) for name, text in carrier.items())


# -- processing ---------------------------------------------------------------------------------


def _processing(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    from opentelemetry.trace import Status, StatusCode, use_span

    def process(self: RecordHandler, origins: Any, run: Run | None = None) -> Exception | None:
        span = (run and run.span) or _begun(tracer, self, origins)
        with use_span(span, end_on_exit=True):
            error: Exception | None = original(self, origins, run)
            if error is not None and not isinstance(getattr(error, "error", error), RetryAt):
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                span.set_attribute("error.type", type(error).__name__)
        _processed.setdefault(self.transaction, []).append(span.get_span_context())
        return error

    return process


def _calling(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    """Begin the span of `process` in the handler's thread."""
    from opentelemetry.trace import use_span

    def call(self: RecordHandler, run: Run) -> None:
        run.span = _begun(tracer, self, [run.attempt.origin])
        with use_span(run.span):
            original(self, run)

    return call


def _begun(tracer: Tracer, handler: RecordHandler, origins: list[ConsumerRecord]) -> Span:
    from opentelemetry.trace import SpanKind, get_current_span

    origin, *others = origins
    attributes = {
        **_attributes(origin.topic, "process", "process"),
        "messaging.destination.partition.id": str(origin.partition),
        "messaging.eosdb.offset": origin.offset,
        "messaging.consumer.group.name": handler.group_id,
        **({"messaging.batch.message_count": len(origins)} if others else {}),
    }
    contexts = [get_current_span(context_of(each)).get_span_context() for each in others]
    return tracer.start_span(
        f"process {origin.topic}",
        context=context_of(origin),
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=_links(contexts),
    )


def _sending_failed(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap sending a failed or postponed record; the span keeps the record's trace."""
    from opentelemetry.trace import SpanKind

    def send_failed(
        self: RecordHandler, attempt: Attempt, failure: Failure, record: ProducerRecord
    ) -> None:
        topic = str(record.topic)
        span = tracer.start_as_current_span(
            f"send {topic}",
            context=context_of(attempt.record),
            kind=SpanKind.PRODUCER,
            attributes={
                **_attributes(topic, "send", "send"),
                "messaging.eosdb.dead_letter": topic == self.settings.dead_letter_topic,
                "messaging.eosdb.attempts": failure.attempts,
                **({"error.type": failure.error} if failure.error != RetryAt.__name__ else {}),
            },
        )
        with span:
            _with(_is_given_up, original, self, attempt, failure, record)

    return send_failed


# -- committing ---------------------------------------------------------------------------------


def _committing(tracer: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a commit. If a processor's commit calls a producer's, they make one span."""
    from opentelemetry.trace import SpanKind

    def commit(self: Any, *args: Any, **options: Any) -> Any:
        if _is_committing.get() or getattr(self, "records", 1) == 0:
            return original(self, *args, **options)
        processed = _processed.pop(self, [])
        with tracer.start_as_current_span(
            "commit",
            kind=SpanKind.CLIENT,
            links=_links(processed),
            attributes={
                **_attributes(None, "commit", "settle"),
                "messaging.batch.message_count": len(processed),
            },
        ):
            return _with(_is_committing, original, self, *args, **options)

    return commit


def _links(contexts: Sequence[SpanContext]) -> list[Link]:
    from opentelemetry.trace import Link

    return [Link(context) for context in contexts[-_LINKS_MAX:]]


def _mending(_: Tracer, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the rollback of a processor: the spans of its records get no links from a commit."""

    def mend(self: transaction.ProcessingTransaction) -> None:
        original(self)
        _processed.pop(self, None)

    return mend


def _with(variable: ContextVar[bool], call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call with the variable true, in a context of the call's own: an interrupt cannot leave it true."""

    def run() -> Any:
        variable.set(True)
        return call(*args, **options)

    return copy_context().run(run)


def _attributes(topic: str | None, name: str, kind: str) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if topic is not None:
        attributes["messaging.destination.name"] = topic
    return attributes
