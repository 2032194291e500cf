"""`eosdb ingest`: append files to a topic, each line exactly once, however often it is killed and
restarted.

The position in the input file is committed as a consumer offset in the same transaction as the records. The
transactional id is derived from the input's name, so a second ingest of it fences the first.
"""

from __future__ import annotations

import hashlib
import json
import os
from itertools import chain, islice
from pathlib import Path

import click

import eosdb
from eosdb import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, errors
from eosdb.cli import options, output
from eosdb.cli.file_command import FileCommand, Session
from eosdb.model.damage import parsed
from eosdb.model.topic_config import TopicConfig
from eosdb.model.words import counted

from .sources import FORMATS, Item, Position, Source, format_of
from .topics import settings_of

_RETRY_MS = 100
_BATCH_BYTES = 1_000_000
_NAMED_MAX = 20
"""The most skipped lines that the output names."""


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
@options.transaction_size
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
    max_records: int,
    source_id: str | None,
    on_error: str,
) -> None:
    """Append the lines of files to TOPIC exactly once.

    Restarted after a kill, or when a file has grown, it resumes, after a check that what it read before is
    unchanged. A last line without a line end is refused, since its writer may be at work on it, but not a
    whole JSON object. If two processes ingest a file, the later one fences the earlier (PRODUCER_FENCED).

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
            # Name the file by its absolute path; bytes that are not UTF-8 cannot be stored, so escape them.
            path = os.fsencode(source.path.resolve()).decode(errors="backslashreplace")
            ingest_of = Ingest(db, topic, settings, source, source_id or path)
            ingest_of.run(max_records, skip=on_error == "skip")


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
        # The id ties the position to this topic, and not to a later topic of the same name.
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
        except (errors.ProducerFencedError, errors.InvalidTxnStateError) as error:
            # A later ingest aborts this one's transaction before it fences its producer. A commit in
            # between fails with InvalidTxnStateError, which means the same.
            raise errors.ProducerFencedError(
                f"another ingest of {self._source.path} has taken over from this one, or this one was "
                "suspended for too long; no line is lost or duplicated: let the other finish, or restart"
            ) from error
        except errors.EosdbError as error:
            if self._count and not isinstance(error, errors.InvalidRecordError):
                done = f"{counted(self._count, 'record')} are stored, ingest again for the others"
                errors.in_part(error, done)
            raise
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
        position, digest = self._committed(), hashlib.sha256()
        source = self._source
        total = None if source.packed else source.size()
        with output.progress(source.path.name, "records") as report:
            report(position.byte, total, 0)
            items = self._source.read(position, digest)
            for first in items:
                bad, before, count = None, position.byte, 0
                with producer.transaction():
                    for item in chain((first,), islice(items, transaction_size - 1)):
                        error = item.error or self._refusal(item)
                        if error is None and not item.is_open:
                            producer.send(self._topic, item.value, key=item.key)
                            count += 1
                        elif skip and not item.is_open and item.first == item.line:
                            self._skipped.append(f"line {item.line}: {error}")
                        else:
                            # This transaction stores the good lines before a bad one.
                            bad = _complaint(item, error)
                            break
                        digest.update(item.raw)
                        position = Position(position.byte + len(item.raw), item.line)
                    if position.byte > before:
                        position = position._replace(digest=digest.hexdigest())
                        stored = OffsetAndMetadata(position.byte, _metadata(position))
                        producer.send_offsets_to_transaction({self._anchor: stored}, self._member)
                self._count += count
                report(position.byte, total, self._count)
                if bad is not None:
                    raise errors.InvalidRecordError(
                        f"{source.path}, {bad}; the lines before it are stored"
                    )
        return position

    def _refusal(self, item: Item) -> str | None:
        """The reason why the topic would refuse the record, and so abort the transaction, or None."""
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
            except errors.UnstableOffsetCommitError:
                # Another ingest has started, which fences this one's next request.
                self._db.clock.sleep_ms(_RETRY_MS)
            else:
                stored = offsets.get(self._anchor)
                return Position() if stored is None else _position(stored)


def _complaint(item: Item, error: str | None) -> str:
    """What is wrong with the item, and what to do."""
    where, fix = f"line {item.line}", "fix the line, or skip such lines with --on-error skip"
    if item.first < item.line:
        where = f"lines {item.first} to {item.line}, which are one row of CSV"
        quote = f"add the quote that may be missing in line {item.first}"
        fix = f"{quote} (--on-error skip skips only rows of one line)"
    if not item.is_open:
        return f"{where}: {error}; {fix}"
    return (
        f"{where}: the file ends inside of it ({error or 'no line end'}), and its writer may be at work on "
        "it; ingest again when it is complete. If the file is complete, append a line end, or the quote "
        f"that may be missing in line {item.first}"
    )


def _metadata(position: Position) -> str:
    return json.dumps({"line": position.line, "sha256": position.digest})


def _position(stored: OffsetAndMetadata) -> Position:
    """Parse a committed position. An offset that an operator has set has no metadata."""
    try:
        noted = parsed(stored.metadata or "{}")
        return Position(stored.offset, int(noted.get("line", 0)), noted.get("sha256"))
    except (ValueError, TypeError, AttributeError):
        return Position(stored.offset)
