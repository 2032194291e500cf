"""`eosdb produce` and `consume` (kafka-console-producer.sh, kafka-console-consumer.sh)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any

import click

import eosdb
from eosdb import TopicPartition
from eosdb.cli import options, output
from eosdb.cli.file_command import FileCommand, Session
from eosdb.cli.stopping import until_stopped
from eosdb.errors import EosdbError, InvalidRecordError, MessageTooLargeError, in_doubt, in_part
from eosdb.model.values import IsolationLevel
from eosdb.model.words import counted

from .topics import settings_of

_BATCH_BYTES = 1_000_000
Splitter = Callable[[bytes], tuple[bytes | None, bytes | None]]


@click.command(cls=FileCommand)
@click.argument("topic")
@click.option("--fixed-key", "key", metavar="TEXT", help="Key of all records.")
@click.option("--key-separator", help="Separator of key and value; a line without it has no key.")
@options.setting(
    "--property", "properties",
    help="As for kafka-console-producer.sh: parse.key=true, key.separator=: (default: tab; a line without "
    "it is an error), null.marker=TEXT (repeatable).",
)  # fmt: skip
@click.option("--partition", type=int, help="Send all records to this partition.")
@click.option(
    "--transactional-id", help="Send all records in one transaction with this transactional id."
)
def produce(
    session: Session,
    topic: str,
    key: str | None,
    key_separator: str | None,
    properties: dict[str, str],
    partition: int | None,
    transactional_id: str | None,
) -> None:
    """Append each line of standard input to TOPIC. On exit status 0, all records are durable.

    \b
    Example:
      printf 'k1:hello\\nk2:world\\n' | eosdb produce shop.db orders --key-separator :
    """
    split = _splitter(key, key_separator, properties)
    failed: list[tuple[int, EosdbError]] = []
    count = answered = 0

    def note(line: int, error: EosdbError | None, _: eosdb.RecordMetadata | None) -> None:
        nonlocal answered
        answered += 1
        if error is not None:
            failed.append((line, error))

    with session.open() as db, _producer(db, topic, transactional_id) as producer:
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        try:
            for line in sys.stdin.buffer:
                try:
                    key_bytes, value = split(line.rstrip(b"\r\n"))
                    producer.send(
                        topic, value, key=key_bytes, partition=partition,
                        on_delivery=partial(note, count + 1),
                    )  # fmt: skip
                except (InvalidRecordError, MessageTooLargeError) as error:
                    before = "no line is" if transactional_id else "the lines before it are"
                    raise type(error)(f"line {count + 1}: {error}; {before} appended") from error
                count += 1
                if failed:
                    break
            if transactional_id is not None:
                producer.commit_transaction()
            producer.flush()
            if failed:
                raise min(failed)[1]
        except EosdbError as error:
            if transactional_id is not None:
                raise
            with suppress(EosdbError):
                producer.flush()
            raise _told(error, failed, answered - len(failed)) from error
    output.line(f"appended {count} records to {topic}", err=True)


def _told(error: EosdbError, failed: list[tuple[int, EosdbError]], stored: int) -> EosdbError:
    """The error of the first line that failed, with the number of lines that are stored."""
    if failed:
        line, error = min(failed)
        if stored:
            first = "the first " if stored == line - 1 else ""
            in_part(error, f"{first}{counted(stored, 'line')} of the input are stored")
    if stored or any(each.outcome != "not written" for _, each in failed):
        in_doubt(error)
    return error


def _producer(db: eosdb.Database, topic: str, transactional_id: str | None) -> eosdb.Producer:
    """A producer whose batches are as large as the topic accepts, at most 1 MB."""
    limit = settings_of(db, topic).max_message_bytes
    return db.producer(
        transactional_id=transactional_id,
        linger_ms=1_000,
        batch_size=min(_BATCH_BYTES, limit),
        max_request_size=limit,
    )


def _splitter(key: str | None, separator: str | None, properties: dict[str, str]) -> Splitter:
    """A function that splits a line into key and value. Raises UsageError for conflicting options."""
    if unknown := properties.keys() - {"parse.key", "key.separator", "null.marker"}:
        raise click.UsageError(
            f"--property {', '.join(sorted(unknown))}: expected parse.key, key.separator or null.marker"
        )
    if properties.get("parse.key", "false") not in ("true", "false"):
        raise click.UsageError("--property parse.key: expected true or false")
    is_kafkas = properties.get("parse.key") == "true"
    if is_kafkas:
        separator = properties.get("key.separator", "\t") if separator is None else separator
    if separator == "":
        raise click.UsageError("--key-separator: got an empty text, expected a text such as :")
    if key is not None and separator is not None:
        raise click.UsageError("give --fixed-key, or a key separator for the lines, not both")
    marker = properties.get("null.marker")

    def unmarked(data: bytes) -> bytes | None:
        return None if marker is not None and data == marker.encode() else data

    def split(line: bytes) -> tuple[bytes | None, bytes | None]:
        if separator is None:
            return (None if key is None else key.encode()), unmarked(line)
        first, mark, rest = line.partition(separator.encode())
        if not mark and is_kafkas:
            raise InvalidRecordError(
                f"no key separator {separator!r} in {line.decode(errors='replace')!r:.80}"
            )
        return unmarked(first) if mark else None, unmarked(rest if mark else line)

    return split


@click.command(cls=FileCommand)
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "--group",
    help="Start at this group's committed offsets, and commit the offsets of printed records.",
)
@click.option(
    "--from-beginning", is_flag=True,
    help="Without committed offsets, start at the earliest, not the latest.",
)  # fmt: skip
@click.option(
    "--last", type=click.IntRange(min=0), metavar="N",
    help="Start at the last N committed records of all partitions, in the order of their times.",
)  # fmt: skip
@click.option(
    "--max-records", "--max-messages", type=click.IntRange(min=1),
    help="Stop after this many records.",
)  # fmt: skip
@click.option(
    "--isolation-level", type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed", show_default=True,
    help="read_uncommitted also prints records of open and aborted transactions.",
)  # fmt: skip
@click.option("--partition", type=click.IntRange(min=0), hidden=True)
@click.option("--offset", hidden=True)
@click.option("--property", "properties", multiple=True, hidden=True)
@options.follow
@click.option(
    "--timeout-ms", type=int, default=0, help="Stop when no record arrives for this long."
)
@click.option(
    "--format", type=click.Choice(["value", *output.FORMATS]), default="value", show_default=True,
    expose_value=False, callback=output.choose_format,
    help="Output format: one value per line, or rows with all fields. With --follow, json prints one "
    "object per line, like jsonl.",
)  # fmt: skip
@output.file_option
def consume(
    session: Session,
    /,
    topics: tuple[str, ...],
    group: str | None,
    from_beginning: bool,
    last: int | None,
    isolation_level: IsolationLevel,
    partition: int | None,
    offset: str | None,
    properties: tuple[str, ...],
    **end: Any,
) -> None:
    """Print the records of TOPICS as a consumer sees them.

    \b
    Example:
      eosdb consume shop.db orders --from-beginning --max-records 10 --format json
      eosdb consume shop.db orders --last 20 --follow
    """
    if partition is not None or offset is not None:
        start = f" --from-offset {offset}" if offset and offset.isdecimal() else ""
        raise click.UsageError(
            "--partition and --offset: consume reads whole topics; to print part of one, with its aborted "
            f"records, type: eosdb inspect log FILE {topics[0]}/{partition or 0}{start} --print-data-log"
        )
    if properties:
        raise click.UsageError("--property: --format json also prints keys, headers and times")
    if last is not None and (group is not None or from_beginning):
        raise click.UsageError("--last cannot be combined with --group or --from-beginning")
    if group and click.get_current_context().params.get("output_file"):
        raise click.UsageError(
            "--group commits the offsets of printed records, but -o writes its file only at the end: "
            "use > PATH instead of -o"
        )
    if end["follow"]:
        _check_format()
        until_stopped()
    with (
        session.open_for_reading() if group is None else session.open() as db,
        db.consumer(
            group,
            isolation_level=isolation_level,
            auto_offset_reset="earliest" if from_beginning else "latest",
        ) as consumer,
    ):
        if last is None:
            consumer.subscribe(topics)
        # A table is printed only at the end, and offsets are committed after their records are printed.
        committing = group is not None and not output.is_format("table")
        found = () if last is None else _last(consumer, topics, last)
        records = _records(consumer, committing, **end)
        _show(islice(chain(found, records), end["max_records"]) if found else records)
        if group is not None and not committing:
            consumer.commit()


def _check_format() -> None:
    """With --follow, json becomes jsonl, because the array would never end. Raises UsageError for a table,
    whose widths depend on all rows."""
    if output.is_format("table"):
        raise click.UsageError(
            "a table cannot be printed with --follow; use --format value, csv, json or jsonl"
        )
    if output.is_format("json"):
        output.choose_format(click.get_current_context(), None, "jsonl")


def _last(
    consumer: eosdb.Consumer, topics: Iterable[str], count: int
) -> list[eosdb.ConsumerRecord]:
    """The last records of all partitions, ordered by timestamp. The consumer is then at the end offsets."""
    consumer.assign(
        [TopicPartition(t, p) for t in topics for p in range(consumer.partitions_for(t))]
    )
    ends = consumer.end_offsets(consumer.assignment())
    latest: list[eosdb.ConsumerRecord] = []
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
            # Go back further, because markers and aborted records also take offsets.
            back = 0 if start == begin else back * 4
        latest += records[-count:]
    for tp, end in ends.items():
        consumer.seek(tp, end)
    consumer.resume(ends)
    latest.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
    return latest[-count:] if count else []


def _show(records: Iterable[eosdb.ConsumerRecord]) -> None:
    if output.is_format("value"):
        for record in records:
            output.value(record.value)
    else:
        output.rows(eosdb.ConsumerRecord._fields, map(_row, records))


def _records(
    consumer: eosdb.Consumer,
    committing: bool,
    max_records: int | None,
    follow: bool,
    timeout_ms: int,
) -> Iterator[eosdb.ConsumerRecord]:
    """Yield records as they arrive; `committing` commits after each batch."""
    left = max_records
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


def _row(record: eosdb.ConsumerRecord) -> tuple[object, ...]:
    time = output.Time(record.timestamp)
    return (*record[:3], time, *record[4:-1], _headers(record.headers))


def _headers(headers: Iterable[eosdb.Header]) -> str:
    shown = [[name, None if data is None else output.shown(data)] for name, data in headers]
    return json.dumps(shown) if shown else ""
