"""A database that is dropped without `close` keeps no lock file open, in whatever state it was dropped."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb.system import lock_file
from tests.readers import committed_values
from tests.requests import TP
from tests.waiting import eventually


def nothing(db: eosdb.Database) -> object:
    return None


def a_member(db: eosdb.Database) -> object:
    consumer = db.consumer("g")
    consumer.subscribe("t")
    consumer.poll(timeout_ms=0)
    return consumer


def a_block(db: eosdb.Database) -> object:
    block = db.begin()
    block.__enter__().publish("t", "never")
    return block


def a_transaction(db: eosdb.Database) -> object:
    producer = db.producer(transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", "never").result()
    return producer


@pytest.mark.slow
@pytest.mark.parametrize("use", [nothing, a_member, a_block, a_transaction])
def test_its_lock_files_are_closed_when_it_is_collected(
    use: Callable[[eosdb.Database], object], db: eosdb.Database, db_path: Path
) -> None:
    """Those of another database of the process stay, with their locks."""
    db.admin.create_topic("t")
    owner = db._store.owner_locks()
    owner.hold(7)
    before = set(lock_file._open)
    dropped = [use(eosdb.connect(db_path)) for _ in range(5 if use is not a_block else 1)]
    assert set(lock_file._open) > before
    del dropped

    def are_closed() -> bool:
        gc.collect()
        return set(lock_file._open) == before

    eventually(are_closed)  # A background thread has the object in hand for an instant.
    assert db._store.is_owned(7)
    with db.begin() as tx:
        tx.publish("t", "x")
    assert committed_values(db, TP) in ([], [b"x"])
    with eosdb.connect(db_path) as other:
        assert other.verify().ok


@pytest.mark.process
def test_a_fork_that_drops_it_leaves_the_parents_locks(db: eosdb.Database) -> None:
    owner = db._store.owner_locks()
    owner.hold(7)
    child = os.fork()
    if child == 0:
        db._store._mutex = None
        del db, owner
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert db._store.is_owned(7)
    db.admin.create_topic("t")
