"""A processor whose handler fails now and then is killed: each record ends as one result or one dead
letter.

First at every single instant between two durable steps, in this process: what was killed makes no
further request. Then for real, by SIGKILL, again and again on one file.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ConsumerRecord
from eosdb.client.transport import DirectTransport, Exchange, T
from eosdb.model.failpoints import Failpoint, watched
from eosdb.model.requests import Request
from tests.crash.children import environment
from tests.crash.processing_worker import SETTINGS, handle
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash

FEW, MANY = 30, 10_000
KILLS = 6
DEADLY = (
    Failpoint.APPEND_UNCOMMITTED,
    Failpoint.UNIT_COMMITTED,
    Failpoint.END_TXN_DECIDED,
    Failpoint.MARKER_WRITTEN,
)


class Killed(BaseException):
    """Ends the program here."""


class MortalTransport(DirectTransport):
    """Makes no request any more once the program is dead."""

    is_dead = False

    def submit(self, request: Request[T]) -> Exchange[T]:
        if self.is_dead:
            raise Killed
        return super().submit(request)


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
    return run_until_killed(db, handle, {**SETTINGS, "transaction_size": 10}, lives_until)


def check(path: Path, count: int) -> None:
    with eosdb.connect(path) as db:
        rows = db.query("SELECT topic, value FROM committed_records").rows
        found = Counter(
            (topic, value) for topic, value in rows if not topic.startswith("dead.retry")
        )
        bad = {i for i in range(count) if i % 100 == 7}
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
    fill(tmp_path / "filled.db", FEW)
    points = killed_everywhere(tmp_path / "filled.db", live, lambda path: check(path, FEW))
    assert points >= set(DEADLY)


def test_killed_for_real_again_and_again(tmp_path: Path, seeds: list[int]) -> None:
    path, rng = tmp_path / "killed.db", random.Random(seeds[0])
    fill(path, MANY)
    for _ in range(KILLS * len(seeds)):
        point = rng.choice(DEADLY)
        status = run_worker(path, EOSDB_FAILPOINT=f"{point.value}:{rng.randrange(20)}")
        assert status in (-signal.SIGKILL, 0)
    assert run_worker(path) == 0
    check(path, MANY)


def run_worker(path: Path, **extra: str) -> int:
    command = [sys.executable, "-m", "tests.crash.processing_worker", str(path)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(**extra), capture_output=True, text=True, check=False
    )
    assert done.returncode <= 0, done.stderr
    return done.returncode


def test_the_handler_fails_as_often_as_this_test_believes() -> None:
    def fails(value: bytes) -> bool:
        record: Any = ConsumerRecord("in", 0, 0, 0, 0, None, value, ())
        try:
            handle(record)
        except ValueError:
            return True
        return False

    assert sum(fails(b"%d" % i) for i in range(MANY)) == MANY // 100
