"""`eosdb produce` and `eosdb consume` (kafka-console-producer, kafka-console-consumer)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator

import click

import eosdb
from eosdb.errors import MessageTooLargeError

from . import output
from .session import Session, pass_session
from .topics import settings_of

_BATCH_BYTES = 1_000_000


@click.command()
@click.argument("topic")
@click.option("--key-separator", help="Separator between key and value in each line.")
@click.option("--partition", type=int, help="Send everything to this partition.")
@click.option("--transactional-id", help="Send all lines in one transaction with this id.")
@pass_session
def produce(
    session: Session,
    topic: str,
    key_separator: str | None,
    partition: int | None,
    transactional_id: str | None,
) -> None:
    """Append each line of standard input to TOPIC. Durable when the command ends with status 0.

    \b
    Example:
      printf 'k1:hello\\nk2:world\\n' | eosdb produce orders --key-separator :
    """
    if key_separator == "":
        raise click.UsageError("--key-separator: got an empty text, expected one such as :")
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
            key, value = _split(line.rstrip(b"\r\n"), key_separator)
            try:
                producer.send(topic, value, key, partition=partition, on_delivery=note)
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
    click.echo(f"appended {count} records to {topic}", err=True)


def _producer(db: eosdb.Database, topic: str, transactional_id: str | None) -> eosdb.Producer:
    """A producer with batches as large as the topic accepts, within a reasonable memory."""
    limit = settings_of(db, topic).max_message_bytes
    return db.producer(
        transactional_id=transactional_id,
        linger_ms=1_000,
        batch_size=min(_BATCH_BYTES, limit),
        max_request_size=limit,
    )


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    return (key, value) if found else (None, line)


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
    type=click.Choice(["value", "table", "json", "csv"]),
    default="value",
    show_default=True,
    help="Output format: one value per line, or rows with all fields.",
)
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
    if follow and output_format == "table":
        raise click.UsageError(
            "a table cannot be printed with --follow; use --format value, csv or json"
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
        if output_format == "value":
            for record in found:
                click.echo(record.value if record.value is not None else b"")
        else:
            output.rows(eosdb.ConsumerRecord._fields, map(_row, found), output_format)
        if group is not None and not committing:
            consumer.commit()


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
    return (*record[:-1], _headers(record.headers))


def _headers(headers: Iterable[eosdb.Header]) -> str:
    return json.dumps([[name, output.shown(value)] for name, value in headers]) if headers else ""
