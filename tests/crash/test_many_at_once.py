"""Processors with many records in hand are killed: nothing is lost or doubled, and each key has its order.

Once at every instant between two durable steps, in this process; and by SIGKILL at any instant, one of two
copies that share the partitions, so that these move with each kill. `--seeds 50` makes 200 such kills.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb.model.failpoints import Failpoint
from tests.crash.children import environment
from tests.crash.many_worker import MODES, is_bad, run
from tests.crash.test_processing import (
    DEADLY,
    SETTINGS,
    handle,
    killed_everywhere,
    run_until_killed,
)
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash

COUNT = 30
KILLS_PER_RUN = 4
PATIENCE_S = 60


def feed(db: eosdb.Database, numbers: range) -> None:
    """Five keys, and records without one."""
    with db.producer(linger_ms=1_000) as producer:
        for number in numbers:
            key = b"%d" % (number % 7) if number % 7 < 5 else None
            producer.send("in", b"%d" % number, key=key, partition=number % 2)


def make(path: Path) -> None:
    with eosdb.connect(path, durability="off") as db:
        for topic in ("in", "out"):
            db.admin.create_topic(topic, 2)


def check(path: Path, count: int) -> None:
    with eosdb.connect(path) as db:
        query = (
            'SELECT topic, key, value FROM committed_records ORDER BY topic, partition, "offset"'
        )
        rows = [(t, k, int(v)) for t, k, v in db.query(query).rows if t in ("out", "dead")]
        ends = {number: "dead" if is_bad(b"%d" % number) else "out" for number in range(count)}
        found = Counter((topic, number) for topic, _, number in rows)
        assert found == Counter((topic, number) for number, topic in ends.items())
        lanes = defaultdict[tuple[bytes, int], list[int]](list)
        for topic, key, number in rows:
            if topic == "out" and key is not None:
                lanes[key, number % 2].append(number)
        assert all(numbers == sorted(numbers) for numbers in lanes.values())
        offsets = db.broker.offset_fetch("g")
        for partition in (0, 1):
            tp = eosdb.TopicPartition("in", partition)
            assert offsets[tp].offset == db.broker.offsets(tp).log_end_offset
        assert db.verify().ok


def together(records: list[eosdb.ConsumerRecord]) -> list[eosdb.ProducerRecord]:
    """One in ten is the guilty one."""
    for index, record in enumerate(records):
        try:
            handle(record)
        except ValueError as error:
            raise eosdb.BatchFailed(index, error) from error
    return [eosdb.ProducerRecord(value=record.value, key=record.key) for record in records]


def live(
    handler: Callable[[Any], object],
    settings: dict[str, Any],
    path: Path,
    clock: eosdb.Clock,
    lives_until: int,
) -> Failpoint | None:
    db = eosdb.connect(path, clock=clock, durability="off")
    return run_until_killed(db, handler, SETTINGS | settings, lives_until)


@pytest.mark.parametrize(
    ("handler", "settings"),
    [(handle, {"workers": 3}), (together, {"batch": True, "max_batch": 7})],
    ids=["workers", "batch"],
)
def test_killed_at_every_write_point_each_record_has_one_end(
    tmp_path: Path, handler: Callable[[Any], object], settings: dict[str, Any]
) -> None:
    template = tmp_path / "filled.db"
    make(template)
    with eosdb.connect(template, durability="off") as db:
        feed(db, range(COUNT))
    a_life = partial(live, handler, settings)
    assert killed_everywhere(template, a_life, lambda path: check(path, COUNT)) >= set(DEADLY)


@pytest.mark.parametrize("mode", MODES)
def test_killed_at_any_instant_while_partitions_move_each_record_has_one_end(
    tmp_path: Path, mode: str, seeds: list[int]
) -> None:
    path, count = tmp_path / "a.db", 0
    make(path)
    command = [sys.executable, "-m", "tests.crash.many_worker", str(path), mode]
    copies: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as cleanup:
        for seed in seeds:
            rng = random.Random(seed)
            for _ in range(KILLS_PER_RUN):
                while len(copies) < 2:
                    copy = subprocess.Popen(command, cwd=ROOT, env=environment())
                    copies.append(cleanup.enter_context(copy))
                    cleanup.callback(copy.kill)
                with eosdb.connect(path, durability="off") as db:
                    feed(db, range(count, count + 50))
                count += 50
                time.sleep(rng.random() * 0.5)
                copy = copies.pop(rng.randrange(2))
                copy.kill()
                assert copy.wait(PATIENCE_S) == -signal.SIGKILL
        copies[0].kill()
    run(str(path), mode, until_idle_ms=200)
    check(path, count)
