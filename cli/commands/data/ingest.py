"""`eosdb ingest`: append files to a topic, each line exactly once, however often it is killed and
restarted.

The position in the input file is committed as a consumer offset in the same transaction as the records. The
transactional id is derived from the input's name, so a second ingest of it fences the first.

An input is read record by record (NDJSON, CSV, plain lines), with the position to resume from after each.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Final, NamedTuple

import click

import eosdb
from eosdb import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, errors
from eosdb.cli import options, output
from eosdb.cli.file_command import FileCommand, Session
from eosdb.model.damage import parsed
from eosdb.model.topic_config import TopicConfig
from eosdb.model.words import counted

from .topics import settings_of

FORMATS = ("ndjson", "csv", "lines")
_BY_SUFFIX = {".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson", ".csv": "csv"}
_PACKED: Final = re.compile(
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|PK\x03\x04|7z\xbc\xaf|\x1f\x9d"
)
"""How files of bzip2, xz, zstd, lz4, zip, 7z and compress begin."""
_PIECE: Final = 1 << 20
_CSV_FIELD_MAX = 2**31 - 1
"""The largest record of any topic; Python's default of 128 KiB is below the limit of most topics."""


class Position(NamedTuple):
    """The position to resume from: bytes (uncompressed) and lines read, and the SHA-256 of these bytes."""

    byte: int = 0
    line: int = 0
    digest: str | None = None


class Item(NamedTuple):
    """One row of the input, of one line or of several: a record, or the `error` that prevents one."""

    key: bytes | None
    value: bytes
    first: int
    line: int
    """The numbers of its first and last line."""
    raw: bytes
    """All bytes since the item before it."""
    error: str | None = None
    is_open: bool = False
    """Whether the input ends inside it, so that its writer may be at work on it."""


def format_of(path: Path) -> str:
    """The format by the file's suffix; `lines` for an unknown suffix."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return _BY_SUFFIX.get(suffixes[-1], "lines") if suffixes else "lines"


def _refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python's parser takes."""
    raise ValueError(f"{name} is not in JSON")


_parse: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode


@dataclass(frozen=True, slots=True)
class Source:
    """An input file, its format, and the name of the field with the record key."""

    path: Path
    input_format: str
    key_field: str | None

    def size(self) -> int:
        return self.path.stat().st_size

    @property
    def packed(self) -> bool:
        """Whether it is a gzip file. Raises InvalidRecordError for other compressed files."""
        with self.path.open("rb") as file:
            head = file.read(10)
        if _PACKED.match(head):
            raise errors.InvalidRecordError(
                f"{self.path} is compressed, and not with gzip; decompress it first"
            )
        return head.startswith(b"\x1f\x8b") or (self.path.suffix.lower() == ".gz" and head != b"")

    def read(self, start: Position, digest: hashlib._Hash) -> Iterator[Item]:
        """Read items from `start` on. An invalid row is an item with an error. `digest` is fed with the
        bytes before `start`.

        Raises InvalidRecordError if the file was replaced since it was read up to `start`, for a damaged
        compressed file, and for an invalid CSV header.
        """
        try:
            with self._open() as file:
                last = self._go_to(file, start, digest)
                # The rest of a line that was taken without its end, and has one now; usually empty.
                torn = file.readline() if last not in b"\n" else b""
                if torn.strip(b"\r\n"):
                    yield Item(
                        None, torn, start.line, start.line, torn,
                        "it was ingested when its end was not written yet, and has grown since",
                    )  # fmt: skip
                    torn = b""
                if self.input_format == "csv":
                    yield from self._csv(file, start, torn)
                else:
                    yield from self._lines(file, start, torn)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise errors.InvalidRecordError(
                f"{self.path} is an incomplete or damaged gzip file: {error}; get it again; the records "
                "ingested so far are kept and not repeated"
            ) from error

    def _open(self) -> IO[bytes]:
        if self.packed:
            return gzip.open(self.path, "rb")  # type: ignore[return-value]
        return self.path.open("rb")

    def _go_to(self, file: IO[bytes], start: Position, digest: hashlib._Hash) -> bytes:
        """Read up to `start`, and check that these are the bytes that were ingested. Returns the last."""
        left, last = start.byte, b""
        while left and (piece := file.read(min(left, _PIECE))):
            digest.update(piece)
            last = piece[-1:]
            left -= len(piece)
        if left:
            difference = "is shorter than what was read"
        elif start.digest not in (None, digest.hexdigest()):
            difference = "differs from what was read"
        else:
            return last
        raise errors.InvalidRecordError(
            f"{self.path} {difference} up to byte {start.byte}; it was replaced or edited. Give another "
            "--source-id to ingest all of it as a new file. If a log was rotated, first ingest the renamed "
            "file with --source-id and the name used so far (by default this path), for its last lines"
        )

    def _is_open(self, raw: bytes) -> bool:
        return not raw.endswith(b"\n") and not self.packed

    def _lines(self, file: IO[bytes], start: Position, raw: bytes) -> Iterator[Item]:
        line = start.line
        ndjson = self.input_format == "ndjson"
        for text in file:
            raw += text
            line += 1
            value = text.rstrip(b"\r\n")
            key = error = None
            if ndjson:
                if line == 1:
                    value = value.removeprefix(codecs.BOM_UTF8)
                if not value or value.isspace():
                    continue
                key, error = self._key_of(value)
            # A whole object, array or text in JSON is never the first half of another one.
            is_whole = ndjson and error is None and value.rstrip()[-1:] in b'}]"'
            yield Item(key, value, line, line, raw, error, self._is_open(text) and not is_whole)
            raw = b""

    def _key_of(self, value: bytes) -> tuple[bytes | None, str | None]:
        """The key of a JSON value, or the error that prevents a record."""
        try:
            document = _parse(value.decode())
            if self.key_field is None:
                return None, None
            if isinstance(document, dict):
                return key_bytes(document.get(self.key_field)), None
            return None, "not a JSON object, so it has no key field"
        except UnicodeEncodeError:
            return None, "the key is half a surrogate pair, which UTF-8 cannot hold"
        except RecursionError:
            return None, "not JSON: it is nested too deeply"
        except ValueError as problem:
            return None, f"not JSON: {problem}"

    def _csv(self, file: IO[bytes], start: Position, torn: bytes) -> Iterator[Item]:
        """Yield the rows as JSON objects whose values are text. A resumed read parses the header again."""
        csv.field_size_limit(_CSV_FIELD_MAX)
        header: list[str] | None = None
        if start.byte > 0:
            with self._open() as beginning:
                header = self._header(next(csv.reader(map(_text, beginning), strict=True), []))
        line, raw, is_at_end = start.line, [torn], False

        def lines() -> Iterator[str]:
            nonlocal line, is_at_end
            for text in file:
                raw.append(text)
                line += 1
                yield _text(text)
            is_at_end = True

        reader = csv.reader(lines(), strict=True)
        while True:
            first, row, error = line + 1, list[str](), None
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as problem:
                if header is None:
                    raise self._bad_header(str(problem)) from None
                error = f"not CSV: {problem}"
            if header is None:
                header = self._header(row)
            elif row or error:
                key, value, error = (None, b"", error) if error else self._row(header, row)
                is_open = self._is_open(raw[-1]) or (is_at_end and not self.packed)
                yield Item(key, value, first, line, b"".join(raw), error, is_open)
                raw.clear()

    def _row(self, header: list[str], row: list[str]) -> tuple[bytes | None, bytes, str | None]:
        """The key and value of a row, or the error that prevents a record."""
        if len(row) != len(header):
            return None, b"", f"{len(row)} fields, the header has {len(header)}"
        document = dict(zip(header, row, strict=True))
        try:
            key = key_bytes(document[self.key_field]) if self.key_field is not None else None
            return key, json.dumps(document, ensure_ascii=False).encode(), None
        except UnicodeEncodeError:
            return None, b"", "not UTF-8"

    def _header(self, row: list[str]) -> list[str]:
        """The field names. Raises InvalidRecordError for names that a JSON object cannot have."""
        names = [row[0].removeprefix("\ufeff"), *row[1:]] if row else []
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise self._bad_header(f"{min(twice)!r} occurs twice")
        if self.key_field is not None and self.key_field not in names:
            raise self._bad_header(f"no field {self.key_field!r}, it has {', '.join(names)}")
        try:
            "".join(names).encode()
        except UnicodeEncodeError:
            raise self._bad_header("not UTF-8") from None
        return names

    def _bad_header(self, why: str) -> errors.InvalidRecordError:
        return errors.InvalidRecordError(
            f"{self.path}, header: {why}; fix the header or --key, or give --input-format"
        )


def _text(raw: bytes) -> str:
    """Decode the line. Invalid UTF-8 becomes surrogates, which no record may have."""
    return raw.decode(errors="surrogateescape")


def key_bytes(value: object) -> bytes | None:
    """The key for a field's value: text unchanged, other values as JSON, None for a missing field."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


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
    unchanged. A last line without a line end is refused, since its writer may be at work on it. If two
    processes ingest the same file, the later one takes over and the earlier one ends with PRODUCER_FENCED.

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
