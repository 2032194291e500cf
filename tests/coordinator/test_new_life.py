"""The first writer of a copied or restored file begins a new life: nothing is given out a second time."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb import (
    ManualClock,
    OffsetAndMetadata,
    ProduceResult,
    ProducerIdAndEpoch,
    Record,
    RecordBatch,
    TopicPartition,
    TransactionToken,
)
from eosdb.admin.tools import Tools
from eosdb.coordinator import new_life
from eosdb.model.failpoints import Failpoint, watched
from tests.cases import each
from tests.readers import committed_values

T0 = TopicPartition("t", 0)
_MEMBERS = "SELECT members FROM groups WHERE group_id = ?"
RETENTION = eosdb.BrokerConfig(history_retention_ms=1, history_retention_bytes=1)


def lives(path: Path) -> int:
    """How many lives the file has begun, read without writing it."""
    with eosdb.connect(path, read_only=True) as db:
        return len(db.query("SELECT * FROM eosdb_lives").all())


def write(path: Path, value: bytes = b"more") -> None:
    with eosdb.connect(path) as db:
        db.admin.create_topic("t", exist_ok=True)
        db.producer().send("t", value)


def copied_closed(here: Path, there: Path) -> None:
    shutil.copy(here, there)


def backed_up(here: Path, there: Path) -> None:
    with eosdb.connect(here) as db:
        db.backup(there)


def restored(here: Path, there: Path) -> None:
    with eosdb.connect(here) as db:
        db.restore_to(there, position=2)


def copied_in_place(here: Path, there: Path) -> None:
    """As `cat backup > shop.db`: the file keeps its inode and its lock file."""
    old = here.read_bytes()
    write(here)
    here.write_bytes(old)
    here.rename(there)
    os.rename(f"{here}-lock", f"{there}-lock")


def removed_and_copied_back(here: Path, there: Path) -> None:
    """The file system may give the copy the inode of the removed file."""
    shutil.copy(here, there.with_suffix(".bak"))
    write(here)
    for name in (here, Path(f"{here}-lock")):
        name.unlink()
    shutil.copy(there.with_suffix(".bak"), there)


def published_and_backed_up(here: Path, there: Path) -> None:
    with eosdb.connect(here) as db:
        db.publish_copy(there.with_suffix(".pub"))
    with eosdb.connect(there.with_suffix(".pub"), read_only=True) as db:
        db.backup(there)


def renamed(here: Path, there: Path) -> None:
    here.rename(there)


def compacted(here: Path, there: Path) -> None:
    with eosdb.connect(here) as db:
        db.compact()
        db.rebuild()
    renamed(here, there)


@pytest.mark.parametrize(
    ("make", "begins"),
    [
        (copied_closed, True),
        (backed_up, True),
        (restored, True),
        (copied_in_place, True),
        (removed_and_copied_back, True),
        (published_and_backed_up, True),
        (renamed, False),
        (compacted, False),
    ],
)
def test_a_copy_begins_one_life_with_its_first_writer(
    tmp_path: Path, make: Callable[[Path, Path], None], begins: bool
) -> None:
    here, there = tmp_path / "a.db", tmp_path / "b.db"
    write(here)
    make(here, there)
    assert lives(there) == 0, "a reader begins nothing"
    for _ in range(3):
        write(there)
        assert lives(there) == begins
    with eosdb.connect(there) as db:
        assert db.verify().ok
        db.rebuild()
        assert len(db.query("SELECT * FROM eosdb_lives").all()) == begins
    if here.exists():
        write(here)
        assert lives(here) == 0, "the original goes on"


def test_two_first_writers_begin_one_life(db: eosdb.Database, tmp_path: Path) -> None:
    db.backup(tmp_path / "b.db")
    threads = [threading.Thread(target=write, args=(tmp_path / "b.db",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lives(tmp_path / "b.db") == 1


def test_a_killed_first_writer_leaves_the_copy_as_it_was(
    db: eosdb.Database, tmp_path: Path
) -> None:
    class KilledError(BaseException):
        pass

    def kill(point: Failpoint) -> None:
        if point is Failpoint.LIFE_BEGAN:
            raise KilledError

    db.backup(tmp_path / "b.db")
    with watched(kill), pytest.raises(KilledError):
        write(tmp_path / "b.db")
    assert lives(tmp_path / "b.db") == 0
    write(tmp_path / "b.db")
    assert lives(tmp_path / "b.db") == 1


@each(
    ("last", "now_ms", "number"),
    [(0, 0, 1), (7, 0, 8), (7, 1_577_836_900_000, 100), (100, 1_577_836_900_000, 101),
     (0, 10**18, 2**31 - 2**20), (2**31 - 2**20, 10**18, 2**31 - 2**20 + 1)],
)  # fmt: skip
def test_lives_are_numbered_by_the_clock_and_upwards(last: int, now_ms: int, number: int) -> None:
    assert new_life.number(last, now_ms) == number
    assert (number << 22 | 2**22 - 1) < 2**53, "JSON holds producer ids exactly"


def transact(db: eosdb.Database, *values: bytes) -> list[TransactionToken]:
    tokens = []
    with db.producer(transactional_id="shop") as producer:
        producer.init_transactions()
        for value in values:
            with producer.transaction() as token:
                producer.send("t", value)
            tokens.append(token)
    return tokens


def append(
    db: eosdb.Database, who: ProducerIdAndEpoch, sequence: int, name: str | None = None
) -> ProduceResult:
    batch = RecordBatch([Record(value=b"%d" % sequence)], *who, sequence, name is not None)
    return db.broker.append(T0, batch, transactional_id=name)


def test_no_producer_of_the_lost_time_has_the_id_and_epoch_of_a_later_one(
    db: eosdb.Database, tmp_path: Path, clock: ManualClock
) -> None:
    """The same copy is restored twice, within a second."""
    db.admin.create_topic("t")
    zombie = db.broker.init_producer_id("shop")
    append(db, zombie, 0, "shop")
    db.backup(tmp_path / "b.db")
    shutil.copy(tmp_path / "b.db", tmp_path / "c.db")
    zombie = db.broker.end_txn("shop", *zombie, True)
    append(db, zombie, 0, "shop")
    given = {zombie, db.broker.init_producer_id(None)}
    for name in ("b.db", "c.db"):
        with eosdb.connect(tmp_path / name, clock=clock) as copy:
            assert copy.query("SELECT * FROM transactions WHERE state = 'Ongoing'").all() == []
            successor = copy.broker.init_producer_id("shop")
            append(copy, successor, 0, "shop")
            late: list[Callable[[], object]] = [
                lambda: copy.broker.end_txn("shop", *zombie, True),
                lambda: copy.broker.end_txn("shop", *zombie, False),
                lambda: append(copy, zombie, 1, "shop"),
                lambda: copy.broker.add_offsets_to_txn("shop", *zombie, "g"),
            ]
            for call in late:
                with pytest.raises(eosdb.InvalidProducerIdMappingError):
                    call()
            with pytest.raises(eosdb.ProducerFencedError):
                copy.broker.init_producer_id("shop", 60_000, *zombie)
            assert committed_values(copy, T0) == []
            fresh = {successor, copy.broker.init_producer_id(None)}
            assert not fresh & given
            given |= fresh
            assert copy.verify().ok


def test_an_idempotent_producer_that_lives_on_loses_and_doubles_nothing(
    db: eosdb.Database, tmp_path: Path
) -> None:
    db.admin.create_topic("t")
    me = db.broker.init_producer_id(None)
    for sequence in range(3):
        append(db, me, sequence)
    db.backup(tmp_path / "b.db")
    with eosdb.connect(tmp_path / "b.db") as copy:
        assert append(copy, me, 2).duplicate, "the answer to it was lost"
        assert append(copy, me, 7).base_offset == 3, "3 to 6 were stored in the lost time"
        assert append(copy, me, 7).duplicate
        with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
            append(copy, me, 9)  # In one life, a gap is a gap.
        with pytest.raises(eosdb.OutOfOrderSequenceNumberError):
            append(copy, me, 4)
        assert append(copy, me, 8).base_offset == 4


def test_a_member_of_the_lost_time_is_no_member(db: eosdb.Database, tmp_path: Path) -> None:
    db.admin.create_topic("t")
    me = db.broker.join_group("classic", protocols=[("range", b"")])
    db.broker.consumer_group_heartbeat(
        "new",
        member_id="m",
        member_epoch=0,
        topic_partitions={},
        rebalance_timeout_ms=9_000,
        subscribed_topic_names=["t"],
    )
    db.backup(tmp_path / "b.db")
    with eosdb.connect(tmp_path / "b.db") as copy:
        for group_id in ("classic", "new"):
            assert copy.query(_MEMBERS, [group_id]).all() == [("[]",)]
        with pytest.raises(eosdb.UnknownMemberIdError):
            copy.broker.heartbeat("classic", me.generation_id, me.member_id)
        assert copy.verify().ok


def test_no_member_has_the_id_of_one_of_the_lost_time(db: eosdb.Database, tmp_path: Path) -> None:
    def joined(db: eosdb.Database) -> set[str]:
        answers = [db.broker.join_group(f"g{i}", protocols=[("range", b"")]) for i in range(9)]
        return {answer.member_id for answer in answers}

    db.backup(tmp_path / "b.db")
    lost = joined(db)
    with eosdb.connect(tmp_path / "b.db") as copy:
        assert len(lost | joined(copy)) == 18


def test_the_outcome_is_told_of_what_the_file_has_and_of_nothing_else(
    db: eosdb.Database, tmp_path: Path
) -> None:
    db.admin.create_topic("t")
    (early,) = transact(db, b"early")
    producer = db.producer(transactional_id="open")
    producer.init_transactions()
    open_token = producer.begin_transaction()
    producer.send("t", b"open")
    producer.flush()
    db.backup(tmp_path / "b.db")
    (lost,) = transact(db, b"lost")
    producer.commit_transaction()
    db.backup(tmp_path / "c.db")
    for _ in range(2):
        with eosdb.connect(tmp_path / "b.db") as copy:
            assert copy.outcome(early) == "committed"
            for token in (lost, open_token):
                with pytest.raises(eosdb.InvalidRequestError, match="unknown life"):
                    copy.outcome(token)
            (later,) = transact(copy, b"later")
            assert copy.outcome(later) == "committed"
    with (
        eosdb.connect(tmp_path / "c.db") as other,
        pytest.raises(eosdb.EosdbError, match="unknown life"),
    ):
        other.outcome(later)
    with eosdb.connect(tmp_path / "b.db", config=RETENTION) as copy:
        copy.housekeeping()
        for token in (lost, open_token):
            with pytest.raises(eosdb.InvalidRequestError, match="unknown life"):
                copy.outcome(token)


@pytest.mark.parametrize("commits", range(4))
def test_a_mark_of_the_lost_time_is_refused_also_when_its_event_is_trimmed(
    db_path: Path, tmp_path: Path, commits: int
) -> None:
    write(db_path)
    with eosdb.connect(db_path) as db:
        early = Tools(db.admin).history_mark()
        db.backup(tmp_path / "b.db")
        transact(db, *[b"lost"] * 3)
        for offset in range(commits):
            db.broker.offset_commit("g", {T0: OffsetAndMetadata(offset)})
        mark = Tools(db.admin).history_mark()
        assert Tools(db.admin).history_departure(early) is None
    for path, is_mine in ((tmp_path / "b.db", False), (db_path, True)):
        with eosdb.connect(path, config=RETENTION) as copy:
            transact(copy, *[b"later"] * 9)
            copy.housekeeping()
            assert (Tools(copy.admin).history_departure(mark) is None) == is_mine
            assert Tools(copy.admin).history_departure(early) is None
            own = Tools(copy.admin).history_mark()
    with eosdb.connect(tmp_path / "b.db") as copy:
        assert Tools(copy.admin).history_departure(own), "two copies, both written"


def test_a_topic_of_the_lost_time_has_another_id_than_a_later_one(
    db: eosdb.Database, tmp_path: Path, clock: ManualClock
) -> None:
    db.backup(tmp_path / "b.db")
    lost = db.admin.create_topic("lost")
    with eosdb.connect(tmp_path / "b.db", clock=clock) as copy:
        assert copy.admin.create_topic("t").topic_id != lost.topic_id


def test_a_consumer_goes_back_from_an_offset_that_was_committed_in_the_lost_time(
    db: eosdb.Database, tmp_path: Path
) -> None:
    db.admin.create_topic("t")
    with db.producer() as producer:
        producer.send("t", b"kept")
    db.backup(tmp_path / "b.db")
    with eosdb.connect(tmp_path / "b.db") as copy:
        with copy.producer() as producer:
            for _ in range(9):
                producer.send("t", b"new")
        (life,) = copy.query("SELECT life FROM eosdb_lives").all()[0]
        for epoch, first in ((0, 1), (life, 5), (life + 1, 0), (-1, 5)):
            copy.broker.offset_commit("g", {T0: OffsetAndMetadata(5, leader_epoch=epoch)})
            with copy.consumer("g", auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["t"])
                assert consumer.poll(timeout_ms=10_000)[0].offset == first
        copy.broker.offset_commit("g", {T0: OffsetAndMetadata(5, leader_epoch=0)})
        with copy.consumer("g", auto_offset_reset="none") as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(eosdb.OffsetOutOfRangeError, match="restored"):
                consumer.poll(timeout_ms=10_000)
