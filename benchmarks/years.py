"""Cases about a file that is used for years: what a transaction leaves in it for ever."""

from __future__ import annotations

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


def cases(settings: Settings) -> list[Case]:
    return [_journal(settings)]


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
