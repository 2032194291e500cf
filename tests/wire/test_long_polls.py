"""Long polls of many readers: what a waiting Fetch reads, and how often."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

import eosdb
from eosdb.wire.handlers import k01_fetch
from eosdb.wire.parking import REAL_TIME, Parking
from eosdb.wire.server import Server
from tests.requests import TP
from tests.wire.peer import Peer, asking
from tests.wire.raw import FOREVER_MS, Raw, eventually, fetching, header, message, served

READERS = 5


@pytest.fixture
def server(db: eosdb.Database) -> Iterator[Server]:
    with served(db) as server:
        yield server


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places that fetches have read, in order."""
    found: list[str] = []
    read = k01_fetch._read

    def counted(broker: Any, requested: Any, *rest: Any) -> Any:
        found.extend(str(place.topic) for place in requested)
        return read(broker, requested, *rest)

    monkeypatch.setattr(k01_fetch, "_read", counted)
    return found


def write(db: eosdb.Database, value: bytes = b"news") -> None:
    db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=value)]))


def wait_for(server: Server, count: int) -> None:
    assert eventually(lambda: len(server._parking._waiters) == count, REAL_TIME)


def test_a_fetch_from_the_ends_that_its_connection_was_told_waits_without_reading(
    server: Server, db: eosdb.Database, reads: list[str]
) -> None:
    with Raw(server) as raw:
        raw.send_frame(fetching(max_wait_ms=0))
        assert raw.answer() is not None
        reads.clear()
        raw.send_frame(fetching(max_wait_ms=FOREVER_MS))
        wait_for(server, 1)
        assert not reads
        write(db)
        answer = raw.answer()
        assert answer is not None
        assert b"news" in answer
        assert reads == ["t"]


def test_a_fetch_from_told_ends_reads_before_it_answers_with_nothing(
    server: Server, db: eosdb.Database
) -> None:
    """The topic may be another one of its name, with the same ends."""
    with Raw(server) as raw:
        for _ in range(2):
            raw.send_frame(fetching(max_wait_ms=0))
            assert b"news" not in (raw.answer() or b"")
        db.admin.delete_topic("t")
        raw.send_frame(fetching(max_wait_ms=FOREVER_MS))
        answer = raw.answer()
        assert answer is not None
        unknown_topic_or_partition = struct.pack(">ih", 0, 3)
        assert unknown_topic_or_partition in answer


def test_readers_whom_one_commit_wakes_at_one_place_share_one_look_and_what_is_read(
    server: Server, db: eosdb.Database, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._memory, "reading", threading.BoundedSemaphore(1))
    with contextlib.ExitStack() as opened:
        raws = [opened.enter_context(Raw(server)) for _ in range(READERS)]
        for raw in raws:
            raw.send_frame(fetching(max_wait_ms=FOREVER_MS))
        wait_for(server, READERS)
        reads.clear()
        write(db)
        for raw in raws:
            assert b"news" in (raw.answer() or b"")
    assert reads == ["t"]


def test_a_read_is_shared_with_nobody_who_may_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right of one of several readers at one place ends while all wait."""
    everybody = eosdb.Acl("User:*", "read", "topic", "t")
    root = eosdb.BrokerConfig(super_users="User:root")
    with eosdb.connect(tmp_path / "t.db", principal="User:root", config=root) as db:
        db.admin.set_password("alice", "secret")
        db.admin.create_acls([everybody])
        with served(db) as server, contextlib.ExitStack() as opened:
            monkeypatch.setattr(server._memory, "reading", threading.BoundedSemaphore(1))
            alice, *others = [opened.enter_context(Raw(server)) for _ in range(READERS)]
            for frame in (
                message(SaslHandshakeRequest(mechanism="PLAIN"), 1),
                message(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2),
            ):
                alice.send_frame(frame)
                alice.answer()
            for raw in (alice, *others):
                raw.send_frame(fetching(max_wait_ms=FOREVER_MS))
            wait_for(server, READERS)
            db.admin.create_acls([eosdb.Acl("User:alice", "read", "topic", "t", permission="deny")])
            write(db)
            assert all(b"news" in (raw.answer() or b"") for raw in others)
            assert b"news" not in (alice.answer() or b"")


def test_a_read_is_shared_only_within_an_isolation_level(
    server: Server, db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only read_committed is told which transactions were aborted."""
    monkeypatch.setattr(server._memory, "reading", threading.BoundedSemaphore(1))
    pair = db.broker.init_producer_id("x")
    batch = eosdb.RecordBatch([eosdb.Record(value=b"x" * 5_000)], *pair, 0, True)
    db.broker.append(TP, batch, transactional_id="x")
    with contextlib.ExitStack() as opened:
        peers = [opened.enter_context(Peer(server)) for _ in range(2 * READERS)]
        polls = [waiting(level, min_bytes=5_100) for level in (0, 1) for _ in range(READERS)]
        for peer, poll in zip(peers, polls, strict=True):
            peer.send(poll, 11)
        wait_for(server, len(peers))
        db.broker.end_txn("x", *pair, committed=False)
        for peer, poll in zip(peers, polls, strict=True):
            (part,) = peer.answer(poll, 11).responses[0].partitions
            assert part.records
            aborted = [one.producer_id for one in part.aborted_transactions or ()]
            assert aborted == [pair.producer_id] * poll.isolation_level


def test_a_shared_read_is_no_larger_than_a_client_takes(server: Server, db: eosdb.Database) -> None:
    large = eosdb.RecordBatch([eosdb.Record(value=b"x" * 100_000)] * 5)
    with contextlib.ExitStack() as opened:
        peers = [opened.enter_context(Peer(server)) for _ in range(READERS)]
        for offset in range(0, 30, 5):  # Which of them reads first depends on the threads.
            polls = [waiting(0, offset=offset) for _ in peers[1:]]
            polls.append(waiting(0, offset=offset, max_bytes=150_000))
            for peer, poll in zip(peers, polls, strict=True):
                peer.send(poll, 11)
            wait_for(server, len(peers))
            db.broker.append(TP, large)
            for peer, poll in zip(peers, polls, strict=True):
                (part,) = peer.answer(poll, 11).responses[0].partitions
                assert 0 < len(part.records) <= poll.max_bytes


def waiting(
    isolation_level: int, *, offset: int = 0, min_bytes: int = 1, max_bytes: int = 2**31 - 1
) -> FetchRequest:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 2**31 - 1}
    return asking(
        FetchRequest,
        max_wait_ms=FOREVER_MS,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[{"topic": "t", "partitions": [partition]}],
        forgotten_topics_data=[],
    )


def test_equal_conditions_are_looked_at_once_for_each_commit(
    server: Server, db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    own: list[bool] = []
    look, wake = k01_fetch._HaveMoved.__call__, Parking._wake

    def counted(parking: Parking, **given: bool) -> None:
        looks.append(0)
        wake(parking, **given)

    def looked(self: Any, broker: Any) -> bool:
        found = look(self, broker)
        if threading.current_thread().name == "eosdb-wire-watch":
            looks[-1] += 1
        else:
            own.append(found)
        return found

    monkeypatch.setattr(Parking, "_wake", counted)
    monkeypatch.setattr(k01_fetch._HaveMoved, "__call__", looked)
    with contextlib.ExitStack() as opened:
        raws = [opened.enter_context(Raw(server)) for _ in range(READERS)]
        for raw in raws:
            raw.send_frame(fetching(max_wait_ms=FOREVER_MS))
        # Each reader has one look of its own, before it waits.
        assert eventually(lambda: own == [False] * READERS, REAL_TIME)
        write(db)
        for raw in raws:
            assert raw.answer() is not None
    assert max(looks) == 1


def test_requests_that_come_with_others_are_kept_for_their_turn(server: Server) -> None:
    """One call reads several requests, and the beginning of the next one."""
    frames = [header(18, 0, number) for number in range(300)]
    sent = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    with Raw(server) as raw:
        raw.send(sent[:-7])
        answers = [raw.answer() or b"" for _ in frames[:-1]]
        raw.send(sent[-7:])
        answers.append(raw.answer() or b"")
    assert [struct.unpack_from(">i", answer)[0] for answer in answers] == list(range(300))
