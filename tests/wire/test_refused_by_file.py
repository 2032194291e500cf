"""What the file refuses ends the connection: no answer, and nothing that stands behind it is carried out.

Told of the refusal, librdkafka takes the acknowledgement of what was stored behind it for its own.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata.metadata import MetadataRequest

import eosdb
from eosdb import BrokerConfig
from eosdb.coordinator.coordinator import TransactionCoordinator
from eosdb.errors import (
    CorruptDatabaseError,
    DatabaseFullError,
    DatabaseLockedError,
    ReadOnlyDatabaseError,
    StorageError,
)
from eosdb.store.store import Store
from eosdb.wire.handlers import APIS
from eosdb.wire.messages import Response
from eosdb.wire.server import CarryOut, Server
from eosdb.wire.session import Session, asking
from tests.wire import every_api
from tests.wire.every_api import TABLE, TOPIC, Row
from tests.wire.peer import PATIENCE_S, Peer, batch, fetch, produce, produced
from tests.wire.peer import asking as made

pytestmark = pytest.mark.slow


def _read_only() -> ReadOnlyDatabaseError:
    """The file has become one that may not be written."""
    error = ReadOnlyDatabaseError("the file may not be written")
    error.__cause__ = sqlite3.OperationalError("attempt to write a readonly database")
    return error


REFUSALS: dict[str, Callable[[], Exception]] = {
    "locked": lambda: DatabaseLockedError("locked"),
    "full": lambda: DatabaseFullError("full"),
    "failing": lambda: StorageError("failing"),
    "read-only by now": _read_only,
    "out of memory": MemoryError,
}


class Refusing:
    """A part of the file that refuses whatever it is asked."""

    def __init__(self, part: object, error: Exception) -> None:
        self._part, self._error = part, error

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not callable(found):
            return found

        def refuse(*_: object, **__: object) -> None:
            raise self._error

        return refuse


class FirstRefused:
    """Has the file refuse the first request, once the one behind it has been sent."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.both_sent = threading.Event()
        self.names: list[str] = []

    def __call__(self, name: str, session: Session, carry_out: CarryOut) -> Response | None:
        self.names.append(name)
        if len(self.names) > 1:
            return carry_out(session)
        assert self.both_sent.wait(PATIENCE_S)
        core = session.core
        refusing = replace(
            core,
            store=cast(Store, Refusing(core.store, self._error)),
            coordinator=cast(TransactionCoordinator, Refusing(core.coordinator, self._error)),
        )
        broker, admin = asking(refusing, session.principal)
        return carry_out(replace(session, broker=broker, admin=admin))


@contextmanager
def two_requests(
    db: eosdb.Database, row: Row, error: Exception
) -> Iterator[tuple[Peer, ApiMessage, FirstRefused]]:
    """The row's request and a record behind it, sent on one connection to a file that refuses the first."""
    first = FirstRefused(error)
    request = row.make(every_api.prepare(db))
    with Server(db._core, interfere=first) as server, Peer(server) as peer:
        peer.send(request, row.version)
        behind = produce({(TOPIC, 1): batch(b"behind")})
        behind.API_VERSION = 9
        behind.with_header(correlation_id=99, client_id="peer")
        peer.socket.sendall(behind.encode(version=9, header=True, framed=True))
        first.both_sent.set()
        yield peer, request, first


def stored_behind(db: eosdb.Database) -> int:
    return db.broker.offsets(eosdb.TopicPartition(TOPIC, 1)).log_end_offset


def test_every_api_has_a_row() -> None:
    assert {row.request.API_KEY for row in TABLE} == set(APIS)


@pytest.mark.parametrize("row", [row for row in TABLE if row.uses_file], ids=lambda row: row.name)
def test_no_api_answers_for_a_file_that_refuses(db: eosdb.Database, row: Row) -> None:
    with (
        two_requests(db, row, StorageError("failing")) as (peer, request, first),
        pytest.raises(ConnectionError),
    ):
        peer.answer(request, row.version)
    assert first.names == [row.name.split()[0]]
    assert stored_behind(db) == 0


@pytest.mark.parametrize(
    "row", [row for row in TABLE if not row.uses_file], ids=lambda row: row.name
)
def test_what_needs_no_file_is_answered(db: eosdb.Database, row: Row) -> None:
    with two_requests(db, row, StorageError("failing")) as (peer, request, _):
        peer.answer(request, row.version)


WRITES = [
    row for row in TABLE if row.name in ("Produce", "EndTxn", "TxnOffsetCommit", "OffsetCommit")
]


@pytest.mark.parametrize("refusal", [*REFUSALS, "damaged"])
@pytest.mark.parametrize("row", WRITES, ids=lambda row: row.name)
def test_every_refusal_of_a_write_ends_the_connection(
    db: eosdb.Database, caplog: pytest.LogCaptureFixture, row: Row, refusal: str
) -> None:
    error = REFUSALS.get(refusal, lambda: CorruptDatabaseError("damaged"))()
    with (
        caplog.at_level(logging.WARNING, "eosdb.wire"),
        two_requests(db, row, error) as (peer, request, _),
        pytest.raises(ConnectionError),
    ):
        peer.answer(request, row.version)
    assert stored_behind(db) == 0
    (said,) = [found for found in caplog.records if found.__dict__["action"] == "refused_by_file"]
    assert said.__dict__["error"] == type(error).__name__
    assert said.exc_info is None


@pytest.mark.parametrize("lives", [{"return_value": 0}, {"side_effect": CorruptDatabaseError("x")}])
def test_a_damaged_partition_is_named_also_if_the_lives_are_damaged(
    db: eosdb.Database, lives: dict[str, Any]
) -> None:
    (row,) = (row for row in TABLE if row.name == "Fetch")
    with (
        mock.patch.object(Session, "leader_epoch", **lives),
        two_requests(db, row, CorruptDatabaseError("damaged")) as (peer, request, _),
    ):
        (found,) = peer.answer(request, row.version).responses
        assert [partition.error_code for partition in found.partitions] == [56]


def test_damaged_lives_are_an_error_of_the_partition_and_the_topic(db: eosdb.Database) -> None:
    db.admin.create_topic(TOPIC)
    damaged = mock.patch.object(Session, "leader_epoch", side_effect=CorruptDatabaseError("x"))
    with damaged, db.serve() as server, Peer(server) as peer:
        (found,) = peer.ask(fetch(0, topic=TOPIC), 11).responses
        assert [partition.error_code for partition in found.partitions] == [56]
        described = made(
            MetadataRequest, topics=[{"name": TOPIC}], allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
        )  # fmt: skip
        assert [topic.error_code for topic in peer.ask(described, 9).topics] == [56]


def test_a_file_opened_read_only_says_so(db_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic(TOPIC)
    with (
        eosdb.connect(db_path, read_only=True) as reader,
        reader.serve() as server,
        Peer(server) as peer,
    ):
        assert produced(peer.ask(produce({(TOPIC, 0): batch(b"a")}), 9)) == [(44, -1)]
        assert peer.ask(fetch(0, topic=TOPIC), 11).error_code == 0


class Holder:
    """Another program, which holds SQLite's write lock until the first request has been refused."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.all_sent = threading.Event()

    def __call__(self, name: str, session: Session, carry_out: CarryOut) -> Response | None:
        if name != "Produce" or not self.connection.in_transaction:
            return carry_out(session)
        assert self.all_sent.wait(PATIENCE_S)
        try:
            return carry_out(session)
        finally:
            self.connection.rollback()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_a_batch_does_not_overtake_the_one_that_found_the_file_locked(
    db_path: Path, acks: int, restarted: bool
) -> None:
    """Sent again on a new connection, to the same server or to one that was started meanwhile."""
    with eosdb.connect(db_path, config=BrokerConfig(lock_timeout_ms=20)) as db:
        db.admin.create_topic(TOPIC)
        who = db.broker.init_producer_id()
        holder = Holder(db_path)
        batches = [
            produce({(TOPIC, 0): batch(b"%d" % i, producer=who, sequence=i)}, acks=acks)
            for i in range(3)
        ]
        server = Server(db._core, interfere=holder)
        with Peer(server) as peer:
            holder.connection.execute("BEGIN IMMEDIATE")
            for one in batches:
                peer.send(one, 9)
            holder.all_sent.set()
            with pytest.raises(ConnectionError):
                peer.answer(batches[0], 9)
        if restarted:
            server.close()
            server = db.serve()
        with server, Peer(server) as again:
            assert [produced(again.ask(replaced(one), 9)) for one in batches] == [
                [(0, i)] for i in range(3)
            ]
        holder.connection.close()
        tp = eosdb.TopicPartition(TOPIC, 0)
        assert [r.value for r in db.broker.fetch(tp, 0).records] == [b"0", b"1", b"2"]


def replaced(request: Any) -> Any:
    """The request, for an answer."""
    request.acks = -1
    return request
