"""Questions about what was before the history: answered as before, or refused; never answered wrongly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import BrokerConfig, ManualClock, TopicPartition, TransactionToken
from eosdb.maintenance import history
from tests.classic import transactional
from tests.conftest import START_MS

pytestmark = pytest.mark.slow

TPS = [TopicPartition("t", i) for i in range(3)]
IDS = ("a", "b", "c")


def transactions(
    db: eosdb.Database, clock: ManualClock, seed: int, version: int = 2
) -> list[TransactionToken]:
    """Of several producers, that commit, abort, time out, are succeeded, and of which some stay open."""
    rng = random.Random(seed)
    db.admin.create_topic("t", partitions=len(TPS), config={"retention.ms": -1})
    tokens, producers = list[TransactionToken](), dict[str, Any]()
    open_ones = set[str]()
    for _ in range(60):
        name = rng.choice(IDS)
        if name not in producers or rng.random() < 0.1:
            producers[name] = transactional(db, name, version)
            open_ones.discard(name)
        producer = producers[name]
        try:
            if name not in open_ones:
                tokens.append(producer.begin_transaction())
                open_ones.add(name)
            for tp in rng.sample(TPS, rng.randint(0, 2)):
                producer.send("t", f"{name} {len(tokens)}", partition=tp.partition)
                producer.flush()
            if rng.random() < 0.5:
                open_ones.discard(name)
                if rng.random() < 0.6:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
        except eosdb.EosdbError:
            del producers[name]
            open_ones.discard(name)
        clock.advance(rng.choice((0, 10, 1_000, 61_000)))
        if rng.random() < 0.05:
            db.broker.delete_records(rng.choice(TPS), -1)
            db.housekeeping()
    return [*tokens, TransactionToken("unknown", 0, 0), TransactionToken("a", 0, 900)]


def baselines(db: eosdb.Database, clock: ManualClock) -> Iterator[int]:
    """Moves the baseline step by step up to the newest event."""
    everything_goes = BrokerConfig(history_retention_ms=0)
    at = 0
    while moved := db._store.write(
        lambda unit: history.advance(unit, everything_goes, clock.time_ms())
    ):
        at += moved
        yield at


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(2))
def test_an_outcome_is_what_it_was_or_not_known_and_the_cut_the_same(
    tmp_path: Path, seed: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "EVENTS_PER_UNIT", 17)
    clock = ManualClock(START_MS)
    config = BrokerConfig(history_retention_ms=-1, history_retention_bytes=-1)
    with eosdb.connect(tmp_path / "a.db", clock=clock, config=config, durability="off") as db:
        tokens = transactions(db, clock, seed, version)
        outcomes = [db.outcome(token) for token in tokens]
        cut = db.admin.consistent_cut()
        assert {"committed", "aborted"} < set(outcomes)
        known = []
        for _ in baselines(db, clock):
            known.append(0)
            for token, outcome in zip(tokens, outcomes, strict=True):
                try:
                    assert db.outcome(token) == outcome, token
                except eosdb.InvalidRequestError as error:
                    assert "history.retention.ms" in str(error)
                else:
                    known[-1] += 1
            assert db.admin.consistent_cut() == cut
        assert len(known) > 8
        assert known == sorted(known, reverse=True), "what is forgotten stays so"
        assert known[0] > len(tokens) * 0.7
        assert version == 1 or known[-1] > 0, "the last one of an id is told by the baseline"


def test_a_transaction_is_hidden_in_all_partitions_when_only_its_markers_tell_of_its_end(
    db: eosdb.Database, clock: ManualClock
) -> None:
    db.admin.create_topic("t", partitions=2)
    open_one, whole = db.producer(transactional_id="open"), db.producer(transactional_id="whole")
    for producer in (open_one, whole):
        producer.init_transactions()
    open_one.begin_transaction()
    open_one.send("t", "open", partition=0)
    open_one.flush()
    with whole.transaction():
        whole.send("t", "whole", partition=0)
        whole.send("t", "whole", partition=1)
    cut = db.admin.consistent_cut()
    assert [end for _, end in cut.values()] == [0, 0]
    assert [*baselines(db, clock)]
    assert db.admin.consistent_cut() == cut


def test_back_to_the_baseline_and_no_further(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BrokerConfig(history_retention_ms=-1, history_retention_bytes=-1)
    with eosdb.connect(tmp_path / "a.db", clock=clock, config=config) as db:
        transactions(db, clock, 1)
        seen = {}
        last = int(str(db.info()["journal_position"]))
        for position in range(0, last + 1, 20):
            db.restore_to(tmp_path / f"before-{position}.db", position)
            with eosdb.connect(tmp_path / f"before-{position}.db", clock=clock) as then:
                seen[position] = [*then.query("SELECT * FROM all_records").rows]
        monkeypatch.setattr(history, "EVENTS_PER_UNIT", 17)
        at = next(at for at in baselines(db, clock) if at > last // 2)
        ((begun, time, *_),) = db.query("SELECT * FROM eosdb_baseline").rows
        assert begun == at == db.info()["history_position"]
        for position in (0, 1, begun - 1):
            with pytest.raises(eosdb.InvalidRequestError, match=rf"after event {begun} "):
                db.restore_to(tmp_path / "none.db", position)
        with pytest.raises(eosdb.InvalidRequestError, match=r"history\.retention\.ms"):
            db.restore_to(tmp_path / "none.db", timestamp=time - 1)
        assert db.restore_to(tmp_path / "time.db", timestamp=time) >= begun
        for position in {begun, begun + 1, *(p for p in seen if p > begun)}:
            path = tmp_path / f"after-{position}.db"
            assert db.restore_to(path, position) == position
            with eosdb.connect(path, clock=clock, config=config) as then:
                reached = int(str(then.info()["journal_position"]))
                assert reached >= position
                assert then.verify().ok
                if position in seen:
                    assert [*then.query("SELECT * FROM all_records").rows] == seen[position]
                who = then.broker.init_producer_id("new")
                assert who.producer_epoch == 0
                assert int(str(then.info()["journal_position"])) > reached
                assert then.verify().ok
