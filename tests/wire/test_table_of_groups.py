"""Every row of the table of groups, its request over the wire in the newest version: one server for all.
Requests that wait for others are in test_groups.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.producer.transaction import TxnOffsetCommitRequest

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.errors import ApiError, MemberIdRequiredError
from eosdb.model.protocol.consumer_protocol import decode_assignment
from eosdb.wire.handlers import consumer_groups
from tests.broker.asked import Asked
from tests.coordinator.groups import steps
from tests.coordinator.groups.steps import Row, Step, check
from tests.coordinator.groups.table import TABLE, WAITS
from tests.wire.peer import Peer

NAMES: Final = {error.code: error.name for error in ApiError.__subclasses__()}
_Beat: Any = consumer_groups.ConsumerGroupHeartbeatRequest


class OverTheWire(Asked):
    """A group that is asked one of its steps over the wire, and the others by the broker's methods."""

    def __init__(self, db: eosdb.Database, row: Row, clock: ManualClock, peer: Peer) -> None:
        super().__init__(db, row.name, clock)
        self.peer, self.over_wire = peer, row.request

    def ask(self, step: Step) -> str:
        if step is not self.over_wire:
            return super().ask(step)
        match step:
            case steps.Join():
                return self.join_over_wire(step)
            case steps.Sync():
                return self.sync_over_wire(step)
            case steps.Hello():
                return self.hello_over_wire(step)
            case steps.Commit():
                return self.commit_over_wire(step)
            case steps.Beat() | steps.Leave() | steps.Fetch() | steps.DeleteOffset():
                return self.short_answer(step)
            case _:
                raise AssertionError(step)

    def member(self, step: Any) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "member_id": self.id_of(step.who),
            "group_instance_id": step.instance,
        }

    def join_over_wire(self, step: steps.Join) -> str:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        protocols = [protocol(name=name, metadata=said) for name, said in step.protocols]
        given = self.member(step) | {"member_id": self.ids.get(step.who, step.who * step.is_known)}
        for _ in range(2):  # Its id comes with the first answer.
            request = JoinGroupRequest(
                **given, session_timeout_ms=step.session_ms, protocol_type=step.kind,
                rebalance_timeout_ms=step.rebalance_ms, protocols=protocols,
            )  # fmt: skip
            answer = self.peer.ask(request, 9)
            if answer.error_code != MemberIdRequiredError.code:
                break
            given["member_id"] = answer.member_id
        if answer.error_code:
            return NAMES[answer.error_code]
        self.ids[step.who] = answer.member_id
        names = {member_id: name for name, member_id in self.ids.items()}
        leader = names[answer.leader] if answer.leader else "nobody"
        return f"{answer.generation_id} {answer.protocol_name}, {leader} leads"

    def sync_over_wire(self, step: steps.Sync) -> str:
        assignment = SyncGroupRequest.SyncGroupRequestAssignment
        gives = self.assignments(step).items()
        request = SyncGroupRequest(
            **self.member(step), generation_id=self.generation(step),
            protocol_type=step.kind or "consumer", protocol_name=step.name or "range",
            assignments=[assignment(member_id=who, assignment=data) for who, data in gives],
        )  # fmt: skip
        answer = self.peer.ask(request, 5)
        if answer.error_code:
            return NAMES[answer.error_code]
        return steps.shortened(decode_assignment(answer.assignment)) or "nothing"

    def hello_over_wire(self, step: steps.Hello) -> str:
        part = _Beat.TopicPartitions
        owned = self.owned(step.owns)
        request = _Beat(
            group_id=self.group_id, member_id=step.who, instance_id=step.instance,
            rack_id=step.rack, subscribed_topic_regex=step.regex, server_assignor=step.assignor,
            member_epoch=self.epoch(step.who) if step.epoch is None else step.epoch,
            rebalance_timeout_ms=-1 if step.rebalance_ms is None else step.rebalance_ms,
            subscribed_topic_names=None if step.topics is None else step.topics.split(),
            topic_partitions=None if owned is None else [
                part(topic_id=topic_id, partitions=numbers) for topic_id, numbers in owned.items()
            ],
        )  # fmt: skip
        answer = self.peer.ask(request, 1)
        assert (answer.error_message is None) == (not answer.error_code)
        if answer.error_code:
            return NAMES[answer.error_code]
        if answer.member_epoch < 0:
            return f"{answer.member_epoch}"
        names = {topic.topic_id: topic.name for topic in self.db.broker.topic_metadata()}
        told = answer.assignment and [
            TopicPartition(names[part.topic_id], number)
            for part in answer.assignment.topic_partitions
            for number in part.partitions
        ]
        return steps.told(answer.member_epoch, told)

    def commit_over_wire(self, step: steps.Commit) -> str:
        who, epoch = self.db.broker.init_producer_id("of the wire", 60_000)
        given: dict[str, Any] = self.member(step)
        if step.in_transaction:
            topic: Any = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
            partition = topic.TxnOffsetCommitRequestPartition
        else:
            topic = OffsetCommitRequest.OffsetCommitRequestTopic
            partition = topic.OffsetCommitRequestPartition
        topics = [topic(name="t", partitions=[partition(partition_index=0, committed_offset=1)])]
        if step.in_transaction:
            request: Any = TxnOffsetCommitRequest(
                **given, generation_id=step.generation, transactional_id="of the wire",
                producer_id=who, producer_epoch=epoch, topics=topics,
            )  # fmt: skip
        else:
            epochs: dict[str, Any] = {"generation_id_or_member_epoch": step.generation}
            request = OffsetCommitRequest(**given, **epochs, topics=topics)
        answer = self.peer.ask(request, 5 if step.in_transaction else 9)
        if code := answer.topics[0].partitions[0].error_code:
            return NAMES[code]
        if step.in_transaction:
            self.db.broker.end_txn("of the wire", who, epoch, True)
        return "ok"

    def short_answer(
        self, step: steps.Beat | steps.Leave | steps.Fetch | steps.DeleteOffset
    ) -> str:
        match step:
            case steps.Beat():
                beat = HeartbeatRequest(**self.member(step), generation_id=self.generation(step))
                code = self.peer.ask(beat, 4).error_code
            case steps.Leave(who, instance):
                identity = LeaveGroupRequest.MemberIdentity
                leaver = identity(member_id=self.id_of(who), group_instance_id=instance)
                leaving = LeaveGroupRequest(group_id=self.group_id, members=[leaver])
                (member,) = self.peer.ask(leaving, 5).members
                code = member.error_code
            case steps.Fetch(asking, epoch):
                group = OffsetFetchRequest.OffsetFetchRequestGroup
                member_id = None if asking is None else self.id_of(asking)
                asked = group(
                    group_id=self.group_id, member_id=member_id, member_epoch=epoch, topics=None
                )
                (answer,) = self.peer.ask(OffsetFetchRequest(groups=[asked]), 9).groups
                code = answer.error_code
            case steps.DeleteOffset(name):
                topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
                partition = topic.OffsetDeleteRequestPartition(partition_index=0)
                deleted = topic(name=name, partitions=[partition])
                request = OffsetDeleteRequest(group_id=self.group_id, topics=[deleted])
                answer = self.peer.ask(request, 0)
                code = answer.error_code or answer.topics[0].partitions[0].error_code
        return NAMES[code] if code else "ok"


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock(start_ms=1_700_000_000_000)


@pytest.fixture(scope="module")
def db(clock: ManualClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[eosdb.Database]:
    path = tmp_path_factory.mktemp("groups") / "all.db"
    with eosdb.connect(path, clock=clock, durability="off") as opened:
        yield opened
        assert opened.verify().ok


@pytest.fixture(scope="module")
def peer(db: eosdb.Database) -> Iterator[Peer]:
    with db.serve() as server, Peer(server) as made:
        yield made


@pytest.fixture(autouse=True)
def topics(db: eosdb.Database) -> Iterator[None]:
    """The topic of the rows alone."""
    db.admin.create_topic("t", partitions=4)
    yield
    for topic in db.broker.topic_metadata():
        db.admin.delete_topic(topic.name)


ROWS = [row for row in TABLE if row.answer != WAITS and not isinstance(row.request, steps.Wait)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_wire_answers_as_the_table_says(
    row: Row, db: eosdb.Database, clock: ManualClock, peer: Peer
) -> None:
    check(row, OverTheWire(db, row, clock, peer))
