"""Cases about reading and keeping: polls, size on disk, ingest, replay, memory, a user's test."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

import eosdb
from benchmarks import child, eos, large, peers, raw
from benchmarks.measure import (
    Case,
    Contender,
    Round,
    Row,
    Settings,
    Target,
    fileless,
    side_by_side,
)
from benchmarks.writing import FULL, if_there, peer_row

KEY = "tailnum"
INGEST_SIZE = 5_000
"""What `eosdb ingest` commits at once unless told otherwise."""


def cases(settings: Settings) -> list[Case]:
    return [
        _poll(settings),
        _size(),
        _ingest(),
        _replay(settings),
        _scenario(settings),
        _memory(settings),
    ]


def _poll(settings: Settings) -> Case:
    default, many, limit = "eosdb, as it is", "eosdb, max_poll_records=10000", "raw sqlite3, SELECT"
    unchecked, unchecked_many = f"{default}, check_crcs=False", f"{many}, check_crcs=False"
    columns, columns_unchecked = "eosdb, poll_columns", "eosdb, poll_columns, check_crcs=False"
    few = settings.size(3_000, 50)
    ours = (default, unchecked, many, unchecked_many, columns, columns_unchecked)
    rows = [Row(name) for name in (*ours, limit)]
    rows += [peer_row(name) for name in (peers.EVENTSOURCING, peers.QUEUE, peers.MOCK)]

    @contextmanager
    def opened(settings: Settings) -> Iterator[Round]:
        path = large.of(settings, settings.size(300_000, 2_000), settings.size(1_000, 100), 1)
        contenders: dict[str, Contender | None] = {
            default: lambda _: eos.poll(path),
            unchecked: lambda _: eos.poll(path, check_crcs=False),
            many: lambda _: eos.poll(path, 10_000),
            unchecked_many: lambda _: eos.poll(path, 10_000, check_crcs=False),
            columns: lambda _: eos.poll_columns(path),
            columns_unchecked: lambda _: eos.poll_columns(path, check_crcs=False),
            limit: lambda _: raw.select(path),
            peers.EVENTSOURCING: if_there(
                peers.EVENTSOURCING,
                lambda f: peers.eventsourcing_read(f, settings.size(50_000, 1_000)),
            ),
            peers.QUEUE: if_there(peers.QUEUE, lambda f: peers.queue_get(f, few)),
        }
        run = partial(peers.mock_read, settings.size(10_000, 200))
        contenders[peers.MOCK] = if_there(peers.MOCK, fileless(run))
        yield side_by_side(contenders)

    return Case(
        name="poll",
        title="Reading committed records, 5 % of all records in aborted transactions",
        unit="records/s",
        rows=rows,
        targets=(
            Target(default, limit, 0.5),
            Target(many, limit, 0.5),
            Target(columns, limit, 0.6),
        ),
        open=opened,
    )


def _size() -> Case:
    ours, limit = "eosdb", "raw sqlite3"

    @contextmanager
    def opened(settings: Settings) -> Iterator[Round]:
        def one_round(folder: Path) -> Mapping[str, float]:
            eos.transactional(folder, settings.size(200_000, 5_000), 1_000)
            path, copy = folder / "eos.db", folder / "raw.db"
            raw.copy_of(path, copy)
            return {ours: path.stat().st_size / 1e6, limit: copy.stat().st_size / 1e6}

        yield one_round

    return Case(
        name="size",
        title="Size of the closed file, 1000 records in each transaction",
        unit="MB",
        rows=[Row(ours), Row(limit)],
        targets=(Target(ours, limit, 1.25, at_least=False),),
        open=opened,
        rounds_max=1,
    )


def _ingest() -> Case:
    ours, limit = "eosdb ingest", "a plain script, raw sqlite3"

    @contextmanager
    def opened(settings: Settings) -> Iterator[Round]:
        source = settings.cache / f"flights{'-few' * settings.quick}.ndjson"
        lines = _flights(source, settings)

        def by_eosdb(folder: Path) -> float:
            path = folder / "flights.db"
            with eosdb.connect(path) as db:
                db.admin.create_topic("flights", partitions=4)
            return timed(
                "-m", "eosdb.cli", "--db", str(path), "ingest", "flights", str(source),
                "--key", KEY, "--transaction-size", str(INGEST_SIZE),
            )  # fmt: skip

        def by_script(folder: Path) -> float:
            shape = raw.shape()
            told = json.dumps([shape.ddl, shape.insert, shape.expression])
            path = str(folder / "raw.db")
            return timed(
                "-m", "benchmarks.plain_ingest", told, path, str(source), KEY, str(INGEST_SIZE)
            )  # fmt: skip

        def timed(*command: str) -> float:
            """Lines a second, from the start of the program to its end."""
            start = perf_counter()
            subprocess.run(
                [sys.executable, *command], cwd=child.ROOT, check=True, capture_output=True
            )
            return lines / (perf_counter() - start)

        yield side_by_side({ours: by_eosdb, limit: by_script})

    return Case(
        name="ingest",
        title="Real flights, NDJSON to file, whole programs",
        unit="lines/s",
        rows=[Row(ours, FULL), Row(limit, FULL)],
        targets=(Target(ours, limit, 0.5),),
        open=opened,
    )


def _flights(path: Path, settings: Settings) -> int:
    """The demo's flights as NDJSON; made-up lines when it has to be quick. How many lines they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if settings.quick:
        path.write_text("".join(f'{{"{KEY}":"N{i % 9}","flight":{i}}}\n' for i in range(500)))
    elif not path.exists():
        from demo.original import real_flights

        real_flights().to_json(path, orient="records", lines=True)
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _replay(settings: Settings) -> Case:
    small, big = settings.size(1_000_000, 2_000), settings.size(4_000_000, 8_000)
    many, few = settings.size(1_000, 100), 10
    actions = ("verify", "rebuild")
    rates, peaks, targets = [], [], []
    for size in (many, few):
        limit = f"raw sqlite3, SELECT *, {size} a transaction"
        rates += [Row(f"{action}, {size} a transaction") for action in actions] + [Row(limit)]
        targets += [Target(f"{action}, {size} a transaction", limit, 0.25) for action in actions]
    for action in actions:
        ends = [f"{action}, peak memory with {records:,} records" for records in (small, big)]
        peaks += [Row(end, unit="MB") for end in ends]
        targets.append(Target(ends[1], ends[0], 1.25, at_least=False))

    @contextmanager
    def opened(settings: Settings) -> Iterator[Round]:
        files = {size: large.of(settings, small, size) for size in (many, few)}
        bigger = large.of(settings, big, many)
        rounds = 0

        def one_round(folder: Path) -> Mapping[str, float]:
            nonlocal rounds
            found = {}
            for size, path in files.items():
                limit = f"raw sqlite3, SELECT *, {size} a transaction"
                found[limit] = child.run("scan", path)["rate"]
                for action in actions:
                    seen = child.run(action, path)
                    found[f"{action}, {size} a transaction"] = seen["rate"]
                    if size == many:
                        found[f"{action}, peak memory with {small:,} records"] = seen["peak"]
            # Memory does not wander, so the larger file is replayed in the first round only.
            for action in actions if rounds == 0 else ():
                peak = child.run(action, bigger)["peak"]
                found[f"{action}, peak memory with {big:,} records"] = peak
            rounds += 1
            return found

        yield one_round

    return Case(
        name="replay",
        title=f"verify and rebuild, {small:,} records",
        unit="records/s",
        rows=[*rates, *peaks],
        targets=targets,
        open=opened,
    )


def _scenario(settings: Settings) -> Case:
    memory, disk, times = "in memory", "in a file", settings.size(20, 2)

    @contextmanager
    def opened(_: Settings) -> Iterator[Round]:
        eos.scenario(":memory:")
        yield side_by_side(
            {
                memory: lambda _: eos.scenario_ms(":memory:", times),
                disk: lambda f: eos.scenario_ms(f, times),
            }
        )

    return Case(
        name="scenario",
        title="A user's whole test: new file, two producers, fencing, commit, abort, reading",
        unit="ms",
        rows=[Row(memory, "no"), Row(disk, FULL)],
        targets=[Target(name, None, 10, at_least=False) for name in (memory, disk)],
        open=opened,
    )


def _memory(settings: Settings) -> Case:
    records = settings.size(10_000_000, 5_000)
    early, end = "peak memory after a tenth", "peak memory at the end"

    @contextmanager
    def opened(_: Settings) -> Iterator[Round]:
        def one_round(folder: Path) -> Mapping[str, float]:
            found = child.run("send", folder / "memory.db", records, 1_000)
            shutil.rmtree(folder)
            folder.mkdir()
            return {early: found["early"], end: found["peak"], "rate": found["rate"]}

        yield one_round

    return Case(
        name="memory",
        title=f"Memory of a process that sends {records:,} records, 1000 in each transaction",
        unit="MB",
        rows=[Row(early, FULL), Row(end, FULL), Row("rate", FULL, unit="records/s")],
        targets=(Target(end, None, 200, at_least=False), Target(end, early, 1.25, at_least=False)),
        open=opened,
        rounds_max=1,
    )
