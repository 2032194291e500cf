"""Verify and rebuild: both fold the events again, `verify` into a copy and `rebuild` into the tables.

SQLite's own check takes as long as a full scan. A second thread runs it at the same time, since the
statement does not hold Python's interpreter lock.

Each record row is compared with its event and with its own checksum. The checksum covers what only the row
stores: content, timestamp and timestamp type. If retention or compaction has removed a part of a batch, the
rest is compared.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

from eosdb.broker.core import Core
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.projection import apply
from eosdb.events import encoding
from eosdb.events.kinds import BatchAppended, Event, MarkerWritten
from eosdb.log import checksum
from eosdb.log.batch import STORED_SIZE
from eosdb.log.producer_state import SEQUENCE_COUNT
from eosdb.maintenance import replay
from eosdb.model import threads
from eosdb.model.clock import Clock
from eosdb.model.progress import Progress, report_progress
from eosdb.model.values import (
    NO_SEQUENCE,
    RebuildReport,
    VerifyReport,
)
from eosdb.native import accelerator
from eosdb.store import baseline, journal
from eosdb.store.schema import file_id
from eosdb.store.schema import newest as newest_schema
from eosdb.store.schema.identify import check_known
from eosdb.store.store import Store

_SERIAL: Final = f"sequence_round * {SEQUENCE_COUNT} + sequence"
_COLUMNS: Final = (
    "position", "producer_id", "producer_epoch", "sequence", "is_transactional", "control",
)  # fmt: skip
"""The columns that an event determines for each of its rows. `sequence` does not wrap at int32."""


class _Row(NamedTuple):
    """A row of the query `_RANGE`."""

    offset: int
    timestamp: int
    size: int
    key: Any
    value: Any
    headers: Any
    content: Any
    position: int
    producer_id: int
    producer_epoch: int
    sequence: int
    is_transactional: int
    control: str | None


_TERMS: Final = {"size": STORED_SIZE, "content": checksum.CONTENT, "sequence": _SERIAL}
_RANGE: Final = f"""
SELECT {", ".join(_TERMS.get(name, f'"{name}"') for name in _Row._fields)}
FROM records WHERE partition_id = ? AND "offset" BETWEEN ? AND ? ORDER BY "offset"
"""
_PROOFS: Final = """
WITH asked (partition, first, beyond, wanted) AS (VALUES {rows})
SELECT sum(wanted = (
    SELECT eosdb_proof(
        key, value, headers, control, checksum, 1 << 40, first, beyond, partition,
        "offset", timestamp, timestamp_type, producer_id, is_transactional,
        producer_epoch, sequence, sequence_round, position
    ) FROM records INDEXED BY records_offset
    WHERE partition_id = partition AND "offset" >= first AND "offset" < beyond
)) FROM asked
"""
"""SQL that counts the batches with the expected rows, by functions of the accelerator only."""
_MARKERS: Final = f"""
WITH asked (at, from_offset, at_time, {", ".join(f"wanted_{name}" for name in _COLUMNS)})
AS (VALUES {{rows}})
SELECT count(*) FROM asked CROSS JOIN records INDEXED BY records_offset
WHERE partition_id = at AND "offset" = from_offset AND timestamp = at_time
    AND {" AND ".join(f"{_TERMS.get(name, name)} = wanted_{name}" for name in _COLUMNS)}
    AND key IS NULL AND value IS NULL AND headers IS NULL AND {checksum.CONTENT} = {checksum.MARKER}
"""
"""SQL that counts the markers with the expected row."""
_AT_ONCE: Final = 200
_AT_ONCE_BYTES: Final = 1024 * 1024


@dataclass(slots=True)
class _Partition:
    """A partition's state according to the events, and the counts of its stored records."""

    partition_id: int
    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    clean_offset: int
    kept_from: int
    """The offset from which every record must be stored."""
    size_bytes: int
    cleaned_sum: int
    rows: int = 0
    size: int = 0

    def count(self, row: _Row) -> None:
        self.rows += row.offset >= self.kept_from
        self.size += row.size if row.offset >= self.log_start_offset else 0

    def differences(self, connection: sqlite3.Connection) -> Iterator[str]:
        """Yield the differences. Call it after all records are counted."""
        where = f"records: {self.topic}-{self.partition}"
        if self.rows != (expected := max(0, self.log_end_offset - self.kept_from)):
            yield (
                f"{where}: {self.rows} rows are stored from offset {self.kept_from} on, expected {expected}"
            )
        if self.size != self.size_bytes:
            yield f"{where}: {self.size} bytes are stored, expected {self.size_bytes}"
        start, clean = self.log_start_offset, self.clean_offset
        found = checksum.between(connection, self.partition_id, start, clean)
        if found != self.cleaned_sum:
            yield (
                f"{where} offsets {start} to {clean - 1}: the records left by compaction have the sum "
                f"{found}, expected {self.cleaned_sum}; a record has been altered, added or deleted"
            )


_PARTITIONS: Final = (
    "SELECT partition_id, topic, partition, log_start_offset, log_end_offset, clean_offset, "
    "max(log_start_offset, clean_offset), size_bytes, cleaned_sum FROM partitions"
)
_ENDS: Final = "SELECT partition_id, log_end_offset FROM eosdb_baseline_partitions"


class RecordCheck:
    """Compares every event of records with its rows, and collects `problems`. Events up to position
    `baseline` are kept only for their rows; such an event without a row is a problem."""

    def __init__(self, connection: sqlite3.Connection, baseline: int) -> None:
        self._connection = connection
        self._baseline = baseline
        self._partitions = {row[0]: _Partition(*row) for row in connection.execute(_PARTITIONS)}
        self._ends = dict[int, int](connection.execute(_ENDS).fetchall())
        """The log end of each partition after the events so far."""
        self._pending: list[tuple[int, BatchAppended | MarkerWritten]] = []
        self._pending_bytes = 0
        self._rows = 0
        self.problems: list[str] = []

    def inspect(self, position: int, event: Event) -> None:
        """Compare an event with its rows, perhaps later together with other events."""
        if not isinstance(event, BatchAppended | MarkerWritten):
            return
        where = encoding.place(event)
        assert where is not None
        if position > self._baseline:
            self._check_place(position, where)
        partition = self._partitions.get(where.partition_id)
        # Events share a query only if all their records exist.
        if partition is None or where.first_offset < partition.kept_from:
            self._range(position, event)
            return
        self._pending.append((position, event))
        self._pending_bytes += event.size if isinstance(event, BatchAppended) else 0
        if len(self._pending) == _AT_ONCE or self._pending_bytes > _AT_ONCE_BYTES:
            self._look_at_pending()

    def _check_place(self, position: int, where: encoding.Place) -> None:
        expected = self._ends.get(where.partition_id, 0)
        if where.first_offset != expected:
            self.problems.append(
                f"journal: the records of position {position} begin at offset {where.first_offset} of "
                f"partition_id {where.partition_id}, expected {expected}, where its log ended"
            )
        self._ends[where.partition_id] = where.last_offset + 1

    def finish(self) -> list[str]:
        """Return the problems. Call it after every event was inspected."""
        self._look_at_pending()
        for partition in self._partitions.values():
            self.problems += partition.differences(self._connection)
        (rows,) = self._connection.execute("SELECT count(*) FROM records").fetchone()
        if rows != self._rows:
            self.problems.append(
                f"records: {rows} rows are stored, the events account for {self._rows}"
            )
        return self.problems

    def _look_at_pending(self) -> None:
        """Check the pending events: batches by one query of the accelerator, markers by another. If a query
        finds a fault, check each event by `_range`."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        batches, markers = list[tuple[object, ...]](), list[tuple[object, ...]]()
        for position, event in pending:
            of_all = _of_all(position, event)
            if isinstance(event, MarkerWritten):
                markers.append((event.partition_id, event.offset, event.timestamp, *of_all))
                continue
            text = " ".join(map(str, (*of_all[:-1], event.max_timestamp, event.crc)))
            first, beyond = event.base_offset, event.base_offset + event.count
            batches.append((event.partition_id, first, beyond, text))
        are_right = {
            BatchAppended: accelerator.rows() is not None and self._agree(_PROOFS, batches),
            MarkerWritten: self._agree(_MARKERS, markers),
        }
        for position, event in pending:
            if not are_right[type(event)]:
                self._range(position, event)
                continue
            count, size = (1, 0) if isinstance(event, MarkerWritten) else (event.count, event.size)
            self._rows += count
            partition = self._partitions[event.partition_id]
            partition.rows, partition.size = partition.rows + count, partition.size + size

    def _agree(self, query: str, asked: list[tuple[object, ...]]) -> bool:
        """Whether the query counts all events that it is asked for."""
        if not asked:
            return True
        row = f"({', '.join('?' * len(asked[0]))})"
        text, values = query.format(rows=", ".join([row] * len(asked))), [*chain(*asked)]
        try:
            (right,) = self._connection.execute(text, values).fetchone()
        except (sqlite3.Error, MemoryError):  # decisions/0060: Python code reports the fault.
            return False
        return bool(right == len(asked))

    def _range(self, position: int, event: BatchAppended | MarkerWritten) -> None:
        """Check the rows of one event and report their faults."""
        place = encoding.place(event)
        assert place is not None
        _, first, last = place
        cursor = self._connection.execute(_RANGE, (event.partition_id, first, last))
        rows = list(map(_Row._make, cursor))
        self._rows += len(rows)
        partition = self._partitions.get(event.partition_id)
        if partition is not None:
            for row in rows:
                partition.count(row)
        where = f"records: {event.topic}-{event.partition} offsets {first} to {last}"
        kept_from = last + 1 if partition is None else partition.kept_from
        expected = last - max(first, kept_from) + 1
        if len(rows) < expected:
            self.problems.append(f"{where}: {len(rows)} rows are stored, expected {expected}")
        elif not rows and position <= self._baseline:
            self.problems.append(
                f"journal: the event at position {position} is not after the baseline ({self._baseline}), "
                "and no record of it is stored; expected it to be deleted"
            )
        difference = _differs(rows, first, _of_all(position, event)) or _altered(rows)
        if not difference and len(rows) == last - first + 1:
            difference = _content_differs(rows, event)
        if difference:
            self.problems.append(f"{where}: {difference}")


def _of_all(position: int, event: BatchAppended | MarkerWritten) -> tuple[object, ...]:
    """Return the values of `_COLUMNS` in the event's rows; `sequence` is the first row's."""
    common = position, event.producer_id, event.producer_epoch
    if isinstance(event, MarkerWritten):
        return *common, NO_SEQUENCE, 1, event.control
    return *common, event.base_sequence, int(event.is_transactional), None


def _differs(rows: Sequence[_Row], first: int, of_all: tuple[object, ...]) -> str | None:
    """Describe the first column that differs from the event; None if all agree."""
    looked_at = attrgetter(*_COLUMNS)
    for row in rows:
        for name, value, wanted in zip(_COLUMNS, looked_at(row), of_all, strict=True):
            if name == "sequence" and isinstance(wanted, int) and wanted >= 0:
                wanted += row.offset - first
            if value != wanted:
                return f"{name} is {value!r} at offset {row.offset}, expected {wanted!r}"
    return None


def _altered(rows: Sequence[_Row]) -> str | None:
    """Describe the first row that does not match its checksum; None if all match."""
    names = ("key", "value", "headers", "content")
    keys, values, headers, sums = ([getattr(row, name) for row in rows] for name in names)
    i = checksum.first_altered(keys, values, headers, sums)
    if i is None:
        return None
    return (
        f"the record at offset {rows[i].offset} does not fit its checksum; one of its columns has been "
        "altered"
    )


def _content_differs(rows: Sequence[_Row], event: BatchAppended | MarkerWritten) -> str | None:
    if isinstance(event, MarkerWritten):
        (row,) = rows
        if row.timestamp == event.timestamp and row.key is row.value is row.headers is None:
            return None
        return (
            f"a marker of time {row.timestamp} is stored, expected one of {event.timestamp} without "
            "content"
        )
    newest, size = max(row.timestamp for row in rows), sum(row.size for row in rows)
    if (newest, size) != (event.max_timestamp, event.size):
        return (
            f"{size} bytes up to time {newest} are stored, expected {event.size} up to "
            f"{event.max_timestamp}"
        )
    if (crc := checksum.crc([row.content for row in rows])) != event.crc:
        return (
            f"the content's CRC is {crc:08x}, expected {event.crc:08x}; a key, a value or a header has "
            "been altered"
        )
    return None


_INTERRUPT_EVERY_S: Final = 0.05


def verify(core: Core, *, on_progress: Progress | None = None) -> VerifyReport:
    """Replay the events and compare the result with the tables. Writes nothing, and does not block writers.
    `on_progress(done, total)` counts events."""
    return verified(core.store, core.clock, on_progress)


def verified(store: Store, clock: Clock, on_progress: Progress | None) -> VerifyReport:
    """Fold the whole history into a copy of the tables and compare both, and compare the records with
    their events."""

    def work(report: Progress) -> tuple[int, list[str]]:
        with (
            store.read() as connection,
            store.own_reader() as other,
            _integrity_beside(other) as of_the_file,
        ):
            check_known(connection)
            unlike = newest_schema.unlike(connection)
            problems = [what for _, what in unlike]
            if any(wanted.type == "table" for wanted, _ in unlike):
                return 0, [*of_the_file(), *problems]
            try:
                last = journal.last_position(connection)
                check = RecordCheck(connection, baseline.read(connection).position)
                events, differences = replay.verify(connection, apply, check.inspect, report)
                problems += [*differences, *check.finish()]
                # Replay cannot check the tables that follow, because they do not come from events.
                problems += group_rows.altered_sessions(connection)
                problems += baseline.problems(connection)
                problems += [*file_id.problems(connection), *newest_schema.problems(connection)]
                problems[:0] = of_the_file()
                report(last, last)
            except (TypeError, ValueError) as error:
                events, problems = 0, of_the_file()
                problems.append(f"the events cannot be compared with the stored rows ({error!r})")
        return events, problems

    start = clock.monotonic_ms()
    events, problems = report_progress(on_progress, work)
    elapsed_s = (clock.monotonic_ms() - start) / 1000
    return VerifyReport(not problems, tuple(problems), events, elapsed_s)


def rebuild(core: Core, *, on_progress: Progress | None = None) -> RebuildReport:
    """Drop every materialized table and rebuild it from the events, in one commit. `on_progress(done,
    total)` counts events; if it raises, nothing changes."""
    start = core.clock.monotonic_ms()
    events = report_progress(
        on_progress, lambda report: core.store.write(lambda unit: replay.rebuild(unit, report))
    )
    return RebuildReport(events, (core.clock.monotonic_ms() - start) / 1000)


@contextmanager
def _integrity_beside(connection: sqlite3.Connection) -> Iterator[Callable[[], list[str]]]:
    """Run SQLite's integrity check on a separate connection during the block. The yielded function waits
    for its problems; it raises sqlite3.Error if the file cannot be checked at all."""
    with ThreadPoolExecutor(1, "eosdb-integrity") as pool:
        with threads.needed("the check"):
            check = pool.submit(_problems, connection)
        try:
            yield check.result
        finally:
            # Repeat the interrupt, because SQLite ignores it if the statement has not begun.
            while not check.done():
                connection.interrupt()
                wait([check], _INTERRUPT_EVERY_S)


def _problems(connection: sqlite3.Connection) -> list[str]:
    texts = [text for (text,) in connection.execute("PRAGMA integrity_check(20)")]
    return [] if texts == ["ok"] else [f"file: {text}" for text in texts]
