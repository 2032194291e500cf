"""Spans of what is sent, processed and committed, and the trace that records carry."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import eosdb
from eosdb import ConsumerRecord, TopicPartition, aio
from eosdb.integrations import tracing
from tests.programs import ended


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    made, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    tracing.instrument(provider)
    tracing.instrument(provider)
    yield made
    tracing.uninstrument()


def spans(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def is_in(record: ConsumerRecord, span: ReadableSpan) -> bool:
    """Whether the record says that it comes from this span; the flags behind it are the SDK's."""
    header = dict(record.headers)["traceparent"]
    return header is not None and header.startswith(b"00-%032x-%016x-" % ids(span))


def read(db: eosdb.Database, topic: str) -> list[ConsumerRecord]:
    consumer = db.consumer(auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    return consumer.poll()


def one_parameter(record: ConsumerRecord) -> bytes:
    return b"done"


def two_parameters(record: ConsumerRecord, tx: Any) -> None:
    tx.publish("out", b"done")


@pytest.mark.parametrize(
    ("handler", "workers"), [(one_parameter, 1), (one_parameter, 2), (two_parameters, 1)]
)
def test_a_record_is_sent_processed_and_its_result_sent_in_one_trace(
    db: eosdb.Database, exporter: InMemorySpanExporter, handler: Any, workers: int
) -> None:
    db.admin.create_topic("in")
    db.admin.create_topic("out")
    db.producer().send("in", b"v").result()
    eosdb.process(db, "in", handler, "out", group_id="g", until_idle_ms=50, workers=workers)
    (sent,), (processed,) = spans(exporter, "send in"), spans(exporter, "process in")
    (result,), (commit,) = spans(exporter, "send out"), spans(exporter, "commit")
    assert [s.kind for s in (sent, processed, result, commit)] == [
        SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.PRODUCER, SpanKind.CLIENT,
    ]  # fmt: skip
    assert (parent(sent), parent(processed), parent(result)) == (None, ids(sent), ids(processed))
    assert [(link.context.trace_id, link.context.span_id) for link in commit.links] == [
        ids(processed)
    ]
    assert processed.attributes == {
        "messaging.system": "eosdb",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "in",
        "messaging.destination.partition.id": "0",
        "messaging.eosdb.offset": 0,
        "messaging.consumer.group.name": "g",
    }
    (record,) = read(db, "out")
    assert is_in(record, result)


def test_failing_attempts_are_errors_and_a_dead_letter_stays_in_its_trace(
    db: eosdb.Database, exporter: InMemorySpanExporter
) -> None:
    db.admin.create_topic("in")
    db.producer().send("in", b"v").result()

    def fail(_: ConsumerRecord) -> None:
        raise ValueError("no")

    eosdb.process(
        db, "in", fail, group_id="g", until_idle_ms=50, max_attempts=2, dead_letter_topic="dead"
    )
    (sent,), (dead,) = spans(exporter, "send in"), spans(exporter, "send dead")
    attempts = spans(exporter, "process in")
    assert [span.status.status_code for span in attempts] == [StatusCode.ERROR] * 2
    assert [span.events[0].name for span in attempts] == ["exception"] * 2
    assert {parent(span) for span in (*attempts, dead)} == {ids(sent)}
    assert dead.attributes is not None
    assert dead.attributes["messaging.eosdb.dead_letter"] is True
    assert dead.attributes["error.type"] == "ValueError"


def test_what_a_worker_does_is_in_the_trace_of_its_record(
    db: eosdb.Database, exporter: InMemorySpanExporter
) -> None:
    seen: list[tuple[int, int]] = []

    def handle(_: ConsumerRecord) -> None:
        context = trace.get_current_span().get_span_context()
        seen.append((context.trace_id, context.span_id))
        raise ValueError("no")

    db.admin.create_topic("in")
    db.producer().send("in", b"v").result()
    settings: Any = {"max_attempts": 2, "dead_letter_topic": "dead", "workers": 2}
    eosdb.process(db, "in", handle, group_id="g", until_idle_ms=50, **settings)
    attempts = spans(exporter, "process in")
    assert [ids(span) for span in attempts] == seen
    assert [span.status.status_code for span in attempts] == [StatusCode.ERROR] * 2


@pytest.mark.parametrize("batch", [False, True])
def test_a_postponed_record_stays_in_its_trace_and_is_no_error(
    db: eosdb.Database, exporter: InMemorySpanExporter, batch: bool
) -> None:
    def later(_: eosdb.ConsumerRecord) -> None:
        raise eosdb.RetryAt(2**50)

    def second_later(records: list[eosdb.ConsumerRecord]) -> None:
        if len(records) > 1:
            raise eosdb.BatchFailed(1, eosdb.RetryAt(2**50))

    db.admin.create_topic("in")
    for _ in range(2):
        db.producer().send("in", b"v").result()
    handler: Any = second_later if batch else later
    eosdb.process(db, "in", handler, group_id="g", until_idle_ms=50, batch=batch)
    postponed = spans(exporter, "send __eosdb.postponed.g")
    assert len(postponed) == (1 if batch else 2)
    for span in (*spans(exporter, "process in"), *postponed):
        assert span.status.status_code is StatusCode.UNSET
        assert "error.type" not in (span.attributes or {})
    assert {ids(span)[0] for span in postponed} <= {
        ids(span)[0] for span in spans(exporter, "send in")
    }


def test_a_header_of_the_users_own_stays(
    db: eosdb.Database, exporter: InMemorySpanExporter
) -> None:
    db.admin.create_topic("in")
    own = ("traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")
    db.producer().send("in", b"v", headers=[("first", b"1"), own]).result()
    (record,) = read(db, "in")
    assert record.headers == (("first", b"1"), own)
    assert exporter.get_finished_spans() == ()
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("mine", context=tracing.context_of(record)) as span:
        assert f"{span.get_span_context().trace_id:032x}" == "a" * 32


def test_what_a_block_publishes_has_a_span_with_its_offset(
    db: eosdb.Database, exporter: InMemorySpanExporter
) -> None:
    db.admin.create_topic("in")
    with db.begin() as tx:
        tx.publish("in", b"v")
    (sent,) = spans(exporter, "send in")
    assert sent.attributes is not None
    assert sent.attributes["messaging.eosdb.offset"] == 0
    assert "traceparent" in dict(read(db, "in")[0].headers)


def test_a_task_sends_in_the_trace_that_it_is_in(
    db_path: Path, exporter: InMemorySpanExporter
) -> None:
    tracer = TracerProvider().get_tracer("test")

    async def send() -> str:
        async with aio.connect(db_path) as db:
            await db.admin.create_topic("in")
            async with db.producer() as producer:
                with tracer.start_as_current_span("mine") as span:
                    await producer.send_and_wait("in", b"v")
        return f"{span.get_span_context().trace_id:032x}"

    trace = asyncio.run(send())
    (sent,) = spans(exporter, "send in")
    assert f"{ids(sent)[0]:032x}" == trace
    with eosdb.connect(db_path) as db:
        assert is_in(read(db, "in")[0], sent)


STEP = """
import json, sys
import eosdb
from eosdb.integrations import tracing
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracing.instrument(provider)
path, source, sink = sys.argv[1:]
eosdb.process(path, source, lambda record: b"v", sink, group_id=source, until_idle_ms=50)
print(json.dumps([(s.name, f"{s.context.trace_id:032x}") for s in exporter.get_finished_spans()]))
"""


@pytest.mark.process
def test_a_chain_of_processes_is_one_trace(db_path: Path, exporter: InMemorySpanExporter) -> None:
    with eosdb.connect(db_path) as db:
        for topic in ("a", "b", "c"):
            db.admin.create_topic(topic)
        db.producer().send("a", b"v").result()
    (sent,) = spans(exporter, "send a")
    for source, sink in (("a", "b"), ("b", "c")):
        done = ended([sys.executable, "-c", STEP, str(db_path), source, sink], check=True)
        found = {name: trace for name, trace in json.loads(done.stdout) if name != "commit"}
        assert found == {
            f"process {source}": f"{ids(sent)[0]:032x}",
            f"send {sink}": f"{ids(sent)[0]:032x}",
        }


@pytest.mark.process
@pytest.mark.real_start
def test_who_does_not_ask_for_spans_gets_none_and_loads_nothing(db_path: Path) -> None:
    code = (
        "import sys, eosdb; db = eosdb.connect(sys.argv[1]); db.admin.create_topic('t'); "
        "db.producer().send('t', b'v').result(); "
        "print([m for m in sys.modules if m.startswith(('opentelemetry', 'eosdb.integrations.tracing'))])"
    )
    loaded = ended([sys.executable, "-c", code, str(db_path)], check=True)
    assert loaded.stdout.strip() == "[]"


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(eosdb.ConfigError, match=r"tracing needs the extra 'otel': pip install "):
        tracing.instrument()


def test_after_the_end_of_it_everything_is_as_before(db: eosdb.Database) -> None:
    send = eosdb.Producer.send
    tracing.instrument(TracerProvider())
    assert eosdb.Producer.send is not send
    tracing.uninstrument()
    assert eosdb.Producer.send is send
