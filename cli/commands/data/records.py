"""`eosdb produce` and `eosdb consume` (kafka-console-producer, kafka-console-consumer)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import click

import eosdb
from eosdb import TopicPartition
from eosdb.cli import output
from eosdb.cli.params import settings
from eosdb.cli.session import Session, pass_session
from eosdb.errors import MessageTooLargeError

from .topics import settings_of

_BATCH_BYTES = 1_000_000
Splitter = Callable[[bytes], tuple[bytes | None, bytes | None]]
_FORMATS = click.Choice(["value", *output.FORMATS])


@click.command()
@click.argument("topic")
@click.option("--key", help="The key of every line.")
@click.option("--key-separator", help="Separator between key and value in each line.")
@click.option(
    "--property",
    "properties",
    callback=settings,
    multiple=True,
    help="As kafka-console-producer has it: parse.key=true, key.separator=: (default: tab), "
    "null.marker=TEXT.",
)
@click.option("--partition", type=int, help="Send everything to this partition.")
@click.option("--transactional-id", help="Send all lines in one transaction with this id.")
@pass_session
def produce(
    session: Session,
    topic: str,
    key: str | None,
    key_separator: str | None,
    properties: dict[str, str],
    partition: int | None,
    transactional_id: str | None,
) -> None:
    """Append each line of standard input to TOPIC. Durable when the command ends with status 0.

    \b
    Example:
      printf 'k1:hello\\nk2:world\\n' | eosdb produce orders --key-separator :
    """
    split = _splitter(key, key_separator, properties)
    failed: list[eosdb.EosdbError] = []

    def note(error: eosdb.EosdbError | None, _: eosdb.RecordMetadata | None) -> None:
        if error is not None:
            failed.append(error)

    count = 0
    with session.open() as db, _producer(db, topic, transactional_id) as producer:
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        for line in sys.stdin.buffer:
            key_bytes, value = split(line.rstrip(b"\r\n"))
            try:
                producer.send(topic, value, key_bytes, partition=partition, on_delivery=note)
            except MessageTooLargeError as error:
                before = (
                    "no line is appended"
                    if transactional_id
                    else "the lines before it are appended"
                )
                raise MessageTooLargeError(f"line {count + 1}: {error}; {before}") from error
            count += 1
        if transactional_id is not None:
            producer.commit_transaction()
        producer.flush()
        if failed:
            raise failed[0]
    output.line(f"appended {count} records to {topic}", err=True)


def _producer(db: eosdb.Database, topic: str, transactional_id: str | None) -> eosdb.Producer:
    """A producer with batches as large as the topic accepts, within a reasonable memory."""
    limit = settings_of(db, topic).max_message_bytes
    return db.producer(
        transactional_id=transactional_id,
        linger_ms=1_000,
        batch_size=min(_BATCH_BYTES, limit),
        max_request_size=limit,
    )


def _splitter(key: str | None, separator: str | None, properties: dict[str, str]) -> Splitter:
    """How a line becomes key and value. Raises UsageError for options that contradict each other."""
    if unknown := properties.keys() - {"parse.key", "key.separator", "null.marker"}:
        raise click.UsageError(
            f"--property {', '.join(sorted(unknown))}: expected parse.key, key.separator or null.marker"
        )
    if properties.get("parse.key", "false") not in ("true", "false"):
        raise click.UsageError("--property parse.key: expected true or false")
    if properties.get("parse.key") == "true":
        separator = properties.get("key.separator", "\t") if separator is None else separator
    if separator == "":
        raise click.UsageError("--key-separator: got an empty text, expected one such as :")
    if key is not None and separator is not None:
        raise click.UsageError("give --key, or a separator of keys in the lines, not both")
    marker = properties.get("null.marker")

    def unmarked(data: bytes) -> bytes | None:
        return None if marker is not None and data == marker.encode() else data

    def split(line: bytes) -> tuple[bytes | None, bytes | None]:
        first, found, rest = line.partition(separator.encode()) if separator else (b"", b"", line)
        of_line = unmarked(first) if found else None
        return (key.encode() if key is not None else of_line), unmarked(rest if found else line)

    return split


@click.command()
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "--group", help="Continue from this group's committed offsets, and commit what was printed."
)
@click.option(
    "--from-beginning", is_flag=True, help="Start at the earliest offset if none is committed."
)
@click.option("--max-records", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Whether to read records of open and aborted transactions.",
)
@click.option("--follow", is_flag=True, help="Keep waiting for new records; stop with Ctrl-C.")
@click.option("--timeout-ms", type=int, default=0, help="Wait this long for new records.")
@click.option(
    "--format",
    "output_format",
    type=_FORMATS,
    default="value",
    show_default=True,
    help="Output format: one value per line, or rows with all fields. With --follow json is an object a "
    "line, like jsonl.",
)
@output.file_option
@pass_session
def consume(
    session: Session,
    topics: tuple[str, ...],
    group: str | None,
    from_beginning: bool,
    max_records: int | None,
    isolation_level: str,
    follow: bool,
    timeout_ms: int,
    output_format: str,
) -> None:
    """Print the records of TOPICS as a consumer sees them.

    \b
    Example:
      eosdb consume orders --from-beginning --max-records 10 --format json
    """
    if group is not None and click.get_current_context().params.get("output_file"):
        raise click.UsageError(
            "--group commits what was printed, and a file that is written whole is there only afterwards: "
            "use > FILE instead of -o"
        )
    if follow and output_format == "table":
        raise click.UsageError(
            "a table cannot be printed with --follow; use --format value, csv, json or jsonl"
        )
    with (
        session.open(read_only=group is None) as db,
        db.consumer(
            group,
            isolation_level=isolation_level,
            auto_offset_reset="earliest" if from_beginning else "latest",
        ) as consumer,
    ):
        consumer.subscribe(topics)
        # A table is printed at the end, so nothing may be committed before.
        committing = group is not None and output_format != "table"
        found = _records(consumer, max_records, follow, timeout_ms, committing)
        _show(found, "jsonl" if follow and output_format == "json" else output_format)
        if group is not None and not committing:
            consumer.commit()


@click.command()
@click.argument("topic")
@click.option(
    "-n",
    "--lines",
    "count",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="How many of the last records.",
)
@click.option(
    "-f", "--follow", is_flag=True, help="Keep waiting for new records; stop with Ctrl-C."
)
@click.option(
    "--format",
    "output_format",
    type=_FORMATS,
    default="value",
    show_default=True,
    help="Output format: one value per line, or rows with all fields.",
)
@output.file_option
@pass_session
def tail(session: Session, topic: str, count: int, follow: bool, output_format: str) -> None:
    """Print the last committed records of TOPIC, by time.

    \b
    Example:
      eosdb tail orders -n 20 -f
    """  # fmt: skip
    if follow and output_format == "table":
        raise click.UsageError(
            "a table cannot be printed with --follow; use --format value, csv, json or jsonl"
        )
    with session.open(read_only=True) as db, db.consumer() as consumer:
        consumer.assign([TopicPartition(topic, p) for p in range(consumer.partitions_for(topic))])
        last = _last(consumer, count)
        found = chain(last, _records(consumer, None, True, 0, False)) if follow else last
        _show(found, "jsonl" if follow and output_format == "json" else output_format)


def _last(consumer: eosdb.Consumer, count: int) -> list[eosdb.ConsumerRecord]:
    """The last records of all partitions, in the order of their times; the consumer stands at the ends."""
    ends = consumer.end_offsets(consumer.assignment())
    found: list[eosdb.ConsumerRecord] = []
    for tp, begin in consumer.beginning_offsets(ends).items() if count else ():
        consumer.pause(ends.keys() - {tp})
        consumer.resume([tp])
        back, records = count, list[eosdb.ConsumerRecord]()
        while len(records) < count and back:
            start = max(begin, ends[tp] - back)
            consumer.seek(tp, start)
            records = []
            while consumer.position(tp) < ends[tp] and (batch := consumer.poll()):
                records += [record for record in batch if record.offset < ends[tp]]
            back = (
                0 if start == begin else back * 4
            )  # Markers and aborted records have offsets, too.
        found += records[-count:]
    for tp, end in ends.items():
        consumer.seek(tp, end)
    consumer.resume(ends)
    found.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
    return found[-count:] if count else []


def _show(found: Iterable[eosdb.ConsumerRecord], output_format: str) -> None:
    if output_format == "value":
        for record in found:
            output.value(record.value)
    else:
        output.rows(eosdb.ConsumerRecord._fields, map(_row, found), output_format)


def _records(
    consumer: eosdb.Consumer,
    max_records: int | None,
    follow: bool,
    timeout_ms: int,
    committing: bool,
) -> Iterator[eosdb.ConsumerRecord]:
    """The records as they come. `committing`: called with each batch's offsets once all of it was taken.

    Ctrl-C while waiting ends a following command normally; while a record is being printed it aborts.
    """
    left = max_records
    try:
        while left is None or left > 0:
            batch = consumer.poll(timeout_ms=1_000 if follow else timeout_ms, max_records=left)
            yield from batch
            if committing and (batch or not follow):
                sys.stdout.flush()
                consumer.commit()
            if not batch and not follow:
                return
            if left is not None:
                left -= len(batch)
    except KeyboardInterrupt:
        if not follow:
            raise


def _row(record: eosdb.ConsumerRecord) -> tuple[object, ...]:
    time = output.Time(record.timestamp)
    return (*record[:3], time, *record[4:-1], _headers(record.headers))


def _headers(headers: Iterable[eosdb.Header]) -> str:
    return json.dumps([[name, output.shown(value)] for name, value in headers]) if headers else ""
