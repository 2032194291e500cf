"""Retries, RetryAt and `deliver_at` wait in one way: for their own time, and for nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ConsumerRecord, RetryAt
from tests.client.processor.work import feed

SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000
WAYS = ("deliver_at", "RetryAt", "retry")


class JumpingClock:
    """A clock whose time of day jumps in both directions. Its monotonic time never does."""

    def __init__(self) -> None:
        self._passed_ms, self.ahead_ms = 100 * DAY, 0

    def time_ms(self) -> int:
        return self._passed_ms + self.ahead_ms

    def monotonic_ms(self) -> int:
        return self._passed_ms

    def sleep_ms(self, ms: int) -> None:
        self._passed_ms += max(ms, 0)


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def db(tmp_path: Path, clock: JumpingClock) -> Iterator[eosdb.Database]:
    with eosdb.connect(tmp_path / "wait.db", clock=clock) as db:
        db.admin.create_topic("in")
        yield db


def let_wait(db: eosdb.Database, way: str, value: bytes, delay_ms: int, group: str = "g") -> None:
    if way == "deliver_at":
        due = db.clock.time_ms() + delay_ms
        db.producer().send("in", value, deliver_at=due).result()
        return

    def handle(record: ConsumerRecord) -> None:
        if record.value != value:
            return
        processor.stop()
        raise ValueError if way == "retry" else RetryAt(db.clock.time_ms() + delay_ms)

    feed(db, value)
    retries: dict[str, Any] = {"dead_letter_topic": "dlq", "retry_delays_ms": (delay_ms,)}
    settings = {"max_attempts": 1, **(retries if way == "retry" else {})}
    processor = db.processor("in", handle, group_id=group, **settings)
    processor.run()


def entered(db: eosdb.Database, way: str) -> list[bytes]:
    db.housekeeping()
    topics = "topic = 'in'" if way == "deliver_at" else "topic LIKE '%postponed%'"
    return [value for (value,) in db.query(f"SELECT value FROM committed_records WHERE {topics}")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("second", ["g", "h"])
def test_nothing_waits_behind_an_older_and_longer_delay_of_its_group_or_of_another(
    db: eosdb.Database, clock: JumpingClock, way: str, second: str
) -> None:
    let_wait(db, way, b"long", DAY)
    let_wait(db, way, b"short", SECOND, second)
    assert entered(db, way) == []
    clock.sleep_ms(SECOND)
    assert b"short" in entered(db, way)
    assert b"long" not in entered(db, way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("when_it_begins", "later"), [(MINUTE, 0), (-MINUTE, 0), (0, MINUTE), (0, -MINUTE)]
)
def test_a_clock_that_jumps_delays_nobody_by_more_than_the_jump(
    db: eosdb.Database, clock: JumpingClock, way: str, when_it_begins: int, later: int
) -> None:
    clock.ahead_ms = when_it_begins
    let_wait(db, way, b"a", 5 * SECOND)
    assert entered(db, way) == []
    clock.ahead_ms, waited_ms = later, 0
    while not entered(db, way):
        clock.sleep_ms(SECOND)
        waited_ms += SECOND
        assert waited_ms <= 5 * SECOND + MINUTE
    back_ms = when_it_begins - later
    assert waited_ms <= 5 * SECOND + max(back_ms, 0)
    assert len(entered(db, way)) == 1
