"""Requests that reach a file through several databases, in turn, are answered as through a single one.

Each database remembers rows between its units. What it remembers must not outlive a change by another: so
one random history runs through a single database, and again spread over three. Both must give the same
answers and the same records, offsets and scheduled records.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

import eosdb
from eosdb import (
    BrokerConfig,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    Record,
    RecordBatch,
    TopicPartition,
)
from eosdb.errors import EosdbError
from tests.conftest import START_MS

pytestmark = pytest.mark.slow

ROUNDS: Final = 15
STEPS_OF_A_ROUND: Final = 15
PARTITIONS: Final = [TopicPartition("t", number) for number in range(3)]
IDS: Final = ("shop", "bank", "mill")
GROUPS: Final = ("g", "h")
EVERYTHING: Final = [
    eosdb.Acl("User:ANONYMOUS", "all", kind, name)
    for kind, name in (
        ("topic", "*"),
        ("group", "*"),
        ("transactional_id", "*"),
        ("cluster", "kafka-cluster"),
    )
]
FORGETFUL: Final = BrokerConfig(producer_id_expiration_ms=6_000, producer_id_block_size=2)
Step = Callable[[eosdb.Database], object]


@dataclass(slots=True)
class History:
    """The next step depends on the random numbers and the answers so far, and not on the database."""

    rng: random.Random
    clock: eosdb.ManualClock
    pairs: dict[str, ProducerIdAndEpoch] = field(default_factory=dict)
    sequences: dict[tuple[ProducerIdAndEpoch, TopicPartition], int] = field(default_factory=dict)
    seen: list[int] = field(default_factory=list)
    """Producer ids by their first appearance: each database takes other blocks of them."""

    def number(self, producer_id: int) -> int:
        if producer_id not in self.seen:
            self.seen.append(producer_id)
        return self.seen.index(producer_id)

    def init(self, db: eosdb.Database) -> object:
        name = self.rng.choice(IDS)
        self.pairs[name] = pair = db.broker.init_producer_id(name, 5_000)
        return self.number(pair.producer_id), pair.producer_epoch

    def init_plain(self, db: eosdb.Database) -> object:
        pair = db.broker.init_producer_id()
        assert pair.producer_id not in self.seen, "a producer id was given out twice"
        self.pairs[f"plain {len(self.seen)}"] = pair
        return self.number(pair.producer_id), pair.producer_epoch

    def append(self, db: eosdb.Database) -> object:
        name, at = self.rng.choice([*self.pairs, ""]), self.rng.choice(PARTITIONS)
        value = b"%d" % self.rng.randrange(10 ** self.rng.choice((3, 40)))
        records = [Record(value=value)] * self.rng.randrange(1, 3)
        if not name:
            return db.broker.append(at, RecordBatch(records)).base_offset
        pair = self.pairs[name]
        # Only a producer that its partition has forgotten may leave sequences out.
        sequence = self.sequences.get((pair, at), 0) + (self.rng.random() < 0.1)
        batch = RecordBatch(records, *pair, sequence, is_transactional=name in IDS)
        result = db.broker.append(at, batch, transactional_id=name if name in IDS else None)
        self.sequences[pair, at] = sequence + len(records)
        return result.base_offset, result.duplicate

    def commit_in_transaction(self, db: eosdb.Database) -> object:
        name, group = self.rng.choice(IDS), self.rng.choice(GROUPS)
        pair = self.pairs[name]
        offsets = {self.rng.choice(PARTITIONS): OffsetAndMetadata(self.rng.randrange(10**6))}
        db.broker.add_offsets_to_txn(name, *pair, group)
        db.broker.txn_offset_commit(name, group, *pair, offsets)
        return None

    def end(self, db: eosdb.Database) -> object:
        name = self.rng.choice(IDS)
        committed = self.rng.random() < 0.7
        self.pairs[name] = pair = db.broker.end_txn(name, *self.pairs[name], committed)
        offsets = [db.broker.offset_fetch(group) for group in GROUPS]
        return self.number(pair.producer_id), pair.producer_epoch, offsets

    def commit(self, db: eosdb.Database) -> object:
        offsets = {self.rng.choice(PARTITIONS): OffsetAndMetadata(self.rng.randrange(10**6))}
        db.broker.offset_commit(self.rng.choice(GROUPS), offsets)
        return None

    def schedule(self, db: eosdb.Database) -> object:
        """Two records, the later one first."""
        now = self.clock.time_ms()
        sooner, later = sorted(self.rng.sample(range(1, 3_000), 2))
        with db.begin() as tx:
            for after in (later, sooner):
                tx.publish("t", b"due %d" % (now + after), partition=0, deliver_at=now + after)
        return None

    def publish(self, db: eosdb.Database) -> object:
        with db.begin() as tx:
            key = str(self.rng.randrange(20))
            sent = tx.publish("t", b"once", partition=1, idempotency_key=key)
            return sent.offset, sent.duplicate

    def configure(self, db: eosdb.Database) -> object:
        size = self.rng.choice(("40", "1000"))
        return db.admin.alter_topic_config("t", {"max.message.bytes": size})

    def create(self, db: eosdb.Database) -> object:
        db.admin.create_topic("u", self.rng.randrange(1, 3), exist_ok=True)
        return db.broker.append(TopicPartition("u", 0), RecordBatch([Record()])).base_offset

    def delete(self, db: eosdb.Database) -> object:
        return db.admin.delete_topic("u")

    def delete_records(self, db: eosdb.Database) -> object:
        return db.broker.delete_records(self.rng.choice(PARTITIONS), -1)

    def forbid(self, db: eosdb.Database) -> object:
        """Nobody may write the topic u, or everybody."""
        acl = eosdb.Acl("User:*", "write", "topic", "u", "literal", "deny")
        if self.rng.random() < 0.5:
            return db.admin.create_acls([acl, *EVERYTHING])
        return len(db.admin.delete_acls(lambda one: one == acl))

    def wait(self, db: eosdb.Database) -> object:
        self.clock.advance(self.rng.choice((1, 500, 500, 4_000)))
        return None

    def steps(self) -> Iterator[Step]:
        """Few kinds at a time: a database forgets most at an event of many kinds."""
        kinds = [
            self.init, self.init_plain, self.append, self.commit_in_transaction, self.end, self.commit,
            self.schedule, self.publish, self.configure, self.create, self.delete, self.delete_records,
            self.forbid, self.wait,
        ]  # fmt: skip
        yield from [self.init] * 6
        for _ in range(ROUNDS):
            some = self.rng.sample(kinds, 2)
            yield from self.rng.choices([self.append, *some, *some], k=STEPS_OF_A_ROUND)


def played(folder: Path, seed: int, databases: int) -> tuple[list[object], object]:
    """The answer to each step, and what readers find at the end."""
    clock = eosdb.ManualClock(START_MS)
    rng, turns = random.Random(seed), random.Random(seed)
    history, answers = History(rng, clock), list[object]()
    with ExitStack() as opened:
        path = folder / f"{databases}.db"
        dbs = [
            opened.enter_context(
                eosdb.connect(path, clock=clock, durability="off", config=FORGETFUL)
            )
            for _ in range(databases)
        ]
        dbs[0].admin.create_topic("t", len(PARTITIONS))
        for step in history.steps():
            db = dbs[turns.randrange(databases)]
            try:
                answers.append((step.__name__, step(db)))
            except (EosdbError, KeyError) as error:
                answers.append((step.__name__, type(error).__name__))
        found = []
        for db in dbs:
            assert not db.verify().problems
            records = db.query(
                'SELECT topic, partition, "offset", value, status FROM all_records '
                'ORDER BY topic, partition, "offset"'
            )
            offsets = {group: db.broker.offset_fetch(group) for group in GROUPS}
            waiting = [(one.deliver_at, one.value) for one in db.admin.list_scheduled()]
            found.append((list(records.rows), offsets, waiting))
    assert all(one == found[0] for one in found)
    return answers, found[0]


def test_three_databases_answer_as_one(tmp_path: Path, seeds: list[int]) -> None:
    for seed in seeds:
        alone, beside = played(tmp_path, seed, 1), played(tmp_path, seed, 3)
        for number, (one, other) in enumerate(zip(alone[0], beside[0], strict=True)):
            assert one == other, f"step {number} of seed {seed}"
        assert alone[1] == beside[1], f"seed {seed}"
        for name in ("1.db", "3.db"):
            for path in tmp_path.glob(f"{name}*"):
                path.unlink()
