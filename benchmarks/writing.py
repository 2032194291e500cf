"""Cases about writing: sends of all sizes, processing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import by_hand, eos, peers, raw
from benchmarks.measure import (
    Case,
    Contender,
    NotMeasured,
    Round,
    Row,
    Settings,
    Target,
    fileless,
    plainly,
    side_by_side,
)

FULL = "yes"
SWEEP = (1, 10, 100, 1_000, 10_000)
SWEPT: dict[str, Callable[..., float]] = {
    "eosdb, transactional": eos.transactional,
    "eosdb, idempotent": eos.idempotent,
    "raw sqlite3, executemany": raw.batches,
    "raw sqlite3, multi-row VALUES": raw.multi_row,
}
TRANSACTIONAL, IDEMPOTENT, NAIVE, LIMIT = SWEPT
MANY: dict[str, Callable[..., float]] = {
    "eosdb, transactional send_many": eos.transactional_many,
    "eosdb, idempotent send_many": eos.idempotent_many,
}
TRANSACTIONAL_MANY, IDEMPOTENT_MANY = MANY


def peer_row(peer: str, what: str = "") -> Row:
    """The row of a peer, or of what it does when it has several."""
    name = f"{peer}, {what}" if what else peer
    return Row(name, peers.DURABLE[peer], absent=peers.absent(peer) or "not measured")


def if_there(peer: str, contender: Contender) -> Contender | None:
    """The contender, if its peer is installed. What goes wrong with a peer does not end the case."""

    def guarded(folder: Path) -> float:
        try:
            return contender(folder)
        except Exception as error:
            print(f"{peer}: {type(error).__name__}: {error}", file=sys.stderr)
            raise NotMeasured(peer) from error

    return None if peers.absent(peer) else guarded


def cases(settings: Settings) -> list[Case]:
    return [
        _send(settings),
        _process(settings),
        _two_partitions(settings),
        _sweep(settings),
    ]


def _send(settings: Settings) -> Case:
    records, singles = settings.size(100_000, 2_000), settings.size(5_000, 50)
    contenders: dict[str, Contender | None] = {
        name: partial(run, records=records, size=1_000) for name, run in {**SWEPT, **MANY}.items()
    }
    contenders[peers.EVENTSOURCING] = if_there(
        peers.EVENTSOURCING, lambda f: peers.eventsourcing_send(f, records, 1_000)
    )
    contenders[peers.QUEUE] = if_there(peers.QUEUE, lambda f: peers.queue_put(f, singles))
    rows = [Row(name, FULL) for name in (*SWEPT, *MANY)]
    rows += [peer_row(peers.EVENTSOURCING), peer_row(peers.QUEUE)]
    for what, run in (("", peers.mock_transactions), ("idempotent", peers.mock_idempotent)):
        rows.append(peer_row(peers.MOCK, what))
        mock = fileless(partial(run, records, 1_000))
        contenders[rows[-1].name] = if_there(peers.MOCK, mock)
    return Case(
        name="send",
        title="Send, 1000 records in each transaction or flush",
        unit="records/s",
        rows=rows,
        targets=(
            Target(TRANSACTIONAL, NAIVE, 1.0),
            Target(TRANSACTIONAL, IDEMPOTENT, 0.97),
            Target(TRANSACTIONAL_MANY, NAIVE, 1.0),
            Target(TRANSACTIONAL_MANY, IDEMPOTENT_MANY, 0.97),
            Target(TRANSACTIONAL, peers.EVENTSOURCING, 1.0),
            Target(TRANSACTIONAL, peers.QUEUE, 1.0),
        ),
        open=plainly(contenders),
    )


def _process(settings: Settings) -> Case:
    records, size = settings.size(20_000, 500), 100
    process, plain = "eosdb, consume, process, produce", "eosdb, transactional send"
    contenders: dict[str, Contender | None] = {
        process: lambda f: eos.process(f, records, size),
        plain: lambda f: eos.transactional(f, records, size),
    }
    run = partial(peers.mock_process, settings.size(5_000, 200), size)
    contenders[peers.MOCK] = if_there(peers.MOCK, fileless(run))
    rows = [Row(process, FULL), Row(plain, FULL), peer_row(peers.MOCK)]
    return Case(
        name="process",
        title="Consume, process, produce with offsets in the transaction, 100 records each",
        unit="records/s",
        rows=rows,
        targets=(Target(process, plain, 0.6),),
        open=plainly(contenders),
    )


def _two_partitions(settings: Settings) -> Case:
    transactions = settings.size(1_000, 50)
    ours, hand, limit = (
        "eosdb, 1 record to each of 2 partitions",
        "the same rows by hand",
        "raw sqlite3, 1 row",
    )
    names = {by_hand.OURS: ours, by_hand.HAND: hand, by_hand.ONE_ROW: limit}
    events = f"{peers.EVENTSOURCING}, 2 events"

    def two_events(folder: Path) -> float:
        return peers.eventsourcing_send(folder, 2 * transactions, 2) / 2

    mock = partial(peers.mock_two_partitions, settings.size(200, 5))
    contenders = {
        events: if_there(peers.EVENTSOURCING, two_events),
        peers.MOCK: if_there(peers.MOCK, fileless(mock)),
    }
    rows = [Row(name, FULL) for name in names.values()]
    rows += [Row(_cpu(name), unit="ms of CPU") for name in names.values()]
    rows += [peer_row(peers.EVENTSOURCING, "2 events"), peer_row(peers.MOCK)]

    @contextmanager
    def opened(settings: Settings) -> Iterator[Round]:
        with TemporaryDirectory(dir=settings.folder, prefix="bench-") as kept:
            made = by_hand.template(Path(kept))

            def one_round(folder: Path) -> Mapping[str, float]:
                found = dict(side_by_side(contenders)(folder))
                for name, cost in by_hand.one_round(made, folder, transactions).items():
                    found[names[name]], found[_cpu(names[name])] = 1000 / cost.wall, cost.cpu
                return found

            yield one_round

    return Case(
        name="two-partitions",
        title="The smallest durable transactions",
        unit="commits/s",
        rows=rows,
        targets=(
            Target(_cpu(ours), _cpu(hand), 2.0, at_least=False),
            Target(ours, hand, None),
            Target(ours, limit, None),
        ),
        open=opened,
    )


def _cpu(name: str) -> str:
    return f"{name}, CPU"


def _sweep(settings: Settings) -> Case:
    contenders: dict[str, Contender | None] = {}
    sizes = SWEEP[: settings.size(len(SWEEP), 3)]
    for size in sizes:
        transactions = settings.size(1_000 if size < 100 else 200, 5)
        records = min(size * transactions, max(50_000, 2 * size))
        for name, run in SWEPT.items():
            contenders[swept_name(name, size)] = partial(
                run, records=records // size * size, size=size
            )
    return Case(
        name="batch-sizes",
        title="Throughput by records in each transaction or flush",
        unit="records/s",
        rows=[Row(name, FULL) for name in contenders],
        open=plainly(contenders),
    )


def swept_name(name: str, size: int) -> str:
    return f"{name}, {size} each"
