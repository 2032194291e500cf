"""Files that readers are tried with: what this eosdb has written, in as many shapes as a file can have."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import eosdb
from eosdb import (
    BrokerConfig,
    ManualClock,
    OffsetAndMetadata,
    Record,
    RecordBatch,
    TopicPartition,
)
from eosdb.coordinator.transactions.state import LAST_CLIENT_EPOCH
from eosdb.log import partition_rows, retention
from eosdb.model.failpoints import Failpoint, watched
from eosdb.model.requests import ConsumerGroupHeartbeat
from eosdb.store.writing.unit import Unit
from tests.classic import transactional
from tests.maintenance import everything
from tests.requests import skip_to_epoch
from tests.simulation.run import Settings, run
from tests.simulation.world import World
from tests.tidy.tree import ROOT

START_MS = 1_700_000_000_000
SCHEMA = 1
HEADERS: list[tuple[str, bytes | str | None]] = [("hé", b"\x00\xff"), ("hé", None), ("", b"")]
LATE = Record(value=b"in a far year", timestamp=2**62 + 1)
DAY_MS = 24 * 3600 * 1000
TP = TopicPartition("t", 0)
TABLES_OF_ANOTHER = (
    "PRAGMA page_size=8192; PRAGMA user_version=77; "
    "PRAGMA application_id=1196444487; PRAGMA journal_mode=WAL; "
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT); "
    "CREATE VIEW notes AS SELECT note FROM orders; INSERT INTO orders VALUES (1, 'mine')"
)


def golden(folder: Path) -> Iterator[Path]:
    """The file of each schema."""
    for stored in sorted((ROOT / "tests" / "data").glob("schema_*.db")):
        path = folder / stored.name
        shutil.copy(stored, path)
        yield path


def opened(path: Path, clock: ManualClock, **settings: Any) -> eosdb.Database:
    adopt = settings.pop("adopt", False)
    config = BrokerConfig(log_retention_check_interval_ms=1000 * DAY_MS, **settings)
    return eosdb.connect(path, clock=clock, durability="off", config=config, adopt=adopt)


def shapes(folder: Path) -> Iterator[Path]:
    """Files of this schema: with everything, and what had no place in that one."""
    yield (path := folder / "everything.db")
    everything.fill(path, ManualClock(START_MS))
    yield (path := folder / "empty.db")
    eosdb.connect(path).close()
    yield (path := folder / "sides.db")
    with opened(path, ManualClock(START_MS)) as db:
        from_all_sides(db, version=1)
        db.publish_copy(folder / "published.db")
    yield folder / "published.db"
    yield (path := folder / "baseline.db")
    clock = ManualClock(START_MS)
    with opened(path, clock, history_retention_ms=0) as db:
        from_all_sides(db)
        clock.advance(1_000)
        db.housekeeping()
        ((position,),) = db.query("SELECT position FROM eosdb_baseline").rows
        assert position > 50
        from_all_sides(db, "after")
    yield (path := folder / "adopted.db")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(TABLES_OF_ANOTHER)
    with opened(path, ManualClock(START_MS), adopt=True) as db:
        from_all_sides(db)
    yield (path := folder / "decided.db")
    left_between_two_steps(path)
    for seed in (2, 3, 10):
        yield from simulated(folder, seed)


def from_all_sides(db: eosdb.Database, name: str = "t", *, version: int = 2) -> None:
    """Transactions over partitions and groups, aborted, open, cut by retention and overtaken; topics
    that were deleted, made again and widened; text that is not ASCII."""
    clock, tps = db.clock, [TopicPartition(name, i) for i in range(2)]
    assert isinstance(clock, ManualClock)
    db.admin.create_topic(name, 2, {"retention.ms": -1})
    db.admin.create_topic(f"{name}-gone", config={"message.timestamp.type": "LogAppendTime"})
    producer = transactional(db, f"{name}-ends", version)
    for i in range(8):
        producer.begin_transaction()
        for tp in tps:
            headers = HEADERS if i % 2 else []
            producer.send(name, f"wert {i} ≠", key=f"{i}ü", partition=tp.partition, headers=headers)
        producer.send(f"{name}-gone", None, key=b"")
        producer.send_offsets_to_transaction({tps[i % 2]: OffsetAndMetadata(i, "\x01\t»")}, "g")
        producer.flush()
        producer.commit_transaction() if i % 3 else producer.abort_transaction()
        clock.advance(7)
    db.append_once(
        f"{name}-sink", 1, {tps[1]: [Record(value=b"s", timestamp=5), LATE]}, held=["it"]
    )
    db.broker.offset_commit("g", {TopicPartition(f"{name}-gone", 0): OffsetAndMetadata(1)})
    db.admin.delete_topic(f"{name}-gone")
    db.admin.create_topic(f"{name}-gone", 1)
    db.admin.create_partitions(f"{name}-gone", 3)
    db.broker.offset_commit("g", {TopicPartition(f"{name}-gone", 2): OffsetAndMetadata(0)})
    me = db.broker.init_producer_id(f"{name}-late", 900_000)
    db.broker.add_partitions_to_txn(f"{name}-late", *me, tps)
    for tp in tps:
        open_ = RecordBatch([Record(value=b"open", timestamp=clock.time_ms())], *me, 0, True)
        db.broker.append(tp, open_, transactional_id=f"{name}-late")
    late = {tps[0]: OffsetAndMetadata(99), tps[1]: OffsetAndMetadata(98)}
    db.broker.add_offsets_to_txn(f"{name}-late", *me, "g")
    db.broker.txn_offset_commit(f"{name}-late", "g", *me, late)
    db.broker.offset_commit("g", {tps[0]: OffsetAndMetadata(3)})
    db.broker.offset_commit("far", {tps[0]: OffsetAndMetadata(2**63 - 1)})
    db.broker.delete_records(tps[1], 3)
    db.producer().send(name, b"behind the open one", partition=0).result()
    fenced = db.producer(transactional_id=f"{name}-fenced")
    fenced.init_transactions()
    fenced.begin_transaction()
    fenced.send(name, b"fenced", partition=1)
    fenced.flush()
    db.producer(transactional_id=f"{name}-fenced").init_transactions()
    first = ConsumerGroupHeartbeat(
        f"{name}-assigned",
        member_id="m",
        rebalance_timeout_ms=1,
        subscribed_topic_names=[name],
        topic_partitions={},
    )
    db.broker.ask(first)
    db.broker.offset_commit(f"{name}-short", {tps[0]: OffsetAndMetadata(1)})
    db.broker.delete_group(f"{name}-short")


class Killed(BaseException):
    """The process is gone."""


def left_between_two_steps(path: Path) -> None:
    """The last epoch of a producer id is used; a request overtakes one in a transaction; the log start has
    moved above records that are still there, and into an open transaction; a commit is decided."""
    db = opened(path, ManualClock(START_MS))
    db.admin.create_topic("t", 2)
    other = TopicPartition("t", 1)
    me = db.broker.init_producer_id("used-up")
    me = db.broker.end_txn("used-up", *me, False)
    skip_to_epoch(db, "used-up", LAST_CLIENT_EPOCH - 1)
    me = db.broker.end_txn("used-up", me.producer_id, LAST_CLIENT_EPOCH - 1, False)
    last = RecordBatch([Record(value=b"last", timestamp=START_MS)], *me, 0, True)
    db.broker.append(TP, last, transactional_id="used-up")
    offsets = {TP: OffsetAndMetadata(1), other: OffsetAndMetadata(1)}
    db.broker.txn_offset_commit("used-up", "g", *me, offsets)
    db.broker.offset_commit("g", {other: OffsetAndMetadata(0)})
    assert db.broker.end_txn("used-up", *me, True).producer_id != me.producer_id
    me = db.broker.init_producer_id()
    records_ = [Record(value=b"%d" % i, timestamp=START_MS) for i in range(5)]
    db.broker.append(other, RecordBatch(records_, *me, 40_000))
    cut = db.broker.init_producer_id("cut", 900_000)
    db.broker.append(other, RecordBatch(records_, *cut, 0, True), transactional_id="cut")

    def move(unit: Unit) -> None:
        partition = partition_rows.load(unit, other)
        retention.move_log_start(unit, partition, 7, "delete_records", START_MS)

    db._store.write(move)
    producer = db.producer(transactional_id="decided")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"decided", partition=0)
    producer.flush()

    def kill(point: Failpoint) -> None:
        if point is Failpoint.END_TXN_DECIDED:
            raise Killed

    with watched(kill), contextlib.suppress(Killed):
        producer.commit_transaction()
    db.abandon()


class Kept(World):
    """A simulated world of whose file copies are kept: of the middle, with everything under way, and of
    the end."""

    target: Path
    steps = 500

    def deliver_due(self) -> None:
        super().deliver_due()
        if self.scheduler.steps >= self.steps // 2 and not self.target.exists():
            self.keep(self.target)

    def close(self) -> None:
        self.keep(self.target.with_name(f"{self.target.stem}-end.db"))
        super().close()

    def keep(self, target: Path) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            connection.execute("VACUUM INTO ?", (str(target),))


def simulated(folder: Path, seed: int) -> Iterator[Path]:
    Kept.target = folder / f"simulated-{seed}.db"
    with mock.patch.dict(run.__globals__, World=Kept):
        result = run(Settings(seed, Kept.steps))
    assert result.violation is None, result.violation
    yield from sorted(folder.glob(f"simulated-{seed}*.db"))
