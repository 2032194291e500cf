"""On the machine's clock a consumer stays a member by itself, and a waiting poll is woken by a commit.

Nothing here depends on how fast the machine is: what must not happen would happen after a time-out that is
waited for, and what must happen is waited for as long as it takes.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.system.road import road

SESSION_MS = 2_000
"""A hundred heartbeats: even a slow machine finds the time for one of them."""


@pytest.fixture
def real(db_path: Path) -> Iterator[eosdb.Database]:
    """A database on the machine's clock."""
    config = eosdb.BrokerConfig(group_min_session_timeout_ms=100)
    with eosdb.connect(db_path, durability="off", config=config) as opened:
        opened.admin.create_topic("t", partitions=2)
        yield opened


def member(db: eosdb.Database, **config: int) -> eosdb.Consumer:
    settings = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 20, **config}
    consumer = db.consumer("g", auto_offset_reset="earliest", **settings)  # type: ignore[arg-type]
    consumer.subscribe("t")
    return consumer


@pytest.mark.slow
def test_a_member_that_works_for_long_keeps_its_membership(real: eosdb.Database) -> None:
    consumer = member(real)
    generation = consumer.group_metadata().generation_id
    time.sleep(1.2 * SESSION_MS / 1000)
    real.housekeeping()
    assert real.broker.describe_group("g").generation_id == generation
    consumer.commit({eosdb.TopicPartition("t", 0): eosdb.OffsetAndMetadata(1)})
    consumer.close()


def test_joining_renews_the_session_so_no_heartbeat_follows_at_once(real: eosdb.Database) -> None:
    consumer = member(real, session_timeout_ms=60_000, heartbeat_interval_ms=20_000)
    consumer.poll(50)
    counts = consumer.metrics()
    assert counts["join-group-total"] == 1
    assert counts.get("heartbeat-total", 0) == 0
    consumer.close()


def test_a_member_that_never_polls_again_leaves_by_itself(real: eosdb.Database) -> None:
    consumer = member(real, max_poll_interval_ms=50)
    while real.broker.describe_group("g").state != "Empty":
        time.sleep(0.01)
    with pytest.raises(eosdb.UnknownMemberIdError):
        consumer.commit({eosdb.TopicPartition("t", 0): eosdb.OffsetAndMetadata(1)})
    assert consumer.poll() == []
    assert len(consumer.assignment()) == 2
    consumer.close()


def test_a_closed_consumer_leaves_no_thread_behind(real: eosdb.Database) -> None:
    before = set(threading.enumerate())
    consumer = member(real)
    assert set(threading.enumerate()) > before
    consumer.close()
    assert set(threading.enumerate()) <= before


def test_when_the_database_is_closed_its_consumers_threads_end(real: eosdb.Database) -> None:
    consumer = member(real)
    (thread,) = [t for t in threading.enumerate() if t.name == "eosdb-heartbeat-g"]
    real.close()
    thread.join()
    with pytest.raises(eosdb.DatabaseClosedError):
        consumer.poll()


def test_a_forgotten_consumer_leaves_no_thread_behind(real: eosdb.Database) -> None:
    consumer = member(real)
    (thread,) = [t for t in threading.enumerate() if t.name == "eosdb-heartbeat-g"]
    del consumer
    gc.collect()
    thread.join()


@pytest.mark.process
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "looking"])
def test_a_waiting_poll_returns_when_another_process_writes(
    real: eosdb.Database, db_path: Path, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    if not is_told:
        monkeypatch.setattr(road, "watched", lambda _: -1)
    consumer = real.consumer(auto_offset_reset="earliest")
    consumer.subscribe("t")
    code = f"import eosdb; eosdb.connect({str(db_path)!r}).producer().send('t', b'v').result()"
    with subprocess.Popen([sys.executable, "-c", code]) as writer:
        assert [record.value for record in consumer.poll(timeout_ms=60_000)] == [b"v"]
        assert writer.wait() == 0


def test_a_waiting_poll_is_woken_by_another_thread(real: eosdb.Database) -> None:
    consumer = real.consumer()
    consumer.subscribe("t")
    threading.Timer(0.2, consumer.wakeup).start()
    with pytest.raises(eosdb.WakeupError):
        consumer.poll(timeout_ms=60_000)
