"""The inputs of `eosdb ingest`: files of NDJSON, CSV or plain lines, perhaps packed by gzip.

An input is read record by record, with the position to resume from after each.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NamedTuple

from eosdb import errors

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
