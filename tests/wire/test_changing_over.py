"""A group changes over between the two protocols over the wire, between JoinGroup and the leader's
SyncGroup: of two members that have had a partition, one at most can commit it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

import eosdb
from eosdb import BrokerConfig
from eosdb.model.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
)
from eosdb.wire.server import Server
from tests.wire.group_requests import commit, join, sync
from tests.wire.peer import Peer
from tests.wire.test_consumer_groups import (
    ILLEGAL_GENERATION,
    NONE,
    beat,
    commit_in_transaction,
    id_of,
    told,
)
from tests.wire.test_shared_processing import WireWorker
from tests.wire.waiting import Waiting, eventually

REBALANCE_IN_PROGRESS, STALE_EPOCH = 27, 113
PARTITIONS = 3


def parts(numbers: Sequence[int]) -> tuple[eosdb.TopicPartition, ...]:
    return tuple(eosdb.TopicPartition("t", number) for number in numbers)


@dataclass
class Cooperative:
    """A classic member by requests, which remembers every partition that it has had, by generation."""

    peer: Peer
    member_id: str = ""
    generation_id: int = -1
    owned: list[int] = field(default_factory=list)
    had: set[tuple[int, int]] = field(default_factory=set)

    def join(self) -> Any:
        subscription = Subscription(("t",), parts(self.owned), self.generation_id).encode()
        answer = join(
            self.peer, self.member_id, 3, names=["cooperative-sticky"], metadata=subscription,
            session_timeout_ms=30_000,
        )  # fmt: skip
        assert answer.error_code == NONE
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        self.had |= {(self.generation_id, number) for number in self.owned}
        return answer

    def sync(self, given: Mapping[str, Sequence[int]] | None = None) -> int:
        """The error; without one it has what it is given."""
        gives = {who: encode_assignment(parts(some)) for who, some in (given or {}).items()}
        answer = sync(self.peer, self, 3, gives)
        if answer.error_code == NONE:
            self.owned = [tp.partition for tp in decode_assignment(answer.assignment)]
            self.had |= {(self.generation_id, number) for number in self.owned}
        return int(answer.error_code)


@pytest.fixture
def peers(server: Server) -> Iterator[list[Peer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Peer(server)) for _ in range(3)]


def committers(peer: Peer, had: dict[str, set[tuple[int, int]]]) -> list[set[str]]:
    """For each partition the members whose commits pass, of all that have had it, in any generation; in a
    transaction and without one."""
    passing: list[set[str]] = [set() for _ in range(2 * PARTITIONS)]
    for member, claims in had.items():
        for generation, index in claims:
            codes = (
                commit_in_transaction(peer, member, generation, index),
                commit(peer, member, generation, index=index),
            )
            assert {*codes} <= {NONE, ILLEGAL_GENERATION, STALE_EPOCH}
            for road, code in enumerate(codes):
                if code == NONE:
                    passing[road * PARTITIONS + index].add(member)
    return passing


@pytest.mark.slow
def test_of_all_that_have_had_a_partition_one_commits_it_however_the_group_changes_over(
    peers: list[Peer], db: eosdb.Database
) -> None:
    db.admin.create_partitions("t", PARTITIONS)
    asking, leader, other = peers[0], Cooperative(peers[1]), Cooperative(peers[2])
    leader.join()
    assert leader.sync({leader.member_id: range(PARTITIONS)}) == NONE
    coming = Waiting(other.join)
    eventually(lambda: len(db.broker.describe_group("g").members) == 2)
    leader.join()
    coming.answer()
    first, second = leader.member_id, other.member_id
    assert leader.sync({first: [0, 1]}) == other.sync() == NONE
    for given in ({first: [0, 1], second: [2]}, None):
        again = Waiting(leader.join)
        eventually(lambda: db.broker.describe_group("g").state == "PreparingRebalance")
        other.join()
        again.answer()
        if given is not None:
            assert leader.sync(given) == other.sync() == NONE

    # Both have joined the fourth generation, and the leader has not synced.
    new: set[tuple[int, int]] = set()
    had = {first: leader.had, second: other.had, "new": new}
    waiting = Waiting(other.sync)
    assert told(beat(asking, "new")) == (5, [])
    assert waiting.answer() == leader.sync({first: [0], second: [2]}) == REBALANCE_IN_PROGRESS
    assert committers(asking, had) == 2 * [{first}, {first}, {second}]

    # The coordinator takes one from the leader, which has it until it joins again without it.
    for classic in (leader, other):
        classic.join()
        assert classic.sync() == NONE
    assert (leader.owned, other.owned) == ([0], [2])
    assert told(beat(asking, "new", 5, {})) == (5, None)
    assert committers(asking, had) == 2 * [{first}, {first}, {second}]
    leader.join()
    assert leader.sync() == NONE
    assert told(beat(asking, "new", 5, {})) == (5, [1])
    new |= {(5, 1)}
    assert committers(asking, had) == 2 * [{first}, {"new"}, {second}]
    beat(asking, "new", 5, {id_of(db): [1]})

    # Back: the last member of the new protocol leaves.
    assert told(beat(asking, "new", -1)) == (-1, None)
    del had["new"]
    passing = committers(asking, had)
    assert passing == 2 * [{first}, set(), {second}]


# -- with real clients -----------------------------------------------------------------------------------


@pytest.fixture
def shop(db_path: Path) -> Iterator[eosdb.Database]:
    config = BrokerConfig(group_consumer_heartbeat_interval_ms=100)
    with eosdb.connect(db_path, durability="off", config=config) as opened:
        opened.admin.create_topic("in", partitions=2)
        opened.admin.create_topic("out")
        yield opened
        assert opened.verify().ok


@pytest.mark.slow
def test_what_a_leader_has_read_before_its_sync_nobody_copies_again(shop: eosdb.Database) -> None:
    """kafka-python leads and has read everything. Its assignor stands between JoinGroup and SyncGroup until
    librdkafka has joined by the new protocol; then its transaction is committed."""

    def send(numbers: range) -> None:
        with shop.producer() as producer:
            for number in numbers:
                producer.send("in", b"%d" % number, partition=number % 2)

    send(range(10))
    with shop.serve() as server:
        worker: list[WireWorker] = []

        def change_over() -> None:
            worker.append(WireWorker(server, {"group.protocol": "consumer"}))
            eventually(lambda: new_member(shop) is not None)
            if new_member(shop):  # It has been given what the leader has read.
                eventually(lambda: worker[0].copied > 0)
            commit_read()

        class Standing(CooperativeStickyAssignor):
            is_second = False

            def assign(self, cluster: Any, members: Any) -> Any:
                if Standing.is_second:
                    change_over()
                return super().assign(cluster, members)

        kafkas: Any = kafka
        where = {"bootstrap_servers": server.bootstrap_servers}
        consumer = kafkas.KafkaConsumer(
            "in", group_id="g", auto_offset_reset="earliest", enable_auto_commit=False,
            partition_assignment_strategy=[Standing], **where,
        )  # fmt: skip
        producer = kafkas.KafkaProducer(transactional_id="classic", **where)
        producer.init_transactions()
        producer.begin_transaction()
        at: dict[Any, Any] = {}

        def read() -> bool:
            for partition, records in consumer.poll(timeout_ms=50).items():
                for record in records:
                    producer.send("out", record.value)
                    at[partition] = kafkas.OffsetAndMetadata(record.offset + 1, "", -1)
            return [it.offset for it in at.values()] == [5, 5]

        def commit_read() -> None:
            producer.send_offsets_to_transaction(at, consumer.group_metadata())
            producer.commit_transaction()

        eventually(read)
        Standing.is_second = True
        consumer.subscribe(["in", "more"])  # Joins again.
        eventually(lambda: not consumer.poll(timeout_ms=50) and bool(new_member(shop)))
        consumer.close()
        send(range(10, 20))
        eventually(lambda: worker[0].copied >= 10)
        worker[0].stop()
        producer.close()
    with shop.consumer(auto_offset_reset="earliest", isolation_level="read_committed") as reader:
        reader.subscribe(["out"])
        values = sorted(str(record.value) for record in reader.poll(0))
    assert values == sorted(str(b"%d" % number) for number in range(20))


def new_member(db: eosdb.Database) -> int | None:
    """How many partitions the member of the new protocol has been given; None while there is none."""
    try:
        members = db.broker.describe_consumer_group("g").members
    except eosdb.GroupIdNotFoundError:
        return None
    return sum(len(it.assignment) for it in members if not it.is_classic)
