"""Draws the pictures of docs/how-it-works.md from what eosdb does: `python -m scripts.make_pictures`.

Each picture runs its story on a file, and shows what the file and the calls then say; a test compares the
committed pictures with what this program draws.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from scripts.lane_picture import Cell, Lane, Picture

IMAGES: Final = Path(__file__).parents[1] / "docs/images"
_COMMITTED, _ABORTED, _OPEN = ("committed", "committed"), ("aborted", "aborted"), ("open", "open")


def life_of_a_transaction(folder: Path) -> Picture:
    """The calls of one transaction, and what each leaves where."""
    with eosdb.connect(folder / "life.db") as db:
        for topic in ("orders", "invoices"):
            db.admin.create_topic(topic)
        till = db.producer(transactional_id="till")
        position = {TopicPartition("orders", 0): OffsetAndMetadata(1)}
        steps: dict[str, Callable[[], object]] = {
            "init_transactions": till.init_transactions,
            "send to orders": lambda: _send(till, "orders"),
            "to invoices": lambda: _send(till, "invoices"),
            "send_offsets…": lambda: till.send_offsets_to_transaction(position, "billing"),
            "commit_transaction": till.commit_transaction,
        }
        columns = []
        before = _event(db)
        for number, call in enumerate(steps.values()):
            call()
            columns.append(_left_by_events_after(before, db))
            before = _event(db)
            if number == 0:
                till.begin_transaction()
    names = ("journal", "coordinator", "orders-0", "invoices-0", "group billing", "a reader sees")
    return Picture(
        "Life of a transaction: what each call leaves in the journal, at the coordinator, in two "
        "partitions and a group, and what a reader sees",
        [*steps],
        [
            Lane(name, [*cells])
            for name, cells in zip(names, zip(*columns, strict=True), strict=True)
        ],
        [_OPEN, _COMMITTED],
    )


def _left_by_events_after(before: int, db: eosdb.Database) -> list[list[Cell]]:
    """The cells of each lane for one call."""
    now = _event(db)
    states = db.query(
        "SELECT to_state FROM transaction_history WHERE position > ? AND to_state IS NOT from_state "
        "ORDER BY position", [before],
    ).all()  # fmt: skip
    appended: dict[str, list[Cell]] = {"orders": [], "invoices": []}
    for topic, kind in db.query(
        "SELECT topic, kind FROM journal WHERE position > ? AND kind IN ('BatchAppended', 'MarkerWritten') "
        "ORDER BY position", [before],
    ):  # fmt: skip
        is_marker = kind == "MarkerWritten"
        appended[topic].append(Cell("COMMIT", "committed") if is_marker else Cell("record", "open"))
    pending = db.query("SELECT offset FROM pending_offsets").all()
    committed = db.query("SELECT committed_offset FROM consumer_offsets").all()
    ((count,),) = db.query("SELECT count(*) FROM committed_records").all()
    return [
        [Cell(f"event {now}" if now == before + 1 else f"events {before + 1}–{now}")],
        [Cell(state) for (state,) in states],
        *appended.values(),
        [
            *(Cell(f"offset {offset}", "open") for (offset,) in pending),
            *(Cell(f"offset {offset}", "committed") for (offset,) in committed),
        ],
        [Cell(f"{count} records", "committed" if count else "blank")],
    ]


def fencing(folder: Path) -> Picture:
    """Two instances of one transactional id; the first comes back when it has been replaced."""
    with eosdb.connect(folder / "fencing.db") as db:
        db.admin.create_topic("orders")
        first, second = (db.producer(transactional_id="till") for _ in range(2))
        steps: list[tuple[str, int, Callable[[], object]]] = [
            ("init", 0, first.init_transactions),
            ("send a", 0, lambda: _begin_and_send(first)),
            ("init", 1, second.init_transactions),
            ("send b", 1, lambda: _begin_and_send(second)),
            ("commit", 0, first.commit_transaction),
            ("commit", 1, second.commit_transaction),
        ]
        instances: tuple[list[list[Cell]], ...] = ([], [])
        epochs: list[list[Cell]] = []
        ends = [0]
        for _, who, call in steps:
            answer = Cell("done")
            try:
                call()
            except eosdb.ProducerFencedError as error:
                answer = Cell(error.name, "aborted")
            instances[who].append([answer])
            instances[1 - who].append([])
            query = "SELECT producer_epoch FROM transaction_history ORDER BY position DESC LIMIT 1"
            epochs.append([Cell(f"epoch {db.query(query).one()[0]}")])
            ends.append(_offsets(db)[1])
        rows = db.query('SELECT "offset", control, status FROM all_records ORDER BY "offset"')
        log = [Cell(control or f"record {offset}", status) for offset, control, status in rows]
    return Picture(
        "Fencing: the second instance raises the epoch, which aborts what the first left open and "
        "refuses what it does later",
        [f"{'second' if who else 'first'}: {name}" for name, who, _ in steps],
        [
            Lane("first instance", instances[0]),
            Lane("second instance", instances[1]),
            Lane("till, in the file", epochs),
            Lane("orders-0", [log[a:b] for a, b in pairwise(ends)]),
        ],
        [_COMMITTED, ("aborted", "aborted, or refused")],
    )


def last_stable_offset(folder: Path) -> Picture:
    """A partition with a committed, an aborted and an open transaction, and what a consumer is given."""
    tp = TopicPartition("orders", 0)
    with eosdb.connect(folder / "lso.db") as db:
        db.admin.create_topic("orders")
        a, b, c = (db.producer(transactional_id=name) for name in "abc")
        plain = db.producer()
        for producer in (a, b, c):
            producer.init_transactions()
            producer.begin_transaction()
        for producer in (a, b, a):
            _send(producer, "orders")
        a.commit_transaction()
        _send(plain, "orders")
        _send(b, "orders")
        b.abort_transaction()
        for producer in (c, plain, c):
            _send(producer, "orders")
        stable, _ = _offsets(db)
        consumer = db.consumer(isolation_level="read_committed", auto_offset_reset="earliest")
        consumer.assign([tp])
        given = {record.offset for record in consumer.poll(max_records=100)}
        rows = db.query(
            'SELECT "offset", transactional_id, control, status FROM all_records ORDER BY "offset"'
        ).all()
        db.abandon()
    log, read = [], []
    for offset, owner, control, status in rows:
        log.append(
            [Cell(control or (owner.upper() if owner else "–"), status if owner else "plain")]
        )
        waits = offset >= stable
        read.append(
            [Cell("read", "committed")] if offset in given else [Cell("waits", "blank")] * waits
        )
    return Picture(
        "The last stable offset: a consumer reads up to where the open transaction C begins",
        [str(offset) for offset, *_ in rows],
        [Lane("orders-0", log), Lane("read_committed", read)],
        [_COMMITTED, _ABORTED, _OPEN, ("plain", "outside of transactions")],
        mark=(stable, f"last stable offset {stable}"),
    )


_KILLED: Final = """
import os, signal, sys
import eosdb
from scripts.make_pictures import bill

def killed(record, tx):
    bill(record, tx)
    os.kill(os.getpid(), signal.SIGKILL)

eosdb.process(sys.argv[1], "orders", killed, "invoices", group_id="billing", until_idle_ms=0)
"""


def bill(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> str:
    """The handler of the picture of the loop."""
    tx.connection.exec_driver_sql("INSERT INTO shop_bills VALUES (?)", (record.value.decode(),))
    return f"invoice for {record.value.decode()}"


_STORED: Final = """
SELECT (SELECT count(*) FROM shop_bills),
    (SELECT count(*) FROM committed_records WHERE topic = 'invoices'),
    (SELECT coalesce(max(committed_offset), 0) FROM consumer_offsets)
"""


def the_loop(folder: Path) -> Picture:
    """Three orders, the handler of one of which is killed, and what is stored behind each attempt."""
    path = folder / "loop.db"
    with eosdb.connect(path) as db:
        for topic in ("orders", "invoices"):
            db.admin.create_topic(topic)
        with db.engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE shop_bills (customer TEXT)")
    attempts = [("ann", False), ("bob", True), ("bob again", False), ("cleo", False)]
    columns, framed, before = [], [], (0, 0, 0)
    for number, (order, is_killed) in enumerate(attempts):
        with eosdb.connect(path) as db:
            if not order.endswith("again"):
                _send(db.producer(), "orders", order)
            if not is_killed:
                eosdb.process(db, "orders", bill, "invoices", group_id="billing", until_idle_ms=0)
        if is_killed:
            command = [sys.executable, "-c", _KILLED, str(path)]
            done = subprocess.run(command, cwd=IMAGES.parents[1], check=False)
            assert done.returncode == -signal.SIGKILL
        with eosdb.connect(path, read_only=True) as db:
            bills, invoices, offset = now = db.query(_STORED).one()
        texts = (f"row {bills}", f"record {invoices - 1}", f"offset {offset}")
        columns.append(
            [
                [Cell("kill -9", "aborted") if is_killed else Cell("returns", "committed")],
                *(
                    [Cell(text, "committed") if after > earlier else Cell("nothing", "blank")]
                    for text, after, earlier in zip(texts, now, before, strict=True)
                ),
            ]
        )
        framed += [number] if now > before else []
        before = now
    names = ("handler", "your table", "invoices", "group billing")
    return Picture(
        "The loop: row, record and offset are stored in one commit; a handler that is killed leaves "
        "none of them, and the order is processed again",
        [order for order, _ in attempts],
        [
            Lane(name, [*cells])
            for name, cells in zip(names, zip(*columns, strict=True), strict=True)
        ],
        [("committed", "stored"), ("aborted", "killed")],
        framed=framed,
        frame_from=1,
        frame_name="one commit",
    )


def _send(producer: eosdb.Producer, topic: str, value: str = "x") -> None:
    producer.send(topic, value)
    producer.flush()


def _begin_and_send(producer: eosdb.Producer) -> None:
    producer.begin_transaction()
    _send(producer, "orders")


def _event(db: eosdb.Database) -> int:
    """The newest event."""
    last: int = db.query("SELECT max(position) FROM journal").one()[0]
    return last


def _offsets(db: eosdb.Database) -> tuple[int, int]:
    """The last stable offset and the log end offset of the orders."""
    stable, end = db.query(
        "SELECT last_stable_offset, log_end_offset FROM partition_offsets WHERE topic = 'orders'"
    ).one()
    return stable, end


PICTURES: Final = {
    "transaction.svg": life_of_a_transaction,
    "fencing.svg": fencing,
    "last-stable-offset.svg": last_stable_offset,
    "loop.svg": the_loop,
}


def main() -> None:
    """Write the pictures into docs/images."""
    for name, story in PICTURES.items():
        with tempfile.TemporaryDirectory() as folder:
            (IMAGES / name).write_text(story(Path(folder)).drawn(), encoding="utf-8")


if __name__ == "__main__":
    main()
