"""A processor whose handler fails now and then is killed: each record ends as one result or one dead
letter.

It is killed at every single instant between two durable steps, in this process: what was killed makes no
further request. The gauntlet (tests/trials/hunts) kills processors for real, by SIGKILL.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import eosdb
from eosdb.client.transport import DirectTransport
from eosdb.model.failpoints import Failpoint, watched
from eosdb.model.requests import Request
from eosdb.model.threads import Fate

pytestmark = pytest.mark.crash

COUNT = 30
SETTINGS: Final[dict[str, Any]] = {
    "group_id": "g",
    "transactional_id": "tx",
    "transaction_size": 10,
    "transaction_interval_ms": 50,
    "max_attempts": 1,
    "retry_delays_ms": (100,),
    "dead_letter_topic": "dead",
    # Killed and started again, it takes its own place and need not wait for a session to end.
    "consumer": {"group_instance_id": "one"},
}
DEADLY = (
    Failpoint.APPEND_UNCOMMITTED,
    Failpoint.UNIT_COMMITTED,
    Failpoint.END_TXN_DECIDED,
    Failpoint.MARKER_WRITTEN,
)


def handle(record: eosdb.ConsumerRecord) -> bytes:
    """One in ten fails, always."""
    assert isinstance(record.value, bytes)
    if int(record.value) % 10 == 7:
        raise ValueError("one in ten")
    return record.value


class Killed(BaseException):
    """Ends the program here."""


class MortalTransport(DirectTransport):
    """Makes no request any more once the program is dead."""

    is_dead = False

    def ask(
        self, requests: Sequence[Request[Any]], *, sync: bool = True, fate: Fate | None = None
    ) -> list[Any]:
        if self.is_dead:
            raise Killed
        return super().ask(requests, sync=sync, fate=fate)


def fill(path: Path, count: int) -> None:
    with eosdb.connect(path, durability="off") as db:
        for topic in ("in", "out"):
            db.admin.create_topic(topic, 2)
        with db.producer(linger_ms=1_000) as producer:
            for i in range(count):
                producer.send("in", b"%d" % i, partition=i % 2)


def run_until_killed(
    db: eosdb.Database, handler: Any, settings: dict[str, Any], lives_until: int
) -> Failpoint | None:
    """Run a processor that is killed at the given visit of any failpoint. Returns where it died."""
    visits, died_at = 0, None
    transport = MortalTransport(db.broker)

    def visit(point: Failpoint) -> None:
        nonlocal visits, died_at
        visits += 1
        if visits > lives_until:
            transport.is_dead, died_at = True, died_at or point
            raise Killed

    processor = db.processor("in", handler, "out", transport=transport, **settings)
    try:
        with watched(visit):
            processor.run(until_idle_ms=200)
    except Killed:
        assert died_at is not None
    db.abandon()
    return died_at


def live(path: Path, clock: eosdb.Clock, lives_until: int) -> Failpoint | None:
    db = eosdb.connect(path, clock=clock, durability="off")
    return run_until_killed(db, handle, SETTINGS, lives_until)


def check(path: Path, count: int) -> None:
    with eosdb.connect(path) as db:
        rows = db.query("SELECT topic, value FROM committed_records").rows
        found = Counter((topic, value) for topic, value in rows if not topic.startswith("__eosdb."))
        bad = {i for i in range(count) if i % 10 == 7}
        expected = {("in", b"%d" % i) for i in range(count)}
        expected |= {("dead" if i in bad else "out", b"%d" % i) for i in range(count)}
        assert found == Counter(expected)
        assert db.verify().ok


def killed_everywhere(
    template: Path,
    live: Callable[[Path, eosdb.Clock, int], Failpoint | None],
    check: Callable[[Path], None],
) -> set[Failpoint]:
    """Runs a copy of the file until it is killed at the first visit of any failpoint, at the second, …, and
    once more to the end. Where it died."""
    points: Counter[Failpoint] = Counter()
    for lives_until in range(10_000):
        path = template.with_name(f"{lives_until}.db")
        clock = eosdb.ManualClock(1_700_000_000_000)
        path.write_bytes(template.read_bytes())
        died_at = live(path, clock, lives_until)
        live(path, clock, sys.maxsize)
        check(path)
        path.unlink()
        if died_at is None:
            break
        points[died_at] += 1
    print(f"killed at {points.total()} instants")
    return set(points)


def test_killed_at_every_write_point_each_record_has_one_end(tmp_path: Path) -> None:
    fill(tmp_path / "filled.db", COUNT)
    points = killed_everywhere(tmp_path / "filled.db", live, lambda path: check(path, COUNT))
    assert points >= set(DEADLY)
