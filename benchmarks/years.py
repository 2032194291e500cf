"""Cases about a file that is used for years: what stays of a transaction, how long, at what cost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

import eosdb
from benchmarks.measure import Case, Round, Row, Settings, Target
from benchmarks.raw import VALUE
from benchmarks.writing import FULL
from eosdb import BrokerConfig, ManualClock, TopicPartition
from eosdb.model.values import Durability

FOR_EVER: Final = "everything kept"
_TP: Final = TopicPartition("t", 0)
_TURN: Final = 50


def cases(settings: Settings) -> list[Case]:
    return [_journal(settings), _history(settings), _beside_trimming(settings)]


def keeping(ms: int, check_interval_ms: int) -> BrokerConfig:
    """Records and history are kept for so long, and housekeeping begins so often; -1: for ever."""
    return BrokerConfig(
        log_retention_ms=ms,
        history_retention_ms=ms,
        history_retention_bytes=-1,
        log_retention_check_interval_ms=check_interval_ms,
    )


# -- what a transaction leaves ---------------------------------------------------------------------


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
        targets=(Target(all_of_it, None, 550, at_least=False),),
        open=opened,
        rounds_max=1,
    )


def _without_records(path: Path, transactions: int) -> tuple[int, int]:
    """The size of a file with so many transactions, whose records are all deleted, after VACUUM; and what
    of it is pages of the journal and its indexes."""
    with _opened(path, keeping(-1, 300_000)) as (db, producer):
        for _ in range(transactions):
            _transaction(producer)
        db.broker.delete_records(_TP, -1)
        db.housekeeping()
    with closing(sqlite3.connect(path)) as file:
        file.execute("VACUUM")
        ((left,),) = file.execute("SELECT count(*) FROM records").fetchall()
        assert left == 0, f"{left} records were to be deleted"
        ((pages,),) = file.execute(
            "SELECT total(pgsize) FROM dbstat WHERE aggregate = TRUE AND name IN "
            "(SELECT name FROM sqlite_master WHERE tbl_name = 'eosdb_journal')"
        ).fetchall()
    return path.stat().st_size, int(pages)


@contextmanager
def _opened(
    path: Path,
    config: BrokerConfig,
    clock: ManualClock | None = None,
    durability: Durability = "off",
) -> Iterator[tuple[eosdb.Database, eosdb.Producer]]:
    with eosdb.connect(path, clock=clock, durability=durability, config=config) as db:
        if "t" not in db.admin.list_topics():
            db.admin.create_topic("t")
        with db.producer(transactional_id="bench") as producer:
            producer.init_transactions()
            yield db, producer


def _transaction(producer: eosdb.Producer) -> None:
    producer.begin_transaction()
    producer.send("t", VALUE)
    producer.commit_transaction()


# -- a file whose history ends ---------------------------------------------------------------------


def grown(settings: Settings) -> list[int]:
    """After how many transactions the file is looked at; the last is ten times what comes in the middle."""
    whole = settings.size(1_000_000 if settings.large else 200_000, 600)
    return [whole * tenth // 100 for tenth in (2, 5, 10, 20, 40, 60, 80, 100)]


def after(transactions: int) -> str:
    return f"after {transactions:,} transactions"


def kept_for_ever(transactions: int) -> str:
    return f"{FOR_EVER}, {after(transactions)}"


def _history(settings: Settings) -> Case:
    looks, kept = grown(settings), settings.size(10_000, 100)
    few = [look for look in looks if look <= looks[-1] // 10]
    actions = [f"{action}, {after(look)}" for look in (few[-1], looks[-1]) for action in _ACTIONS]

    @contextmanager
    def opened(_: Settings) -> Iterator[Round]:
        def one_round(folder: Path) -> Mapping[str, float]:
            ending, whole = folder / "ending.db", folder / "whole.db"
            found = {}
            # A transaction a millisecond.
            for look, size in _growing(ending, keeping(kept, kept // 10), looks):
                found[after(look)] = size / 1e6
                if look in (few[-1], looks[-1]):
                    for action in _ACTIONS:
                        found[f"{action}, {after(look)}"] = _seconds(ending, action)
            for look, size in _growing(whole, keeping(-1, kept // 10), few):
                found[kept_for_ever(look)] = size / 1e6
            return found

        yield one_round

    last, before = after(looks[-1]), after(few[-1])
    return Case(
        name="history",
        title=f"A file whose records and history are kept for the last {kept:,} transactions of one record",
        unit="MB",
        rows=[
            *(Row(after(look)) for look in looks),
            *(Row(kept_for_ever(look)) for look in few),
            *(Row(action, unit="s") for action in actions),
        ],
        targets=(
            Target(last, before, 1.1, at_least=False),
            *(
                Target(f"{action}, {last}", f"{action}, {before}", 1.25, at_least=False)
                for action in _ACTIONS
            ),
        ),
        open=opened,
        rounds_max=1,
    )


_ACTIONS: Final = ("verify", "rebuild")


def _growing(path: Path, config: BrokerConfig, looks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The size of the closed file after so many transactions; housekeeping happens by itself."""
    clock, done = ManualClock(start_ms=1_700_000_000_000), 0
    for look in looks:
        with _opened(path, config, clock) as (_, producer):
            for _ in range(look - done):
                clock.advance(1)
                _transaction(producer)
        done = look
        yield look, path.stat().st_size


def _seconds(path: Path, action: str) -> float:
    with eosdb.connect(path, config=keeping(-1, 300_000)) as db:
        start = perf_counter()
        if action == "verify":
            report = db.verify()
            assert report.ok, report.problems
        else:
            db.rebuild()
        return perf_counter() - start


# -- who commits meanwhile -------------------------------------------------------------------------


def _beside_trimming(settings: Settings) -> Case:
    transactions, kept = settings.size(5_000, 200), settings.size(200, 20)
    percents = {"median": 500, "p99": 990, "p99.9": 999}
    configs = {
        "while history ends and pages are freed": keeping(kept, kept // 2),
        "without": keeping(-1, kept // 2),
    }
    names = list(configs)

    @contextmanager
    def opened(_: Settings) -> Iterator[Round]:
        def one_round(folder: Path) -> Mapping[str, float]:
            found = _latencies(folder, configs, transactions)
            return {
                f"{percent}, {name}": sorted(values)[len(values) * place // 1_000]
                for name, values in found.items()
                for percent, place in percents.items()
            }

        yield one_round

    return Case(
        name="trimming",
        title="Durable transaction of one record, while history ends and without",
        unit="ms",
        rows=[Row(f"{percent}, {name}", FULL) for percent in percents for name in names],
        targets=(
            Target(f"p99.9, {names[0]}", f"p99.9, {names[1]}", 2.0, at_least=False),
            *(
                Target(f"{percent}, {names[0]}", f"{percent}, {names[1]}", None)
                for percent in ("median", "p99")
            ),
        ),
        open=opened,
    )


def _latencies(
    folder: Path, configs: Mapping[str, BrokerConfig], transactions: int
) -> dict[str, list[float]]:
    """How long each transaction took in ms: in two files that take turns, in one of which housekeeping has
    something to trim and to free all the time."""
    found: dict[str, list[float]] = {name: [] for name in configs}
    with ExitStack() as stack:
        producers = {
            name: stack.enter_context(_opened(folder / f"{number}.db", config, durability="full"))[
                1
            ]
            for number, (name, config) in enumerate(configs.items())
        }
        for _ in range(0, transactions, _TURN):
            for name, producer in producers.items():
                for _ in range(_TURN):
                    start = perf_counter()
                    _transaction(producer)
                    found[name].append((perf_counter() - start) * 1_000)
    trimmed, whole = (_events(folder / f"{number}.db") for number in range(2))
    assert trimmed < whole / 2, f"{trimmed} of {whole} events are left: next to nothing was trimmed"
    return found


def _events(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        ((count,),) = file.execute("SELECT count(*) FROM journal").fetchall()
    return int(count)
