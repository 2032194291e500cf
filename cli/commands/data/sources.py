"""Input files, record by record, with the position to resume from after each: NDJSON, CSV, plain lines."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from eosdb.errors import InvalidRecordError
from eosdb.model.damage import parsed

FORMATS = ("ndjson", "csv", "lines")
_BY_SUFFIX = {".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson", ".csv": "csv"}
_CSV_FIELD_MAX = 2**31 - 1
"""The largest record of any topic; Python's default of 128 KiB is below the limit of most topics."""


class Position(NamedTuple):
    """Where reading resumes: the bytes (uncompressed, for .gz) and lines read, and the last line."""

    byte: int = 0
    line: int = 0
    last_size: int = 0
    last_crc: int | None = None
    """CRC-32 of the line that ends at `byte`; with its size it detects a replaced file."""


class Item(NamedTuple):
    """One line of the input: a record, or the `error` for which it is none."""

    key: bytes | None
    value: bytes
    byte: int
    line: int
    last: bytes
    error: str | None = None

    @property
    def after(self) -> Position:
        """The position after this record."""
        return Position(self.byte, self.line, len(self.last), zlib.crc32(self.last))


def format_of(path: Path) -> str:
    """The format by the file's suffix; plain lines for an unknown suffix."""
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    return _BY_SUFFIX.get(suffixes[-1].lower(), "lines") if suffixes else "lines"


@dataclass(frozen=True, slots=True)
class Source:
    """An input file, its format, and the field that is the key."""

    path: Path
    input_format: str
    key_field: str | None

    def size(self) -> int:
        return self.path.stat().st_size

    @property
    def packed(self) -> bool:
        return self.path.suffix == ".gz"

    def read(self, start: Position) -> Iterator[Item]:
        """Read items from `start` on. A line that cannot be parsed is an item with an error.

        Raises InvalidRecordError if the file was replaced since it was read up to `start`, if a compressed
        file is damaged, and for an invalid CSV header.
        """
        try:
            with self._open() as file:
                self._go_to(file, start)
                torn = _rest_of_torn_line(file, start) if start.byte else b""
                if torn.strip(b"\r\n"):
                    yield Item(
                        None, torn, start.byte + len(torn), start.line, torn,
                        "it was ingested when its end was not written yet, and has grown since",
                    )  # fmt: skip
                start = start._replace(byte=start.byte + len(torn))
                if self.input_format == "csv":
                    yield from self._csv(file, start)
                else:
                    yield from self._lines(file, start)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidRecordError(
                f"{self.path} is not a whole gzip file: {error}; get it again, what was ingested "
                "before is kept and is not repeated"
            ) from error

    def _open(self) -> IO[bytes]:
        if self.packed:
            return gzip.open(self.path, "rb")  # type: ignore[return-value]
        return self.path.open("rb")

    def _go_to(self, file: IO[bytes], start: Position) -> None:
        """Seek to `start`, after checking that the last ingested line still ends there."""
        file.seek(start.byte - start.last_size)
        last = file.read(start.last_size)
        if file.tell() == start.byte and file.seek(start.byte) == start.byte:
            same = start.last_crc is None or zlib.crc32(last) == start.last_crc
            if same and (self.packed or start.byte <= self.size()):
                return
            difference = "is shorter than what was read" if same else "differs from what was read"
        else:
            difference = "is shorter than what was read"
        raise InvalidRecordError(
            f"{self.path} {difference} up to byte {start.byte}; it was replaced or edited: give another "
            "--source-id to ingest it as a new file"
        )

    def _lines(self, file: IO[bytes], start: Position) -> Iterator[Item]:
        byte, line = start.byte, start.line
        ndjson = self.input_format == "ndjson"
        for raw in file:
            byte += len(raw)
            line += 1
            value = raw.rstrip(b"\r\n")
            if ndjson:
                if line == 1:
                    value = value.removeprefix(codecs.BOM_UTF8)
                if not value or value.isspace():
                    continue
            if not ndjson:
                yield Item(None, value, byte, line, raw)
                continue
            try:
                document = parsed(value)
                if self.key_field is None:
                    yield Item(None, value, byte, line, raw)
                    continue
                if isinstance(document, dict):
                    key = key_bytes(document.get(self.key_field))
                    yield Item(key, value, byte, line, raw)
                    continue
                error = "not a JSON object, so it has no key field"
            except UnicodeEncodeError:
                error = "the key is half a surrogate pair, which UTF-8 cannot hold"
            except ValueError as problem:
                error = f"not JSON: {problem}"
            yield Item(None, value, byte, line, raw, error)

    def _csv(self, file: IO[bytes], start: Position) -> Iterator[Item]:
        """Yield rows as JSON objects of text. A read that resumes parses the header again."""
        csv.field_size_limit(_CSV_FIELD_MAX)
        header: list[str] | None = None
        if start.byte > 0:
            with self._open() as beginning:
                header = self._header(next(csv.reader(map(_text, beginning), strict=True), []))
        byte, line, last = start.byte, start.line, b""

        def lines() -> Iterator[str]:
            nonlocal byte, line, last
            for last in file:
                byte += len(last)
                line += 1
                yield _text(last)

        reader = csv.reader(lines(), strict=True)
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as problem:
                if header is None:
                    raise self._bad_header(str(problem)) from None
                yield Item(None, b"", byte, line, last, f"not CSV: {problem}")
                continue
            if header is None:
                header = self._header(row)
            elif row:
                yield self._row(header, row, byte, line, last)

    def _row(self, header: list[str], row: list[str], byte: int, line: int, last: bytes) -> Item:
        if len(row) != len(header):
            error = f"{len(row)} fields, the header has {len(header)}"
            return Item(None, b"", byte, line, last, error)
        document = dict(zip(header, row, strict=True))
        try:
            key = key_bytes(document[self.key_field]) if self.key_field is not None else None
            value = json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return Item(None, b"", byte, line, last, "not UTF-8")
        return Item(key, value, byte, line, last)

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

    def _bad_header(self, why: str) -> InvalidRecordError:
        return InvalidRecordError(
            f"{self.path}, header: {why}; fix the header or --key, or give --input-format"
        )


def _rest_of_torn_line(file: IO[bytes], start: Position) -> bytes:
    """The rest of a last line that was read incomplete and has been continued since; usually b""."""
    file.seek(start.byte - 1)
    return b"" if file.read(1) == b"\n" else file.readline()


def _text(raw: bytes) -> str:
    """Decode the line; invalid UTF-8 becomes surrogates, which are refused in records."""
    return raw.decode(errors="surrogateescape")


def key_bytes(value: object) -> bytes | None:
    """The record key for a field's value: text as it is, other values as JSON, None for a missing field."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
