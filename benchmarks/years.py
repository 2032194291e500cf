"""Cases about a file that is used for years: what a transaction leaves in it, and how big it gets."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import eosdb
from benchmarks.measure import Case, Round, Row, Settings, Target
from benchmarks.raw import VALUE
from eosdb import TopicPartition

_TP: Final = TopicPartition("t", 0)
KEPT_RECORDS: Final = 10_000
SERIES: Final = {
    "everything kept": -1,
    f"the last {KEPT_RECORDS:,} records kept": KEPT_RECORDS * len(VALUE),
}
"""`retention.bytes` of the topic."""


def cases(settings: Settings) -> list[Case]:
    return [_journal(settings), _file_size(settings)]


def _journal(settings: Settings) -> Case:
    transactions = settings.size(20_000, 500)
    all_of_it = "what stays in the file, without records"
    events = "pages of the journal and its indexes"

    @contextmanager
    def opened(_: Settings) -> Iterator[Round]:
        def one_round(folder: Path) -> Mapping[str, float]:
            empty, full = folder / "empty.db", folder / "full.db"
            bytes_before, _ = _without_records(empty, 0)
            bytes_after, in_events = _without_records(full, transactions)
            return {
                all_of_it: (bytes_after - bytes_before) / transactions,
                events: in_events / transactions,
            }

        yield one_round

    return Case(
        name="journal",
        title="What a transaction of one record leaves when the record has been deleted",
        unit="bytes",
        rows=[Row(all_of_it), Row(events)],
        targets=(Target(all_of_it, None, 500, at_least=False),),
        open=opened,
        rounds_max=1,
    )


def _without_records(path: Path, transactions: int) -> tuple[int, int]:
    """The size of a file with so many transactions, whose records are all deleted, after VACUUM; and what
    of it is pages of the journal and its indexes."""
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("t")
        with db.producer(transactional_id="bench") as producer:
            producer.init_transactions()
            for _ in range(transactions):
                with producer.transaction():
                    producer.send("t", VALUE)
        db.broker.delete_records(_TP, -1)
        db.housekeeping()
    with closing(sqlite3.connect(path)) as file:
        file.execute("VACUUM")
        ((left,),) = file.execute("SELECT count(*) FROM records").fetchall()
        assert left == 0, f"{left} records were to be deleted"
        ((pages,),) = file.execute(
            "SELECT total(pgsize) FROM dbstat WHERE aggregate = TRUE AND name IN "
            "(SELECT name FROM sqlite_master WHERE tbl_name = 'journal')"
        ).fetchall()
    return path.stat().st_size, int(pages)


def counts(settings: Settings) -> list[int]:
    """After how many transactions the file is looked at."""
    return [10, 20] if settings.quick else [1_000, 3_000, 10_000, 30_000, 100_000]


def row_name(series: str, count: int) -> str:
    return f"{series}, {count:,} transactions"


def _file_size(settings: Settings) -> Case:
    @contextmanager
    def opened(settings: Settings) -> Iterator[Round]:
        def one_round(folder: Path) -> Mapping[str, float]:
            found: dict[str, float] = {}
            for number, (series, retention_bytes) in enumerate(SERIES.items()):
                sizes = _grown(folder / f"{number}.db", retention_bytes, counts(settings))
                found |= {row_name(series, count): size for count, size in sizes.items()}
            return found

        yield one_round

    return Case(
        name="file-size",
        title="Size of the file after small transactions: one record of 100 bytes each",
        unit="MB",
        rows=[Row(row_name(series, count)) for series in SERIES for count in counts(settings)],
        open=opened,
        rounds_max=1,
    )


def _grown(path: Path, retention_bytes: int, counts: list[int]) -> dict[int, float]:
    """The size in MB after each of so many transactions; housekeeping comes by itself, often."""
    found: dict[int, float] = {}
    config = eosdb.BrokerConfig(log_retention_check_interval_ms=1_000)
    with eosdb.connect(path, durability="off", config=config) as db:
        db.admin.create_topic("t", config={"retention.bytes": retention_bytes})
        with db.producer(transactional_id="a") as producer:
            producer.init_transactions()
            done = 0
            for count in counts:
                for _ in range(count - done):
                    with producer.transaction():
                        producer.send("t", VALUE)
                done = count
                db._store.checkpoint()
                found[count] = os.path.getsize(path) / 1e6
    return found
