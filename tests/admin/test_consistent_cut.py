"""A cut through all partitions that shows every transaction whole or not at all, and never goes back."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from tests.random_log import random_log

TPS = [TopicPartition("t", i) for i in range(3)]


def ends(db: eosdb.Database) -> dict[TopicPartition, int]:
    return {tp: end for tp, (_, end) in db.admin.consistent_cut().items()}


def committed_data(db: eosdb.Database) -> dict[str, dict[TopicPartition, list[int]]]:
    """Where the data of each committed transaction is stored; values name their transaction."""
    found: dict[str, dict[TopicPartition, list[int]]] = defaultdict(lambda: defaultdict(list))
    for partition, offset, value in db.query(
        'SELECT partition, "offset", CAST(value AS TEXT) FROM all_records '
        "WHERE is_transactional AND control IS NULL AND status = 'committed'"
    ).rows:
        found[value][TopicPartition("t", partition)].append(offset)
    return found


def by_hand(db: eosdb.Database) -> dict[TopicPartition, int]:
    """From the last stable offsets down, until nothing is in part."""
    found = {tp: offsets.last_stable_offset for tp, offsets in db.admin.partition_offsets().items()}
    data = committed_data(db)
    while True:
        before = dict(found)
        for spans in data.values():
            if any(max(offsets) >= found[tp] for tp, offsets in spans.items()):
                for tp, offsets in spans.items():
                    found[tp] = min(found[tp], min(offsets))
        if found == before:
            return found


@pytest.fixture
def held(db: eosdb.Database) -> eosdb.Producer:
    """Which has a transaction open in partition 0, in front of one that is whole in 0 and 1."""
    db.admin.create_topic("t", partitions=3)
    open_one, whole = db.producer(transactional_id="open"), db.producer(transactional_id="whole")
    for producer in (open_one, whole):
        producer.init_transactions()
    open_one.begin_transaction()
    open_one.send("t", "open 0", partition=0)
    open_one.flush()
    db.broker.append(TPS[1], RecordBatch([Record(value=b"plain")]))
    with whole.transaction():
        whole.send("t", "whole 0", partition=0)
        whole.send("t", "whole 0", partition=1)
    return open_one


def test_a_transaction_does_not_hold_back_a_partition_that_has_nothing_of_it_any_more(
    db: eosdb.Database, held: eosdb.Producer
) -> None:
    assert ends(db)[TPS[1]] == 1
    db.broker.delete_records(TPS[1], 2)
    assert ends(db) == {TPS[0]: 0, TPS[1]: 3, TPS[2]: 0}


def test_a_transaction_behind_another_in_one_partition_is_hidden_in_all(
    db: eosdb.Database, held: eosdb.Producer
) -> None:
    assert db.broker.offsets(TPS[1]).last_stable_offset == 3
    assert ends(db) == {TPS[0]: 0, TPS[1]: 1, TPS[2]: 0}
    held.abort_transaction()
    assert ends(db) == {tp: db.broker.offsets(tp).log_end_offset for tp in TPS}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), version=st.sampled_from([1, 2]))
def test_it_is_the_furthest_such_cut_and_never_goes_back(seed: int, version: int) -> None:
    rng = random.Random(seed)
    with eosdb.connect(":memory:", clock=ManualClock(10**12)) as db:
        db.admin.create_topic("t", partitions=3)
        last = ends(db)
        for _ in random_log(
            db, rng, rng.randrange(1, 70), partitions=3, producers=4, version=version
        ):
            if rng.random() < 0.03:
                tp = rng.choice(TPS)
                db.broker.delete_records(tp, rng.randrange(last[tp] + 1))
            now = ends(db)
            assert now == by_hand(db)
            assert all(now[tp] >= last[tp] for tp in TPS)
            last = now
