"""What a server does with bytes that are no request, with clients that stall, and with too many of them."""

from __future__ import annotations

import errno
import gc
import logging
import resource
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from kafka.protocol.metadata.metadata import MetadataRequest
from kafka.protocol.producer.produce import ProduceRequest

import eosdb
from eosdb.wire import server as serving
from eosdb.wire.handlers import k01_fetch
from eosdb.wire.limits import Limits, Memory
from eosdb.wire.parking import REAL_TIME, Parking
from eosdb.wire.server import Server
from tests.requests import TP
from tests.wire.peer import batch, produce
from tests.wire.raw import (
    API_VERSIONS,
    FETCH,
    FOREVER_MS,
    METADATA,
    PATIENCE_S,
    PRODUCE,
    Raw,
    eventually,
    fetching,
    fill,
    header,
    message,
    resident_bytes,
    served,
)


@pytest.fixture
def server(db: eosdb.Database, caplog: pytest.LogCaptureFixture) -> Iterator[Server]:
    caplog.set_level(logging.WARNING, logger="eosdb.wire")
    with served(db) as server:
        yield server


def check_refused(
    server: Server, caplog: pytest.LogCaptureFixture, sent: bytes, reason: str
) -> None:
    """The connection is closed, which one line says, and the server goes on."""
    with Raw(server) as raw:
        raw.send(sent)
        assert raw.is_closed()
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert reason in caplog.text
    assert "Traceback" not in caplog.text
    with Raw(server) as raw:
        assert raw.is_alive()


@pytest.mark.parametrize("size", [-1, -(2**31), 104_857_601, 2**31 - 1])
def test_a_size_beyond_the_limit_closes_the_connection(
    server: Server, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    check_refused(server, caplog, struct.pack(">i", size), f"a frame of {size} bytes, at most")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "bad request header"),
        (b"\0\x12\0", "bad request header"),
        (struct.pack(">hhih", API_VERSIONS, 0, 1, -2), "a client id of -2 bytes"),
        (struct.pack(">hhih", API_VERSIONS, 0, 1, 9), "a client id of 9 bytes in a frame of 10"),
        (header(-5, 0), "API -5 is not served"),
        (header(4, 0), "API 4 is not served"),
        (header(METADATA, -1), "Metadata version -1 is not served, 0 to 13 are"),
        (header(FETCH, 19), "Fetch version 19 is not served, 4 to 18 are"),
    ],
)
def test_what_is_no_request_closes_the_connection(
    server: Server, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
) -> None:
    check_refused(server, caplog, struct.pack(">i", len(content)) + content, reason)


def test_a_later_version_of_apiversions_is_answered_in_the_first_one(server: Server) -> None:
    with Raw(server) as raw:
        raw.send_frame(header(API_VERSIONS, 99, 5) + b"whatever that version has")
        answer = raw.answer()
        assert answer is not None
        assert struct.unpack_from(">ih", answer) == (5, 35)
        assert raw.is_alive()


def test_requests_that_come_in_single_bytes_and_in_one_piece_are_answered_in_order(
    server: Server,
) -> None:
    connection = [header(API_VERSIONS, 0, number) for number in range(20)]
    sent = b"".join(struct.pack(">i", len(frame)) + frame for frame in connection)
    with Raw(server) as one, Raw(server) as other:
        one.send(sent)
        for byte in sent:
            other.send(bytes([byte]))
        for raw in (one, other):
            answers = [raw.answer() or b"" for _ in connection]
            assert [struct.unpack_from(">i", answer)[0] for answer in answers] == list(range(20))


@pytest.mark.slow
def test_a_frame_that_is_announced_and_does_not_come_costs_no_memory_and_ends(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="eosdb.wire")
    before = resident_bytes()
    with served(db, transfer_s=1.0, frame_bytes=2**30) as server:
        raws = [Raw(server) for _ in range(100)]
        for raw in raws:
            raw.send(struct.pack(">i", 104_857_600) + b"\0")
        assert eventually(lambda: len(server._connections) == 100, REAL_TIME)
        grown = resident_bytes() - before
        assert grown < 100_000_000, f"{grown} bytes for 100 frames of 100 MiB that did not come"
        with Raw(server) as raw:
            assert raw.is_alive()
        for raw in raws:
            raw.socket.close()
        with Raw(server) as raw:
            raw.send(struct.pack(">i", 10) + b"\0")
            assert raw.is_closed()
    assert "received 1 of the 10 bytes of a frame in 1 s" in caplog.text


def test_a_client_that_asks_nothing_for_too_long_is_closed_without_a_word(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="eosdb.wire")
    with served(db, idle_s=0.2) as server, Raw(server) as raw:
        assert raw.is_alive()
        assert raw.is_closed()
    assert not caplog.records


def test_one_connection_too_many_is_closed_at_once_and_said_once(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="eosdb.wire")
    with served(db, connections=2) as server:
        with Raw(server) as one, Raw(server) as two:
            assert one.is_alive()
            assert two.is_alive()
            for _ in range(3):
                with Raw(server) as three:
                    assert three.is_closed()
        assert [r.getMessage() for r in caplog.records] == [
            "2 connections, further ones are closed at once"
        ]

        def has_room() -> bool:
            with Raw(server) as raw:
                try:
                    return raw.is_alive()
                except ConnectionError:
                    return False

        assert eventually(has_room, REAL_TIME)


@pytest.mark.slow
def test_a_client_that_never_reads_is_cut_off_and_disturbs_nobody(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="eosdb.wire")
    with served(db, transfer_s=1.0) as server, Raw(server, receive_buffer=4096) as deaf:
        fill(db)
        deaf.socket.settimeout(0.1)
        asked = 0
        while asked < 200:
            try:
                deaf.send_frame(fetching(max_wait_ms=0))
            except OSError:  # Neither side reads any longer.
                break
            asked += 1
        with Raw(server) as other:
            assert other.is_alive()
            assert eventually(lambda: "closed the connection" in caplog.text, REAL_TIME)
            assert other.is_alive()
    assert "bytes of a response in" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.slow
def test_a_client_that_goes_during_a_long_poll_leaves_no_thread_behind(db: eosdb.Database) -> None:
    with served(db) as server:
        raws = [Raw(server) for _ in range(20)]
        for raw in raws:
            raw.send_frame(fetching(max_wait_ms=FOREVER_MS))
        assert eventually(lambda: len(server._parking._waiters) == 20, REAL_TIME)
        for number, raw in enumerate(raws):
            if number % 2:  # A reset instead of an end.
                linger = struct.pack("ii", 1, 0)
                raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            raw.socket.close()
        assert eventually(lambda: not server._connections, REAL_TIME)


@pytest.mark.slow
def test_a_long_poll_with_further_requests_behind_it_is_ended_by_its_client_all_the_same(
    db: eosdb.Database,
) -> None:
    with served(db) as server:
        with Raw(server) as raw:
            raw.send_frame(fetching(max_wait_ms=FOREVER_MS))
            raw.send_frame(header(API_VERSIONS, 0))
            assert eventually(lambda: len(server._parking._waiters) == 1, REAL_TIME)
        assert eventually(lambda: not server._connections, REAL_TIME)


def test_closing_ends_with_clients_that_wait_stall_and_do_not_read(db: eosdb.Database) -> None:
    with served(db, close_s=1.0) as server:
        fill(db)
        waits, stalls, deaf = Raw(server), Raw(server), Raw(server, receive_buffer=4096)
        waits.send_frame(fetching(max_wait_ms=FOREVER_MS, offset=20))
        stalls.send(struct.pack(">i", 100) + b"\0")
        for _ in range(20):
            deaf.send_frame(fetching(max_wait_ms=0))
        assert eventually(lambda: len(server._parking._waiters) == 1, REAL_TIME)
        assert eventually(lambda: len(server._connections) == 3, REAL_TIME)
        threads = list(server._connections.values())
        server.close()
        assert [thread.is_alive() for thread in threads] == [False] * 3
        answer = waits.answer()
        assert answer is not None, "what waited is answered"
        assert waits.is_closed()
        assert stalls.is_closed()
    for raw in (waits, stalls, deaf):
        raw.socket.close()


def test_connections_are_watched_for_machines_that_vanish(server: Server) -> None:
    with Raw(server) as raw:
        assert raw.is_alive()
        (connection,) = server._connections
        sock = connection._socket
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


def test_a_server_without_descriptors_waits_and_goes_on(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="eosdb.wire")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with served(db) as server, Raw(server) as before:
        assert before.is_alive()
        waiting = socket.socket()
        waiting.settimeout(60)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, hard))
            waiting.connect((server.host, server.port))
            assert eventually(lambda: "cannot accept connections" in caplog.text, REAL_TIME)
            assert before.is_alive()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with waiting:
            content = header(API_VERSIONS, 0)
            waiting.sendall(struct.pack(">i", len(content)) + content)
            assert waiting.recv(1)
    assert caplog.text.count("cannot accept connections") == 1


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EMFILE, "no descriptor"), RuntimeError("no thread"), MemoryError("no memory")],
    ids=lambda error: type(error).__name__,
)
def test_what_the_system_refuses_once_ends_no_thread_of_the_server(
    db: eosdb.Database, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_once(kind: type, name: str) -> threading.Event:
        real, failed = getattr(kind, name), threading.Event()

        def function(*given: object) -> object:
            if failed.is_set():
                return real(*given)
            failed.set()
            raise error

        monkeypatch.setattr(kind, name, function)
        return failed

    refused = fail_once(Server, "_take")
    with served(db) as server:
        with Raw(server):
            assert refused.wait(PATIENCE_S)
        with Raw(server) as raw:
            assert raw.is_alive()
            if not isinstance(error, RuntimeError):  # The watcher starts no threads.
                assert fail_once(Parking, "_is_something_due").wait(PATIENCE_S)
            raw.send_frame(fetching(max_wait_ms=FOREVER_MS))
            assert eventually(lambda: len(server._parking._waiters) == 1, REAL_TIME)
            db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"v")]))
            assert raw.answer() is not None


def test_a_mistake_of_ours_is_an_unknown_server_error_where_the_answer_has_a_place_for_it(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(k01_fetch, "_read", fail)
    with Raw(server) as raw:
        raw.send_frame(fetching(max_wait_ms=0))
        answer = raw.answer()
        assert answer is not None
        assert struct.unpack_from(">iih", answer) == (1, 0, -1)
        assert raw.is_alive()
    assert "Fetch version 11 failed: a mistake" in caplog.text
    caplog.clear()
    with Raw(server) as raw:
        raw.send_frame(fetching(max_wait_ms=0, version=4))
        assert raw.is_closed()
    assert "closed the connection" in caplog.text


def test_an_answer_is_no_larger_than_the_room_that_is_left(db: eosdb.Database) -> None:
    with served(db, buffered_bytes=2_000_000) as server, Raw(server) as raw:
        fill(db)
        raw.send_frame(fetching(max_wait_ms=0))
        answer = raw.answer()
        assert answer is not None
        assert 100_000 < len(answer) < 400_000
        assert raw.is_alive()
        assert server._memory.used == 0


@pytest.mark.slow
def test_everything_that_was_taken_of_the_memory_is_given_back(db: eosdb.Database) -> None:
    with served(db, buffered_bytes=300_000) as server:
        for _ in range(20):
            with Raw(server) as raw:
                raw.send(struct.pack(">i", 1_000_000) + bytes(250_000))
                assert eventually(lambda: server._memory.used > 100_000, REAL_TIME)
            assert eventually(lambda: server._memory.used == 0, REAL_TIME)


@pytest.mark.slow
def test_frames_wait_for_room_and_all_get_it_in_the_end(db: eosdb.Database) -> None:
    names = ["x" * 200] * 5_000
    Topic = MetadataRequest.MetadataRequestTopic
    content = message(MetadataRequest(topics=[Topic(name=name) for name in names]), 0)
    with served(db, buffered_bytes=100_000) as server:
        raws = [Raw(server) for _ in range(4)]
        for raw in raws:
            raw.send(struct.pack(">i", len(content)) + content[: len(content) // 2])
        for raw in raws:
            raw.send(content[len(content) // 2 :])
        for raw in raws:
            assert raw.answer() is not None
            raw.socket.close()


@pytest.mark.slow
def test_large_frames_that_stall_keep_nobody_from_being_read(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="eosdb.wire")

    def answered(server: Server, size: int) -> bool:
        with Raw(server) as raw:
            raw.send_frame(message(produce({("t", 0): batch(bytes(size))}), 9))
            return raw.answer() is not None

    mib = 1_048_576
    with served(db, buffered_bytes=16 * mib, transfer_s=600.0) as server:
        large = server._memory.large
        with Raw(server) as one, Raw(server) as beyond:
            for number, raw in enumerate((one, beyond), start=1):
                raw.send(struct.pack(">i", 90 * mib) + bytes(9 * mib))
                read = (9 * mib - 65_536) * number
                assert eventually(lambda read=read: large.used >= read, REAL_TIME)  # type: ignore[misc]
            assert answered(server, 500_000), "there is room for small ones alone"
            assert large.used > large.size
            assert answered(server, 5 * mib), "large ones wait until those that stall are cut off"
        assert "of a frame, while others wait for its memory" in caplog.text
        assert eventually(lambda: server._memory.used == 0, REAL_TIME)


def test_time_without_room_is_not_the_clients(
    monkeypatch: pytest.MonkeyPatch, clock: eosdb.ManualClock
) -> None:
    monkeypatch.setattr(serving, "REAL_TIME", clock)
    patience = serving._Patience(30, Memory(100).lease())
    clock.advance(29_000)
    patience.renew()
    clock.advance(1_000_000)
    patience.extend()
    assert patience.seconds("nothing has come") <= 1
    clock.advance(1_000)
    with pytest.raises(TimeoutError, match="nothing has come in 30 s"):
        patience.seconds("nothing has come")


def test_limits_have_kafkas_defaults() -> None:
    assert (Limits().frame_bytes, Limits().idle_s) == (104_857_600, 600)


def test_an_unknown_partition_without_acks_ends_the_connection(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    Topic = ProduceRequest.TopicProduceData
    data = Topic.PartitionProduceData(index=7, records=b"no batch")
    topic = Topic(name="t", partition_data=[data])
    request = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1, topic_data=[topic])
    content = message(request, 9)
    assert request.API_KEY == PRODUCE
    check_refused(server, caplog, struct.pack(">i", len(content)) + content, "acks=0 failed")


@pytest.mark.slow
def test_a_batch_that_is_refused_leaves_nothing_in_memory(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error kept the calls that it came through, and so the batch, until Python looked for cycles."""
    Topic = ProduceRequest.TopicProduceData
    data = Topic.PartitionProduceData(index=0, records=batch(b"x") + bytes(20_000_000))
    topic = Topic(name="t", partition_data=[data])
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1, topic_data=[topic])
    content = message(request, 9)
    gc.disable()
    try:
        with Raw(server) as raw:
            sizes = []
            for _ in range(8):
                raw.send_frame(content)
                assert raw.answer() is not None
                assert raw.is_alive()
                sizes.append(resident_bytes())
        assert sizes[-1] - sizes[0] < 60_000_000
    finally:
        gc.enable()
