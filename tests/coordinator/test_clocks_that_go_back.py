"""A clock that was ahead for a while and has gone back: nothing waits until the time that it showed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.model.values import JoinGroupResult
from tests.readers import committed_values

TP = TopicPartition("t", 0)
START_MS = 1_700_000_000_000
DAYS_MS = 10 * 24 * 3600 * 1000


class SetClock:
    """A clock that shows what it is set to; its monotonic time goes on."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self._monotonic = eosdb.ManualClock()

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic.monotonic_ms()

    def sleep_ms(self, ms: int) -> None:
        self.now_ms += ms
        self._monotonic.advance(ms)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def shop(tmp_path: Path, clock: SetClock) -> Iterator[eosdb.Database]:
    with eosdb.connect(tmp_path / "shop.db", clock=clock) as db:
        db.admin.create_topic("t")
        yield db
        assert db.verify().ok


def append(db: eosdb.Database, value: bytes) -> None:
    db.broker.append(TP, RecordBatch([Record(value=value)]))


def state(db: eosdb.Database) -> str:
    (found,) = db.broker.list_transactions()
    return found.state


@pytest.mark.parametrize("reopened", [False, True], ids=["in this process", "after a kill"])
def test_an_open_transaction_holds_up_readers_no_longer_than_its_timeout(
    shop: eosdb.Database, clock: SetClock, reopened: bool, tmp_path: Path
) -> None:
    clock.now_ms += DAYS_MS
    producer = shop.producer(transactional_id="a", transaction_timeout_ms=60_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"never")
    producer.flush()
    clock.now_ms -= DAYS_MS
    db = eosdb.connect(tmp_path / "shop.db", clock=clock) if reopened else shop
    append(db, b"one")
    assert state(db) == "Ongoing", "whoever is alive is not aborted for it"
    clock.now_ms += 60_000
    append(db, b"two")
    assert state(db) == "Ongoing", "its time is over after its timeout, not at it"
    clock.now_ms += 1
    append(db, b"three")
    assert state(db) == "CompleteAbort"
    assert committed_values(db, TP) == [b"one", b"two", b"three"]
    if reopened:
        db.close()


def test_a_transaction_whose_producer_is_alive_goes_on(
    shop: eosdb.Database, clock: SetClock
) -> None:
    producer = shop.producer(transactional_id="a", transaction_timeout_ms=60_000)
    producer.init_transactions()
    clock.now_ms += DAYS_MS
    with producer.transaction():
        producer.send("t", b"ahead")
        clock.now_ms -= DAYS_MS
        producer.send("t", b"back")
    assert committed_values(shop, TP) == [b"ahead", b"back"]


def join(db: eosdb.Database, member_id: str = "") -> JoinGroupResult:
    return db.broker.join_group(
        "g",
        member_id=member_id,
        protocols=[("range", b"")],
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
    )


def lead(db: eosdb.Database) -> JoinGroupResult:
    """A group of one member, which works."""
    found = join(db)
    member = found.member_id
    db.broker.sync_group("g", found.generation_id, member, assignments={member: b"all"})
    return found


def members(db: eosdb.Database) -> list[str]:
    return [member.member_id for member in db.broker.describe_group("g").members]


def test_a_member_that_has_died_is_out_of_its_group_after_its_session(
    shop: eosdb.Database, clock: SetClock
) -> None:
    clock.now_ms += DAYS_MS
    dead = lead(shop).member_id
    clock.now_ms -= DAYS_MS
    append(shop, b"whoever writes next sees it")
    clock.now_ms += 10_000
    append(shop, b"in time")
    assert members(shop) == [dead]
    clock.now_ms += 1
    append(shop, b"later")
    assert members(shop) == []


def test_a_rebalance_waits_no_longer_than_its_timeout(
    shop: eosdb.Database, clock: SetClock
) -> None:
    clock.now_ms += DAYS_MS
    first = lead(shop)
    second = join(shop).member_id
    clock.now_ms -= DAYS_MS
    append(shop, b"whoever writes next sees it")
    for _ in range(7):
        assert not join(shop, second).is_complete, "the first lives, and does not join again"
        with pytest.raises(eosdb.RebalanceInProgressError):
            shop.broker.heartbeat("g", first.generation_id, first.member_id)
        clock.now_ms += 9_000
    assert join(shop, second).is_complete
    assert members(shop) == [second]


def test_an_id_that_was_given_out_is_asked_for_again(shop: eosdb.Database, clock: SetClock) -> None:
    clock.now_ms += DAYS_MS
    with pytest.raises(eosdb.MemberIdRequiredError) as given:
        shop.broker.join_group("g", protocols=[("range", b"")], must_know_id=True)
    clock.now_ms -= DAYS_MS
    append(shop, b"whoever writes next sees it")
    with pytest.raises(eosdb.UnknownMemberIdError):
        join(shop, given.value.member_id)
    assert join(shop).is_complete


def test_housekeeping_goes_on_at_its_interval(shop: eosdb.Database, clock: SetClock) -> None:
    shop.admin.create_topic("old", config={"retention.ms": "1000"})
    clock.now_ms += DAYS_MS
    append(shop, b"a round, or what begins one")
    clock.now_ms -= DAYS_MS
    old = TopicPartition("old", 0)
    shop.broker.append(old, RecordBatch([Record(value=b"old", timestamp=START_MS)]))
    for _ in range(3):
        clock.now_ms += 300_001
        append(shop, b"a write, after which housekeeping looks whether it is due")
    assert shop.broker.offsets(old).log_start_offset == 1
