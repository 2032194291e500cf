"""Memory that runs out behind a commit, or as a lock is released: what is stored is not said to be lost,
and nobody is locked out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.store.writing.held_unit import HeldUnit
from eosdb.store.writing.timings import Timings
from tests.inside import mutex
from tests.readers import committed_values
from tests.requests import TP


def test_a_block_that_is_committed_is_not_said_to_be_unwritten(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python may find none to leave the `with` blocks around the commit."""
    db.admin.create_topic("t")
    translated, is_committing = HeldUnit._translated, list[bool]()
    monkeypatch.setattr(Timings, "committing", lambda _: is_committing.append(True))

    @contextlib.contextmanager
    def exhausted(held: HeldUnit) -> Iterator[None]:
        with translated(held):
            yield
            if is_committing and not held.is_whole:
                raise MemoryError

    monkeypatch.setattr(HeldUnit, "_translated", exhausted)
    with db.begin() as tx:
        tx.publish("t", "x")
    assert committed_values(db, TP) == [b"x"]


@pytest.mark.parametrize("way", ["write", "begin", "alone"])
def test_a_lock_is_released_when_there_is_memory_again(
    db: eosdb.Database, db_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.admin.create_topic("t")
    locks, tries = mutex(db), list[int]()
    release = locks.release

    def exhausted() -> None:
        tries.append(1)
        if len(tries) < 20:
            raise MemoryError
        release()

    monkeypatch.setattr(locks, "release", exhausted)
    if way == "write":
        db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"x")]))
    else:
        with getattr(db._store, way)():
            pass
    assert len(tries) == 20
    config = eosdb.BrokerConfig(lock_timeout_ms=0)
    with eosdb.connect(db_path, config=config) as other:
        other.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=b"y")]))


def test_a_poll_that_had_no_memory_for_its_records_is_repeated(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.admin.create_topic("t")
    for value in (b"x", b"y"):
        db.broker.append(TP, eosdb.RecordBatch([eosdb.Record(value=value)]))

    def exhausted(_: object) -> list[eosdb.ConsumerRecord]:
        raise MemoryError

    with db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        with monkeypatch.context() as patch, pytest.raises(MemoryError):
            patch.setattr("eosdb.client.consumer.consumer.records_of", exhausted)
            consumer.poll()
        assert [record.value for record in consumer.poll()] == [b"x", b"y"]
