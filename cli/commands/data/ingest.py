"""`eosdb ingest`: append files to a topic, each line exactly once, however often it is killed and
restarted.

The position in the input file is committed as a consumer offset in the same transaction as the records. The
transactional id is derived from that file, so a second ingest of it fences the first.
"""

from __future__ import annotations

import json
import os
from itertools import chain, islice
from pathlib import Path

import click

import eosdb
from eosdb import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from eosdb.cli import output
from eosdb.cli.file_command import FileCommand
from eosdb.cli.progress import progress
from eosdb.cli.session import Session
from eosdb.errors import (
    InvalidRecordError,
    InvalidTxnStateError,
    ProducerFencedError,
    UnstableOffsetCommitError,
)
from eosdb.model.damage import parsed
from eosdb.model.topic_config import TopicConfig
from eosdb.model.words import counted

from .sources import FORMATS, Item, Position, Source, format_of
from .topics import settings_of

_RETRY_MS = 100
_BATCH_BYTES = 1_000_000
_NAMED_MAX = 20
"""The most skipped lines that are named."""


@click.command(cls=FileCommand)
@click.argument("topic")
@click.argument(
    "files", nargs=-1, required=True, metavar="INPUT...",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
)  # fmt: skip
@click.option(
    "--input-format", type=click.Choice(FORMATS),
    help="Format of INPUT (default: by the suffix of its name).",
)  # fmt: skip
@click.option("--key", "key_field", metavar="FIELD", help="Use this field as the record key.")
@click.option(
    "--transaction-size", type=click.IntRange(min=1), default=5_000, show_default=True,
    help="Records per transaction.",
)  # fmt: skip
@click.option(
    "--source-id",
    help="Name under which the position is kept (default: the path); for a single INPUT.",
)
@click.option(
    "--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True,
    help="What to do with a line that cannot be parsed.",
)  # fmt: skip
def ingest(
    session: Session,
    topic: str,
    files: tuple[Path, ...],
    input_format: str | None,
    key_field: str | None,
    transaction_size: int,
    source_id: str | None,
    on_error: str,
) -> None:
    """Append each line of the INPUT files to TOPIC exactly once.

    Restarted after a kill, it resumes. If the same file is ingested twice at a time, the later process
    takes over and the earlier one ends with PRODUCER_FENCED.

    \b
    Example:
      eosdb ingest shop.db flights flights.ndjson --key tailnum
    """
    if any(str(file) == "-" or not file.is_file() for file in files):
        raise click.UsageError(
            "standard input and pipes have no position to resume from; give a file, or use `eosdb produce`"
        )
    if source_id is not None and len(files) > 1:
        raise click.UsageError("--source-id names a single source; give a single file with it")
    sources = [Source(file, input_format or format_of(file), key_field) for file in files]
    if key_field is not None and any(source.input_format == "lines" for source in sources):
        raise click.UsageError(
            "plain lines have no fields for --key; use --input-format ndjson or csv"
        )
    with session.open() as db:
        settings = settings_of(db, topic)
        for source in sources:
            # The same name from any directory, and text that can be stored whatever bytes it contains.
            path = os.fsencode(source.path.resolve()).decode(errors="backslashreplace")
            ingest_of = Ingest(db, topic, settings, source, source_id or path)
            ingest_of.run(transaction_size, skip=on_error == "skip")


class Ingest:
    """The ingest of one input file."""

    def __init__(
        self, db: eosdb.Database, topic: str, settings: TopicConfig, source: Source, name: str
    ) -> None:
        self._db = db
        self._topic = topic
        self._settings = settings
        self._source = source
        self._group = f"__eosdb.ingest:{topic}:{name}"
        self._anchor = TopicPartition(topic, 0)
        # The position is valid for this topic only, not for one recreated under its name meanwhile.
        self._member = ConsumerGroupMetadata(
            self._group, topic_ids={self._anchor: db.broker.topic(topic).topic_id}
        )
        self._count = 0
        self._skipped: list[str] = []
        """The lines that were skipped, and why."""

    def run(self, transaction_size: int, *, skip: bool) -> None:
        """Append the lines that are not stored yet. Raises InvalidRecordError for a bad line unless `skip`,
        and ProducerFencedError if another ingest of this input file was started."""
        limit = self._settings.max_message_bytes
        try:
            with self._db.producer(
                transactional_id=self._group,
                transaction_timeout_ms=self._db.config.transaction_max_timeout_ms,
                batch_size=min(_BATCH_BYTES, limit),
                max_request_size=limit,
            ) as producer:
                producer.init_transactions()
                end = self._append(producer, transaction_size, skip)
        except (ProducerFencedError, InvalidTxnStateError) as error:
            # The successor first aborts the open transaction, and only then takes the id: in between, the
            # commit finds a transaction that was ended otherwise.
            raise ProducerFencedError(
                f"another ingest of {self._source.path} has taken over from this one, or this one was "
                "suspended for too long; no line is lost or duplicated: let the other finish, or restart"
            ) from error
        finally:
            self._name_skipped()
        skipped = f", {counted(len(self._skipped), 'line')} skipped" if self._skipped else ""
        output.line(
            f"{self._source.path}: {self._count} records appended to {self._topic}, "
            f"{end.line} lines done{skipped}",
            err=True,
        )

    def _name_skipped(self) -> None:
        for why in self._skipped[:_NAMED_MAX]:
            output.line(f"{self._source.path}, {why}: skipped", err=True)
        if (others := len(self._skipped) - _NAMED_MAX) > 0:
            output.line(f"{self._source.path}: {counted(others, 'more line')} skipped", err=True)

    def _append(self, producer: eosdb.Producer, transaction_size: int, skip: bool) -> Position:
        position = self._committed()
        source = self._source
        total = None if source.packed else source.size()
        with progress(
            self._db.clock, str(source.path), "records", on_terminal=source.path.name
        ) as report:
            report(position.byte, total, 0)
            items = self._source.read(position)
            for first in items:
                bad = None
                with producer.transaction():
                    for item in chain((first,), islice(items, transaction_size - 1)):
                        error = item.error or self._refusal(item)
                        if error is None:
                            producer.send(self._topic, item.value, item.key)
                            self._count += 1
                        elif skip:
                            self._skipped.append(f"line {item.line}: {error}")
                        else:
                            # Good lines before a bad one are stored, in this transaction.
                            bad = f"line {item.line}: {error}"
                            break
                        last = item
                    if bad is None or item is not first:
                        position = last.after
                        stored = OffsetAndMetadata(position.byte, _metadata(position))
                        producer.send_offsets_to_transaction({self._anchor: stored}, self._member)
                report(position.byte, total, self._count)
                if bad is not None:
                    raise InvalidRecordError(
                        f"{self._source.path}, {bad}; the lines before it are stored; fix it, or "
                        "skip such lines with --on-error skip"
                    )
        return position

    def _refusal(self, item: Item) -> str | None:
        """The reason for which the topic would refuse the record, and abort the transaction."""
        size = len(item.value) + len(item.key or b"")
        if size > self._settings.max_message_bytes:
            return f"{size} bytes, max.message.bytes of the topic is {self._settings.max_message_bytes}"
        if item.key is None and self._settings.compact:
            return "no key, the topic is compacted and needs one (--key FIELD)"
        return None

    def _committed(self) -> Position:
        """The position committed by the last transaction for this input file."""
        while True:
            try:
                offsets = self._db.broker.offset_fetch(
                    self._group, [self._anchor], require_stable=True
                )
            except UnstableOffsetCommitError:
                # Another ingest has started; the next request of this one is fenced.
                self._db.clock.sleep_ms(_RETRY_MS)
            else:
                stored = offsets.get(self._anchor)
                return Position() if stored is None else _position(stored)


def _metadata(position: Position) -> str:
    _, line, last_size, last_crc = position
    return json.dumps({"line": line, "last_size": last_size, "last_crc": last_crc})


def _position(stored: OffsetAndMetadata) -> Position:
    """Parse a committed position; an offset that an operator has reset has no metadata."""
    try:
        noted = parsed(stored.metadata or "{}")
        return Position(
            stored.offset,
            int(noted.get("line", 0)),
            int(noted.get("last_size", 0)),
            noted.get("last_crc"),
        )
    except (ValueError, TypeError, AttributeError):
        return Position(stored.offset)
