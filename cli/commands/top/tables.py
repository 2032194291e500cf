"""The tables of `eosdb top`: their columns, and their rows for a reading of the file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eosdb.admin.worries import Worry
from eosdb.model.overview import Overview, Rates
from eosdb.model.reports import OpenTransaction
from eosdb.model.values import TopicPartition
from eosdb.model.words import duration, size

Key = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The figures of a file, and their rates since an earlier reading."""

    overview: Overview
    worries: Sequence[Worry] = ()
    rates: Rates | None = None
    """None in the first reading, and after the file was replaced by another."""
    waiting: dict[TopicPartition, int] = field(default_factory=dict)
    """For each partition whose last stable offset a transaction holds back: the committed records behind
    it."""


class ScreenRow(NamedTuple):
    """One row: the text of each cell, and its sort key. The last cell is the name, of any length."""

    cells: tuple[tuple[str, Key], ...]
    style: str = ""


class Column(NamedTuple):
    title: str
    room: int = 0
    """Width in characters; 0 is the rest of the line."""
    is_text: bool = False
    at_least: int = 0
    """The least width of the terminal at which the column is shown."""


class ScreenTable(NamedTuple):
    """A table, whose last column has the names."""

    columns: tuple[Column, ...]
    rows: Callable[[Reading], list[ScreenRow]]


def arranged(
    rows: Iterable[ScreenRow], column: int, *, backwards: bool, containing: str
) -> list[ScreenRow]:
    """Filter the rows by name, and sort them: figures descending, text ascending, or `backwards`."""
    chosen = [row for row in rows if containing.lower() in row.cells[-1][0].lower()]
    chosen.sort(key=lambda row: row.cells[-1][1])
    by_name = bool(chosen) and isinstance(chosen[0].cells[column][1], str)
    chosen.sort(key=lambda row: row.cells[column][1], reverse=by_name == backwards)
    return chosen


def _groups(reading: Reading) -> list[ScreenRow]:
    rows = []
    growth = reading.rates.offsets if reading.rates else {}
    for group in reading.overview.groups:
        behind = group.behind
        rate = None if reading.rates is None else reading.rates.groups.get(group.group_id)
        furthest = max(group.positions, key=lambda position: position.behind, default=None)
        grows = sum(growth.get(TopicPartition(p.topic, p.partition), 0) for p in group.positions)
        at = f"{furthest.topic}-{furthest.partition}" if furthest and behind else ""
        cells = (
            (("" if behind.is_exact else "≤") + count(behind), behind),
            (per_second(rate), rate or 0),
            _time_left(behind, None if rate is None else rate - grows),
            (group.state, group.state),
            (str(group.members), group.members),
            (at, "" if furthest is None else furthest.topic),
            (group.group_id + "".join(f" ({due})" for due in group.due), group.group_id),
        )
        rows.append(ScreenRow(cells, "yellow" if behind and rate == 0 else ""))
    return rows


def _time_left(behind: int, gain: float | None) -> tuple[str, float]:
    """The time until a group has caught up, if its lag shrinks by `gain` records a second."""
    if not behind:
        return "", 0
    if gain is None or gain <= 0:
        return ("" if gain is None else "never"), float("inf")
    return duration(behind / gain * 1000, short=True), behind / gain


def _transactions(reading: Reading) -> list[ScreenRow]:
    """One row for each transaction, across all its partitions."""
    now = reading.overview.now_ms
    holders = set(map(id, reading.overview.holders()))
    together: defaultdict[tuple[int, int], list[OpenTransaction]] = defaultdict(list)
    for transaction in reading.overview.transactions:
        together[transaction.producer_id, transaction.producer_epoch].append(transaction)
    rows = []
    for (producer_id, epoch), parts in together.items():
        began = min(transaction.start_time_ms for transaction in parts)
        deadline = min(transaction.deadline_ms for transaction in parts)
        held = [transaction for transaction in parts if id(transaction) in holders]
        waiting = sum(reading.waiting.get(transaction.topic_partition, 0) for transaction in held)
        first = (held or parts)[0]
        hanging = next((it.hanging for it in parts if it.hanging is not None), None)
        left = duration(deadline - now, short=True) if deadline > now else "overdue"
        name = first.transactional_id or f"(unknown, producer id {producer_id})"
        cells = (
            (duration(now - began, short=True), now - began),
            ("never", float("inf")) if deadline < 0 else (left, deadline - now),
            ("hangs" if hanging else first.state or "", first.state or ""),
            (f"{len(held)}/{len(parts)}", len(held)),
            (count(waiting) if held else "", waiting),
            (f"{first.topic}-{first.partition}@{first.start_offset}", first.topic),
            (f"{producer_id}:{epoch}", producer_id),
            (name + (f" ({hanging.value})" if hanging else ""), name),
        )
        rows.append(ScreenRow(cells, "bold red" if hanging else "yellow" if waiting else ""))
    return rows


@dataclass(slots=True)
class _Sum:
    records: int = 0
    size: int = 0
    partitions: int = 0
    newest: int = -1
    rate: float = 0


def _topics(reading: Reading) -> list[ScreenRow]:
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    rates = reading.rates.offsets if reading.rates else {}
    for partition in reading.overview.partitions:
        total = sums[partition.topic]
        total.records += partition.offsets.log_end_offset - partition.offsets.log_start_offset
        total.size += partition.size_bytes
        total.partitions += 1
        total.newest = max(total.newest, partition.max_timestamp)
        total.rate += rates.get(partition.topic_partition, 0)
    now = reading.overview.now_ms
    return [
        ScreenRow((
            (per_second(total.rate if reading.rates else None), total.rate),
            (count(total.records), total.records),
            (size(total.size), total.size),
            (str(total.partitions), total.partitions),
            ("" if total.newest < 0 else duration(now - total.newest, short=True), total.newest),
            (topic, topic),
        ))
        for topic, total in sums.items()
    ]  # fmt: skip


def _dead_letters(reading: Reading) -> list[ScreenRow]:
    now = reading.overview.now_ms
    rows = []
    for it in reading.overview.dead_letters:
        newest = (duration(now - it.newest_timestamp, short=True), it.newest_timestamp)
        cells = ((count(it.waiting), it.waiting), newest, (it.topic, it.topic))
        rows.append(ScreenRow(cells, "yellow" if it.waiting else ""))
    return rows


WIDE: Final = 100
TABLES: Final[Sequence[ScreenTable]] = (
    ScreenTable(
        (
            Column("BEHIND", 9), Column("RATE/s", 8), Column("ETA", 7), Column("STATE", 11, True),
            Column("MEMB", 4), Column("FURTHEST", 18, True, WIDE), Column("GROUP"),
        ),
        _groups,
    ),
    ScreenTable(
        (
            Column("AGE", 7), Column("LEFT", 7), Column("STATE", 9, True, WIDE), Column("LSO", 5),
            Column("WAITING", 8), Column("FROM", 18, True), Column("PRODUCER", 8, False, WIDE + 20),
            Column("TRANSACTION"),
        ),
        _transactions,
    ),
    ScreenTable(
        (
            Column("RATE/s", 9), Column("OFFSETS", 9), Column("SIZE", 8), Column("PARTS", 5),
            Column("NEWEST", 7), Column("TOPIC"),
        ),
        _topics,
    ),
    ScreenTable((Column("WAITING", 9), Column("NEWEST", 8), Column("DEAD LETTERS")), _dead_letters),
)  # fmt: skip
"""Groups, transactions, topics, dead letters."""


def visible(table: ScreenTable, width: int) -> list[int]:
    """Return the numbers of the columns to show at this width; 0 means any width."""
    return [i for i, column in enumerate(table.columns) if not 0 < width < column.at_least]


def count(number: float) -> str:
    """A number such as `1,234`, or `12.3M` if it has more than eight characters."""
    for unit, name in ((10**12, "T"), (10**9, "G"), (10**6, "M")):
        if abs(number) >= unit:
            return f"{number / unit:.1f}{name}"
    return f"{number:,.0f}"


def per_second(rate: float | None) -> str:
    if rate is None:
        return "–"
    return f"{rate:.1f}" if 0 < rate < 10 else count(rate)
