"""Cases about a file that has grown: what was quick when it was empty has to stay quick.

Calls in the large and in the small file take turns within the round, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from time import process_time
from typing import Final

import eosdb
from benchmarks import eos, large
from benchmarks.measure import Case, Round, Row, Settings, Target, latencies_ms
from benchmarks.raw import VALUE
from benchmarks.writing import FULL
from eosdb import TopicPartition

EMPTY = "empty file"
_TP = TopicPartition("t", 0)
_RANDOM = Random(1)

_FLAT: Final = 1.5


def cases(settings: Settings) -> list[Case]:
    return [_commit(settings), _connect(settings), _lookups(settings), _per_record(settings)]


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


SENT: Final = "send_many, 10,000 in each transaction"
READ: Final = "poll_columns"


def grown(settings: Settings) -> list[int]:
    """How many records the file has when one looks what those since the last look have cost."""
    if settings.quick:
        return [10_000, 30_000]
    return [10_000, 100_000, 1_000_000, 10_000_000, *([50_000_000] if settings.large else [])]


def up_to(work: str, size: int) -> str:
    return f"{work}, up to {with_records(size)}"


def _per_record(settings: Settings) -> Case:
    """What is measured is all that was sent or read since the look before, so nothing is left out."""
    sizes = grown(settings)

    @contextmanager
    def opened(settings: Settings) -> Iterator[Round]:
        def one_round(folder: Path) -> Mapping[str, float]:
            found: dict[str, float] = {}
            with eos.producing(folder, transactional_id="grower") as (db, producer):
                batch = [VALUE] * 10_000

                def send() -> int:
                    with producer.transaction():
                        producer.send_many("t", batch)
                    return len(batch)

                with db.consumer(auto_offset_reset="earliest") as consumer:
                    consumer.assign([_TP])
                    works = {SENT: send, READ: lambda: len(consumer.poll_columns())}
                    send()  # The first of all prepares statements, and the file's first pages.
                    for work, call in works.items():
                        found.update(_growing(work, call, sizes))
            return found

        yield one_round

    return Case(
        name="per-record",
        title="CPU for each record, by the records in the file",
        unit="µs",
        rows=[Row(up_to(work, size), FULL) for work in (SENT, READ) for size in sizes],
        targets=[
            Target(up_to(work, sizes[-1]), up_to(work, sizes[0]), _FLAT, at_least=False)
            for work in (SENT, READ)
        ],
        open=opened,
        rounds_max=1,
    )


def _growing(
    work: str, call: Callable[[], int], sizes: Sequence[int]
) -> Iterator[tuple[str, float]]:
    """The CPU of a record since the last look, in µs, each time that so many were sent or read."""
    done = before = 0
    start = process_time()
    for size in sizes:
        while done < size:
            done += call()
        now = process_time()
        yield up_to(work, size), (now - start) / (done - before) * 1e6
        start, before = now, done


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
