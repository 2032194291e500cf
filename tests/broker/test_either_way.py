"""`db.begin()`, and `eosdb.join` on a connection of the program: rows, records, offsets are one commit."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import OffsetAndMetadata
from eosdb.errors import IllegalStateError
from tests.broker.test_joining import INSERT, TP, path, stored

pytestmark = pytest.mark.slow

__all__ = ["path"]
Execute = Callable[..., Any]
Way = Callable[[], AbstractContextManager[tuple[Any, Execute]]]


@pytest.fixture(params=["begin", "join"])
def way(request: pytest.FixtureRequest, path: Path) -> Iterator[Way]:
    """Begins a transaction on the application's file: what publishes in it, and what executes."""

    @contextlib.contextmanager
    def begin() -> Iterator[tuple[Any, Execute]]:
        with db.begin() as tx:
            yield tx, tx.connection.exec_driver_sql

    @contextlib.contextmanager
    def join() -> Iterator[tuple[Any, Execute]]:
        with own:
            yield eosdb.join(own), own.execute
        assert (own.row_factory, own.text_factory) == (sqlite3.Row, bytes)

    if request.param == "begin":
        with eosdb.connect(path) as db:
            yield begin
        return
    with contextlib.closing(sqlite3.connect(path)) as own:
        own.row_factory, own.text_factory = sqlite3.Row, bytes  # They are the program's.
        yield join


def test_rows_records_and_offsets_are_one_commit(way: Way, path: Path) -> None:
    """Who executes in it sees them at once, others when it has committed."""
    with eosdb.connect(path) as other:
        with way() as (tx, execute):
            execute(INSERT, ("tea",))
            sent = tx.publish("orders", key=b"42", value="tea", headers=[("h", b"1")])
            tx.commit_offsets("billing", {TP: OffsetAndMetadata(7, "m")})
            (seen,) = execute("SELECT count(*) FROM committed_records").fetchone()
            assert seen == 1
            assert not other.broker.fetch(TP, 0).records
        assert (sent.topic, sent.partition, sent.offset, sent.duplicate) == ("orders", 0, 0, False)
        (record,) = other.broker.fetch(TP, 0).records
        assert (record.key, record.value, record.headers) == (b"42", b"tea", (("h", b"1"),))
        assert other.broker.offset_fetch("billing") == {TP: OffsetAndMetadata(7, "m")}
    assert stored(path) == (["tea"], ["tea"])


def test_what_raises_leaves_nothing(way: Way, path: Path) -> None:
    with pytest.raises(ZeroDivisionError), way() as (tx, execute):
        execute(INSERT, ("tea",))
        tx.publish("orders", "tea", idempotency_key="1")
        tx.commit_offsets("billing", {TP: OffsetAndMetadata(7)})
        raise ZeroDivisionError
    with way() as (tx, _):  # The key is free, and the offset.
        assert tx.publish("orders", "cups", idempotency_key="1").offset == 0
    assert stored(path) == ([], ["cups"])
    with eosdb.connect(path) as db:
        assert db.broker.offset_fetch("billing") == {}


def test_a_refused_request_leaves_the_transaction_as_it_was(way: Way, path: Path) -> None:
    stranger = eosdb.ConsumerGroupMetadata("billing", 3, "nobody")
    with way() as (tx, execute):
        execute(INSERT, ("tea",))
        tx.publish("orders", "first")
        refusals: list[tuple[type[Exception], Callable[[], object]]] = [
            (eosdb.UnknownTopicOrPartitionError, lambda: tx.publish("nowhere", "x")),
            (eosdb.UnknownTopicOrPartitionError, lambda: tx.publish("orders", "x", partition=5)),
            (
                eosdb.MessageTooLargeError,
                lambda: tx.publish("orders", b"x" * 2_000_000, idempotency_key="big"),
            ),
            (TypeError, lambda: tx.publish("orders", 3)),
            (
                eosdb.GroupIdNotFoundError,
                lambda: tx.commit_offsets(stranger, {TP: OffsetAndMetadata(1)}),
            ),
        ]
        for error, publish in refusals:
            with pytest.raises(error):
                publish()
        tx.commit_offsets("billing", {TP: OffsetAndMetadata(1)})
        with pytest.raises(eosdb.UnknownMemberIdError):
            tx.commit_offsets(stranger, {TP: OffsetAndMetadata(2)})
        tx.publish("orders", "second", idempotency_key="big")
    assert stored(path) == (["tea"], ["first", "second"])
    with eosdb.connect(path) as db:
        assert db.broker.offset_fetch("billing") == {TP: OffsetAndMetadata(1)}


def test_a_savepoint_takes_its_records_back(way: Way, path: Path) -> None:
    """Nothing of them is remembered: offsets, keys and the journal go on behind what is left."""
    with way() as (tx, execute):
        tx.publish("orders", "before")
        execute("SAVEPOINT mine")
        assert tx.publish("orders", "never", idempotency_key="k").offset == 1
        execute("ROLLBACK TO mine")
        sent = tx.publish("orders", "after", idempotency_key="k")
        assert (sent.offset, sent.duplicate) == (1, False)
        execute("RELEASE mine")
    assert stored(path) == ([], ["before", "after"])


def test_rows_that_a_statement_returns_are_read_first(way: Way, path: Path) -> None:
    with way() as (tx, execute):
        result = execute("INSERT INTO shop VALUES ('a'), ('b') RETURNING what")
        with pytest.raises(IllegalStateError, match="RETURNING"):
            tx.publish("orders", "too early")
        assert len(result.fetchall()) == 2
        tx.publish("orders", "now")
    assert stored(path) == (["a", "b"], ["now"])
