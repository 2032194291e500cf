"""Input files, record by record, with the place to go on from after each: NDJSON, CSV, plain lines."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from eosdb.errors import InvalidRecordError

FORMATS = ("ndjson", "csv", "lines")
_BY_SUFFIX = {".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson", ".csv": "csv"}


class Position(NamedTuple):
    """Where reading goes on: bytes (unpacked, for .gz) and lines that are done."""

    byte: int = 0
    line: int = 0


class Item(NamedTuple):
    """One record of the input. `error` says why it is none."""

    key: bytes | None
    value: bytes
    after: Position
    error: str | None = None


def format_of(path: Path) -> str:
    """The format a file's name tells, plain lines when it tells none."""
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    return _BY_SUFFIX.get(suffixes[-1].lower(), "lines") if suffixes else "lines"


@dataclass(frozen=True, slots=True)
class Source:
    """One file, how it is read, and which field is the key."""

    path: Path
    input_format: str
    key_field: str | None

    def size(self) -> int:
        return self.path.stat().st_size

    @property
    def packed(self) -> bool:
        return self.path.suffix == ".gz"

    def read(self, start: Position) -> Iterator[Item]:
        """Records from `start` on. Raises InvalidRecordError when the file is shorter than that."""
        with self._open() as file:
            if file.seek(start.byte) != start.byte or (
                not self.packed and start.byte > self.size()
            ):
                raise InvalidRecordError(
                    f"{self.path} is shorter than the {start.byte} bytes that were ingested; it was "
                    "replaced, give another --source-id to ingest it as a new file"
                )
            if self.input_format == "csv":
                yield from self._csv(file, start)
            else:
                yield from self._lines(file, start)

    def _open(self) -> IO[bytes]:
        if self.packed:
            return gzip.open(self.path, "rb")  # type: ignore[return-value]
        return self.path.open("rb")

    def _lines(self, file: IO[bytes], start: Position) -> Iterator[Item]:
        byte, line = start
        keyed = self.key_field is not None and self.input_format == "ndjson"
        for raw in file:
            byte += len(raw)
            line += 1
            value = raw.rstrip(b"\r\n")
            after = Position(byte, line)
            if not value.strip() and self.input_format == "ndjson":
                continue
            if not keyed:
                yield Item(None, value, after)
                continue
            try:
                document = json.loads(value)
            except ValueError as error:
                yield Item(None, value, after, f"not JSON: {error}")
                continue
            if isinstance(document, dict):
                yield Item(key_bytes(document.get(self.key_field)), value, after)
            else:
                yield Item(None, value, after, "not a JSON object, so it has no key field")

    def _csv(self, file: IO[bytes], start: Position) -> Iterator[Item]:
        """Rows as JSON objects of text; the header is read again when reading goes on."""
        header: list[str] | None = None
        if start.byte > 0:
            with self._open() as beginning:
                header = next(csv.reader(line.decode() for line in beginning), None)
        byte, line = start

        def lines() -> Iterator[str]:
            nonlocal byte, line
            for raw in file:
                byte += len(raw)
                line += 1
                yield raw.decode()

        for row in csv.reader(lines()):
            after = Position(byte, line)
            if header is None:
                header = row
            elif row and len(row) != len(header):
                yield Item(None, b"", after, f"{len(row)} fields, the header has {len(header)}")
            elif row:
                document = dict(zip(header, row, strict=True))
                key = document.get(self.key_field) if self.key_field is not None else None
                value = json.dumps(document, ensure_ascii=False).encode()
                yield Item(key_bytes(key), value, after)


def key_bytes(value: object) -> bytes | None:
    """A field's value as a key: text as it is, other values as JSON, an absent one as none."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
