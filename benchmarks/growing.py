"""Cases about a file that has grown: what was quick when it was empty has to stay quick.

Calls in the large and in the small file take turns within the round, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Final

import eosdb
from benchmarks import large
from benchmarks.measure import Case, Round, Row, Settings, Target, latencies_ms
from benchmarks.raw import VALUE
from benchmarks.writing import FULL
from eosdb import TopicPartition

EMPTY = "empty file"
_TP = TopicPartition("t", 0)
_RANDOM = Random(1)

_FLAT: Final = 1.5


def cases(settings: Settings) -> list[Case]:
    return [_commit(settings), _connect(settings), _lookups(settings)]


def sizes(settings: Settings) -> list[int]:
    """Records in the files between the empty and the large one."""
    steps = (10_000, 100_000, 1_000_000) if not settings.quick else (500, 1_000)
    return [size for size in steps if size < settings.large_records]


def with_records(count: int) -> str:
    return f"{count:,} records"


def _commit(settings: Settings) -> Case:
    pairs = settings.size(3_000 // settings.rounds, 20)
    names = [EMPTY, *map(with_records, [*sizes(settings), settings.large_records])]

    @contextmanager
    def opened(settings: Settings) -> Iterator[Round]:
        paths = [large.of(settings, size) for size in sizes(settings)] + [large.large(settings)]

        def one_round(folder: Path) -> Mapping[str, float]:
            with ExitStack() as stack:
                calls = {}
                for name, path in zip(names, [folder / "empty.db", *paths], strict=True):
                    db = stack.enter_context(eosdb.connect(path))
                    if name == EMPTY:
                        db.admin.create_topic("t", large.PARTITIONS)
                    producer = stack.enter_context(db.producer(transactional_id="commits"))
                    producer.init_transactions()
                    calls[name] = _commits_one(producer)
                return latencies_ms(calls, pairs)

        yield one_round

    return Case(
        name="commit-latency",
        title="Durable transaction of one record, by what is in the file (10 records a transaction)",
        unit="ms",
        rows=[Row(name, FULL) for name in names],
        targets=(Target(names[-1], EMPTY, 1.2, at_least=False),),
        open=opened,
    )


def _commits_one(producer: eosdb.Producer) -> Callable[[], None]:
    def commit() -> None:
        with producer.transaction():
            producer.send("t", VALUE, partition=0)

    return commit


def _connect(settings: Settings) -> Case:
    names = (EMPTY, with_records(settings.large_records))

    @contextmanager
    def opened(settings: Settings) -> Iterator[Round]:
        path = large.large(settings)

        def one_round(folder: Path) -> Mapping[str, float]:
            empty = folder / "empty.db"
            eosdb.connect(empty).close()
            calls = {
                names[0]: lambda: eosdb.connect(empty).close(),
                names[1]: lambda: eosdb.connect(path).close(),
            }
            return latencies_ms(calls, settings.size(20, 3))

        yield one_round

    return Case(
        name="connect",
        title="Opening a file and closing it",
        unit="ms",
        rows=[Row(name) for name in names],
        targets=(Target(names[1], names[0], 2.0, at_least=False),),
        open=opened,
    )


def _lookups(settings: Settings) -> Case:
    # Neither fits into SQLite's page cache, so what differs is the depth of the indexes.
    small, big = settings.size(1_000_000, 500), settings.large_records
    names = list(_calls)
    rows = [Row(f"{name}, {with_records(size)}") for name in names for size in (small, big)]
    targets = [
        Target(
            f"{name}, {with_records(big)}", f"{name}, {with_records(small)}", _FLAT, at_least=False
        )
        for name in names
    ]

    @contextmanager
    def opened(settings: Settings) -> Iterator[Round]:
        files = {small: large.of(settings, small), big: large.large(settings)}
        with ExitStack() as stack:
            databases = {
                size: stack.enter_context(large.with_one_open(path)) for size, path in files.items()
            }

            def one_round(_: Path) -> Mapping[str, float]:
                found = {}
                for name, call in _calls.items():
                    calls = {
                        f"{name}, {with_records(size)}": _bound(call, db)
                        for size, db in databases.items()
                    }
                    found.update(latencies_ms(calls, settings.size(200, 5)))
                return found

            yield one_round

    return Case(
        name="lookups",
        title="Questions to a small and a large file of the same shape, one transaction open in each",
        unit="ms",
        rows=rows,
        targets=targets,
        open=opened,
    )


def _bound(call: Callable[[eosdb.Database], object], db: eosdb.Database) -> Callable[[], object]:
    return lambda: call(db)


def _fetch(db: eosdb.Database, share: float) -> object:
    end = db.broker.offsets(_TP).log_end_offset
    return db.broker.fetch(_TP, int(end * share), isolation_level="read_committed", max_records=100)


_calls: dict[str, Callable[[eosdb.Database], object]] = {
    "offsets": lambda db: db.broker.offsets(_TP),
    "list_offsets, last stable": lambda db: db.broker.list_offsets(
        _TP, eosdb.LATEST, isolation_level="read_committed"
    ),
    "fetch of 100 at the start": lambda db: _fetch(db, 0),
    "fetch of 100 anywhere": lambda db: _fetch(db, _RANDOM.uniform(0, 0.9)),
    "fetch of 100 near the end": lambda db: _fetch(db, 0.9),
    "find_hanging_transactions": lambda db: db.admin.find_hanging_transactions(),
    "list_transactions": lambda db: db.broker.list_transactions(),
}
