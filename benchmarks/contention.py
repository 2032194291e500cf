"""Cases about many writers of one file: threads, which share commits, and processes, which take turns."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import eosdb
from benchmarks import child, eos, peers, raw
from benchmarks.measure import Case, Contender, Round, Row, Settings, Target, plainly
from benchmarks.writing import FULL, if_there, peer_row

COUNTS = (1, 2, 4, 8)
EOSDB, RAW = "eosdb", "raw sqlite3"
TRANSACTIONS = "eosdb, transactions"


def cases(settings: Settings) -> list[Case]:
    return [_threads(settings), _processes(settings)]


def _threads(settings: Settings) -> Case:
    records = settings.size(4_000, 80)
    contenders: dict[str, Contender | None] = {}
    by_threads: dict[str, Callable[..., float]] = {
        EOSDB: eos.threads,
        RAW: raw.singles,
        TRANSACTIONS: partial(eos.threads, in_transactions=True),
    }
    for who, run in by_threads.items():
        for count in COUNTS:
            contenders[_named(who, count, "thread")] = partial(run, records=records, count=count)
    rows = [Row(name, FULL) for name in contenders]
    for count in (COUNTS[0], COUNTS[-1]):
        row = peer_row(peers.QUEUE, _several(count, "thread"))
        rows.append(row)
        contenders[row.name] = if_there(
            peers.QUEUE, partial(peers.queue_put, records=records, threads=count)
        )
    one, most, limit = rows[0].name, rows[len(COUNTS) - 1].name, _named(RAW, 1, "thread")
    return Case(
        name="threads",
        title="Durable idempotent sends, or transactions, of one record, each thread its own producer",
        unit="records/s",
        rows=rows,
        targets=(Target(most, limit, 1.2), Target(most, one, None)),
        open=plainly(contenders),
    )


def _processes(settings: Settings) -> Case:
    commits = settings.size(4_000, 40)
    counts = COUNTS[: settings.size(len(COUNTS), 2)]
    most = counts[-1]
    median, longest = (
        {who: f"{_named(who, most, 'process')}, {what} wait" for who in (EOSDB, RAW)}
        for what in ("median", "longest")
    )

    def one_round(folder: Path) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for who in (EOSDB, RAW):
            for count in counts:
                place = folder / f"{count} {who}"
                place.mkdir()
                turns = taking_turns(place, who, count, commits)
                found[_named(who, count, "process")] = turns.rate
                if count == most:
                    found[median[who]] = statistics.median(turns.waits_ms)
                    found[longest[who]] = max(turns.waits_ms)
        return found

    @contextmanager
    def opened(_: Settings) -> Iterator[Round]:
        yield one_round

    rates = [_named(who, count, "process") for who in (EOSDB, RAW) for count in counts]
    waits = [row[who] for who in (EOSDB, RAW) for row in (median, longest)]
    return Case(
        name="processes",
        title="Durable idempotent sends of one record by processes that all write at once",
        unit="records/s",
        rows=[*(Row(name, FULL) for name in rates), *(Row(name, FULL, "ms") for name in waits)],
        targets=(
            Target(longest[EOSDB], median[EOSDB], 10, at_least=False),
            Target(longest[RAW], median[RAW], None),
            Target(rates[len(counts) - 1], rates[0], None),
            Target(rates[len(counts) - 1], rates[-1], None),
        ),
        open=opened,
    )


@dataclass(frozen=True, slots=True)
class Turns:
    """What writers found that took turns: commits a second of all, and how long each commit took."""

    rate: float
    waits_ms: list[float]


def taking_turns(folder: Path, who: str, count: int, commits: int) -> Turns:
    """Commits of one record by so many processes, which begin together when all have written once."""
    path = folder / "file.db"
    if who == EOSDB:
        with eosdb.connect(path) as db:
            db.admin.create_topic("t", count)
    else:
        raw.open_file(path).close()
    with ExitStack() as all_of_them:
        writers = [
            all_of_them.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.child", "commit", str(path), who, str(number),
                     str(count), str(commits // count)],
                    cwd=child.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL, text=True,
                )
            )
            for number in range(count)
        ]  # fmt: skip
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        found = [json.loads(writer.communicate()[0]) for writer in writers]
    seconds = max(each["end"] for each in found) - min(each["start"] for each in found)
    waits_ms = [wait * 1000 for each in found for wait in each["waits"]]
    return Turns(len(waits_ms) / seconds, waits_ms)


def _named(who: str, count: int, what: str) -> str:
    return f"{who}, {_several(count, what)}"


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 'es' if what.endswith('s') else 's'}"
