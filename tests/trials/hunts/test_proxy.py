"""Each fault of the proxy happens, once, between a foreign client and the server; exactly-once holds."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pytest
from confluent_kafka import Producer

import eosdb
from tests.readers import committed_values
from tests.requests import TP
from tests.trials.hunts.proxy import END_TXN, PRODUCE, Proxy
from tests.wire.clients import PATIENCE_S, consume, produce

pytestmark = pytest.mark.process

IDEMPOTENT: Final[dict[str, Any]] = {
    "enable.idempotence": True,
    "reconnect.backoff.ms": 1,
    "retry.backoff.ms": 1,
}


class Place:
    """A file, its server and the proxy before it."""

    def __init__(self, db: eosdb.Database, proxy: Proxy) -> None:
        self.db, self.proxy = db, proxy
        self.where = f"127.0.0.1:{proxy.port}"

    def values(self) -> list[bytes | None]:
        return committed_values(self.db, TP)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with eosdb.connect(tmp_path / "shop.db") as db, db.serve() as server:
        db.admin.create_topic(TP.topic)
        proxy = Proxy(server.port)
        try:
            yield Place(db, proxy)
        finally:
            proxy.close()


def test_what_it_is_not_told_to_change_goes_through(place: Place) -> None:
    produce(place.where, TP.topic, [b"a", b"b"])
    assert consume(place.where, TP.topic, 2) == [b"a", b"b"]
    assert not place.proxy.counts


def test_a_lost_answer_is_sent_again_and_stored_once(place: Place) -> None:
    place.proxy.lose_answer([PRODUCE])
    produce(place.where, TP.topic, [b"a", b"b"], **IDEMPOTENT)
    assert place.values() == [b"a", b"b"]
    assert place.proxy.counts == {"lost": 1}


@pytest.mark.parametrize("direction", ["requests", "answers"])
def test_a_connection_is_cut_at_any_byte(place: Place, direction: str) -> None:
    for number in range(0, 60, 20):
        place.proxy.cut(number, "requests" if direction == "requests" else "answers")
        produce(place.where, TP.topic, [b"%d" % number], **IDEMPOTENT)
    assert place.values() == [b"%d" % number for number in range(0, 60, 20)]
    assert place.proxy.counts["cut"] == 3


@pytest.mark.parametrize("behind", [0, 1])
def test_a_request_that_comes_twice_is_carried_out_once(place: Place, behind: int) -> None:
    producer = Producer({"bootstrap.servers": place.where, "transactional.id": "a", "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    for key in (PRODUCE, END_TXN):
        place.proxy.duplicate([key], behind if key == PRODUCE else 0)
        producer.begin_transaction()
        producer.produce(TP.topic, b"%d" % key, partition=TP.partition)
        producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TP.topic, b"last", partition=TP.partition)
    producer.commit_transaction(PATIENCE_S)
    while place.proxy.counts["duplicated"] < 2:
        producer.poll(0.01)
    assert place.values() == [b"0", b"26", b"last"]


def test_answers_are_late_until_it_is_over(place: Place) -> None:
    begin = monotonic()
    place.proxy.delay_answers(50)
    produce(place.where, TP.topic, [b"a"])
    assert monotonic() - begin >= 0.1, "ApiVersions, Metadata, Produce: three at least"
    place.proxy.delay_answers(3_600_000)
    producer = Producer({"bootstrap.servers": place.where, "socket.timeout.ms": 300_000})
    producer.produce(TP.topic, b"b")
    while place.proxy.counts["delayed"] < 4:
        producer.poll(0.01)
    place.proxy.clear()
    assert producer.flush(PATIENCE_S) == 0
    assert place.values() == [b"a", b"b"]


def test_it_refuses_connections_until_it_accepts_them_again(place: Place) -> None:
    # On a busy machine it may send a batch again.
    idempotent = {"linger.ms": 0, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": place.where, **idempotent})
    producer.produce(TP.topic, b"a")
    assert producer.flush(PATIENCE_S) == 0
    place.proxy.refuse()
    with (
        socket.create_connection(("127.0.0.1", place.proxy.port)) as refused,
        pytest.raises(ConnectionResetError),
    ):
        refused.recv(1)
    producer.produce(TP.topic, b"b")
    assert producer.flush(0.1) == 1
    place.proxy.accept()
    assert producer.flush(PATIENCE_S) == 0
    assert place.values() == [b"a", b"b"]
    assert place.proxy.counts["refused"] >= 1


def test_a_lost_answer_before_an_abort_costs_no_later_record(place: Place) -> None:
    """librdkafka gives the next transaction's record the sequence of the aborted one."""
    producer = Producer(
        {"bootstrap.servers": place.where, "transactional.id": "a", "linger.ms": 0, **IDEMPOTENT}
    )
    producer.init_transactions(PATIENCE_S)
    committed = [b"0", b"1", b"2"]
    for value in committed:
        lost = place.proxy.counts["lost"]
        place.proxy.lose_answer([PRODUCE])
        producer.begin_transaction()
        producer.produce(TP.topic, b"aborted", partition=TP.partition)
        while place.proxy.counts["lost"] == lost:
            producer.poll(0.01)
        producer.abort_transaction(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(TP.topic, value, partition=TP.partition)
        producer.commit_transaction(PATIENCE_S)
    assert place.values() == committed
