"""Real processes share the work of a pipeline, are killed, suspended and replaced; every input has exactly
one result. `--seeds N` gives each of them N times as long."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

import eosdb
from tests.pipeline.crew import Crew, check_exactly_once, count
from tests.pipeline.worker import CONFIG, PAUSE_FILE, PAUSED_FILE, connect

pytestmark = pytest.mark.crash

SECONDS = 2.0
WAL_LIMIT_BYTES = 200 * 1024 * 1024


def test_workers_killed_suspended_and_added_do_each_input_once(
    tmp_path: Path, seeds: list[int]
) -> None:
    path = tmp_path / "workers.db"
    with Crew(path, random.Random(seeds[0])) as crew:
        crew.start("feed", "feed")
        for _ in range(4):
            crew.start("transform")
        crew.start("collect")
        until = time.monotonic() + SECONDS * len(seeds)
        while time.monotonic() < until:
            time.sleep(crew.rng.uniform(0.15, 0.5))
            crew.harm_somebody("transform")
        crew.wait_for(lambda: committed(path, "in") > 100)
        crew.finish("feed")
        crew.wait_until_drained()
        for name in list(crew.at_work):
            crew.finish(name)
    assert check_exactly_once(path) > 100


def test_a_zombies_commit_is_refused_with_the_groups_error(tmp_path: Path) -> None:
    path = tmp_path / "zombie.db"
    with Crew(path, random.Random(1)) as crew:
        crew.start("feed", "feed")
        zombie = crew.start("transform")
        crew.start("collect")
        crew.wait_for(lambda: committed(path, "out") > 0)
        path.with_name(PAUSE_FILE).touch()
        until_it_is_paused(crew, zombie)
        heir = crew.start("transform")
        crew.wait_for(lambda: {m.split("-")[0] for m in members(path)} == {heir})
        at_takeover = committed(path, "out")
        crew.wait_for(lambda: committed(path, "out") > at_takeover)
        path.with_name(PAUSED_FILE).unlink()
        crew.at_work[zombie].send_signal(signal.SIGCONT)
        crew.wait_for(lambda: len(members(path)) == 2)
        told = crew.finish(zombie)
        refusals = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "PRODUCER_FENCED")
        assert sum(told.get(f"errors-total:{name}", 0) for name in refusals) >= 1
        assert told["abort-total"] >= 1
        crew.finish("feed")
        crew.wait_until_drained()
        for name in list(crew.at_work):
            crew.finish(name)
    check_exactly_once(path)


def test_eight_processes_under_random_kills_lose_and_double_nothing(
    tmp_path: Path, seeds: list[int]
) -> None:
    path = tmp_path / "eight.db"
    wal = path.with_name("eight.db-wal")
    largest = 0
    with Crew(path, random.Random(seeds[0])) as crew:
        for number in range(3):
            crew.start("feed", f"feed{number}")
        for role in ("transform", "transform", "transform", "collect", "collect"):
            crew.start(role)
        until = time.monotonic() + SECONDS * len(seeds)
        while time.monotonic() < until:
            time.sleep(crew.rng.uniform(0.05, 0.25))
            crew.harm_somebody(crew.rng.choice(("feed", "transform", "collect")))
            largest = max(largest, wal.stat().st_size if wal.exists() else 0)
        crew.wait_for(lambda: committed(path, "in") > 100)
        for name in crew.names("feed"):
            crew.finish(name)
        crew.wait_until_drained()
        for name in list(crew.at_work):
            crew.finish(name)
    total = check_exactly_once(path)
    assert total > 100
    assert largest < WAL_LIMIT_BYTES
    assert not [name for name in crew.metrics if "Locked" in name]
    print(f"{total} inputs, WAL at most {largest / 1e6:.1f} MB, {dict(crew.metrics)}")


def until_it_is_paused(crew: Crew, name: str) -> None:
    """Stopped, that is, and not in the middle of a heartbeat's write: nobody else could write then."""
    process = crew.at_work[name]
    assert process.stdout is not None
    hasty = replace(CONFIG, lock_timeout_ms=2_000)
    while True:
        assert process.stdout.readline() == "paused\n"
        try:
            with eosdb.connect(crew.path, config=hasty) as db:
                db.housekeeping()
        except eosdb.DatabaseLockedError:
            process.send_signal(signal.SIGCONT)
        else:
            return


def committed(path: Path, topic: str) -> int:
    with connect(path) as db:
        return count(db)[topic]


def members(path: Path) -> list[str]:
    with connect(path) as db:
        if "transform" not in db.broker.list_groups():
            return []
        return [member.member_id for member in db.broker.describe_group("transform").members]
