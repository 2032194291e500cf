"""On the machine's clock a consumer stays a member by itself, and a waiting poll is woken by a commit.

Nothing here depends on how fast the machine is: what must not happen would happen after a time-out that is
waited for, and what must happen is waited for as long as it takes.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import OffsetAndMetadata
from eosdb.system.road import road
from tests.client.consumer.members import TPS, shares
from tests.waiting import eventually

SESSION_MS = 2_000
"""A hundred heartbeats: even a slow machine finds the time for one of them."""
CONFIG = eosdb.BrokerConfig(group_min_session_timeout_ms=100)
FIRST = {TPS[0]: OffsetAndMetadata(1)}


@pytest.fixture
def real(db_path: Path) -> Iterator[eosdb.Database]:
    """A database on the machine's clock."""
    with eosdb.connect(db_path, durability="off", config=CONFIG) as opened:
        opened.admin.create_topic("t", partitions=4)
        yield opened


def member(db: eosdb.Database, **config: Any) -> eosdb.Consumer:
    often: Any = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 20}
    consumer = db.consumer("g", auto_offset_reset="earliest", **often | config)
    consumer.subscribe("t")
    return consumer


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "eosdb-heartbeat-g"]


def test_a_member_that_works_for_long_keeps_its_membership(real: eosdb.Database) -> None:
    consumer = member(real)
    eventually(lambda: consumer.metrics().get("heartbeat-total", 0) > 5)
    assert real.broker.describe_group("g").generation_id == 1
    consumer.commit(FIRST)
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
    eventually(lambda: real.broker.describe_group("g").state == "Empty")
    with pytest.raises(eosdb.UnknownMemberIdError):
        consumer.commit(FIRST)
    assert consumer.poll() == []
    assert shares(consumer) == [4]
    consumer.close()


def test_a_closed_or_forgotten_consumer_and_a_closed_database_leave_no_thread_behind(
    real: eosdb.Database,
) -> None:
    def joined() -> eosdb.Consumer:
        made = member(real)
        eventually(lambda: made.poll() == [] and shares(made) == [4])
        return made

    consumer = joined()
    assert len(threads()) == 1
    consumer.close()
    assert threads() == []
    consumer = joined()
    (thread,) = threads()
    del consumer
    while thread.is_alive():  # It may have the consumer in its hands just now.
        gc.collect()
        thread.join(0.01)
    consumer = joined()
    (thread,) = threads()
    real.close()
    thread.join()
    with pytest.raises(eosdb.DatabaseClosedError):
        consumer.poll()


@pytest.mark.process
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "looking"])
def test_a_waiting_poll_returns_when_another_process_writes(
    real: eosdb.Database, db_path: Path, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    if not is_told:
        monkeypatch.setattr(road, "watched", lambda _: None)
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
