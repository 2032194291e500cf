"""Every row of the table of groups, its request over the wire in the newest version: one server for all.
Requests that wait for others are in test_groups.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.errors import ApiError, MemberIdRequiredError, UnknownMemberIdError
from eosdb.model.protocol.consumer_protocol import decode_assignment
from eosdb.wire.schemas import ConsumerGroupHeartbeatRequest, TxnOffsetCommitRequest
from tests.broker.asked import Asked, clock, only_its_topic
from tests.coordinator.groups import steps
from tests.coordinator.groups.classic_table import WAITS
from tests.coordinator.groups.steps import Row, Step, check_all
from tests.coordinator.groups.table import TABLE
from tests.wire.peer import Peer, asking

__all__ = ["clock"]

NAMES: Final = {error.code: error.name for error in ApiError.__subclasses__()}


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

    def asked(self, kind: type[ApiMessage], version: int, step: Any, **fields: Any) -> Any:
        """The answer to a request in the name of the step's member."""
        member = {
            "group_id": self.group_id,
            "member_id": self.id_of(step.who),
            "group_instance_id": step.instance,
        }
        return self.peer.ask(asking(kind, **member | fields), version)

    def join_over_wire(self, step: steps.Join) -> str:
        fields: dict[str, Any] = {
            "session_timeout_ms": step.session_ms, "rebalance_timeout_ms": step.rebalance_ms,
            "protocol_type": step.kind,
            "protocols": [{"name": name, "metadata": said} for name, said in step.protocols],
            "member_id": self.ids.get(step.who, step.who * step.is_known),
        }  # fmt: skip
        answer = self.asked(JoinGroupRequest, 9, step, **fields)
        if answer.error_code == MemberIdRequiredError.code:
            fields["member_id"] = answer.member_id
            answer = self.asked(JoinGroupRequest, 9, step, **fields)
        if answer.error_code:
            return NAMES[answer.error_code]
        self.ids[step.who] = answer.member_id
        names = {member_id: name for name, member_id in self.ids.items()}
        leader = names[answer.leader] if answer.leader else "nobody"
        return f"{answer.generation_id} {answer.protocol_name}, {leader} leads"

    def sync_over_wire(self, step: steps.Sync) -> str:
        gives = self.assignments(step).items()
        answer = self.asked(
            SyncGroupRequest, 5, step, generation_id=self.generation(step),
            protocol_type=step.kind or "consumer", protocol_name=step.name or "range",
            assignments=[{"member_id": who, "assignment": data} for who, data in gives],
        )  # fmt: skip
        if answer.error_code:
            return NAMES[answer.error_code]
        return steps.shortened(decode_assignment(answer.assignment)) or "nothing"

    def hello_over_wire(self, step: steps.Hello) -> str:
        given = self.fields_of(step)
        given["instance_id"] = given.pop("group_instance_id")
        if (owned := given["topic_partitions"]) is not None:
            pairs = owned.items()
            given["topic_partitions"] = [{"topic_id": id_, "partitions": n} for id_, n in pairs]
        beat = asking(ConsumerGroupHeartbeatRequest, group_id=self.group_id, **given)
        answer = self.peer.ask(beat, 1)
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
        who = self.db.broker.init_producer_id("of the wire", 60_000)
        numbers = [tp.partition for tp in steps.partitions(step.of)]
        partitions = [{"partition_index": number, "committed_offset": 1} for number in numbers]
        given: dict[str, Any] = {"generation_id_or_member_epoch": step.generation}
        if step.in_transaction:
            topic_id = self.db.broker.topic("t").topic_id
            given |= {"topics": [{"topic_id": topic_id, "partitions": partitions}]}
            given |= {"transactional_id": "of the wire"}
            given |= {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
            answer = self.asked(TxnOffsetCommitRequest, 6, step, **given)
        else:
            given["topics"] = [{"name": "t", "partitions": partitions}]
            answer = self.asked(OffsetCommitRequest, 9, step, **given)
        (code,) = {partition.error_code for partition in answer.topics[0].partitions}
        if code:
            return NAMES[code]
        if step.in_transaction:
            self.db.broker.end_txn("of the wire", *who, True)
        return "ok"

    def short_answer(
        self, step: steps.Beat | steps.Leave | steps.Fetch | steps.DeleteOffset
    ) -> str:
        group = {"group_id": self.group_id}
        match step:
            case steps.Beat():
                generation = self.generation(step)
                code = self.asked(HeartbeatRequest, 4, step, generation_id=generation).error_code
            case steps.Leave(who, instance):
                names = [{"member_id": self.id_of(who), "group_instance_id": instance}]
                leaving = asking(LeaveGroupRequest, **group, members=names)
                code = self.peer.ask(leaving, 5).members[0].error_code
            case steps.Fetch(reader, epoch):
                member_id = None if reader is None else self.id_of(reader)
                member = group | {"member_id": member_id, "member_epoch": epoch, "topics": None}
                code = (
                    self.peer.ask(asking(OffsetFetchRequest, groups=[member]), 9)
                    .groups[0]
                    .error_code
                )
            case steps.DeleteOffset(name):
                topics = [{"name": name, "partitions": [{"partition_index": 0}]}]
                answer = self.peer.ask(asking(OffsetDeleteRequest, **group, topics=topics), 0)
                code = answer.error_code or answer.topics[0].partitions[0].error_code
        return NAMES[code] if code else "ok"


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


def is_asked(row: Row) -> bool:
    """Not if it waits. Nor if time empties the group: a server's own upkeep may have removed it."""
    has_waited = any(isinstance(step, steps.Wait) for step in row.state)
    is_gone = row.answer == UnknownMemberIdError.name
    is_emptied = has_waited and (is_gone or row.effect.startswith("Empty"))
    return not (row.answer == WAITS or is_emptied or isinstance(row.request, steps.Wait))


ROWS = [row for row in TABLE if is_asked(row)]


@pytest.mark.slow
def test_the_wire_answers_as_the_table_says(
    db: eosdb.Database, clock: ManualClock, peer: Peer
) -> None:
    def group_of(row: Row) -> Asked:
        only_its_topic(db)
        return OverTheWire(db, row, clock, peer)

    check_all(ROWS, group_of)
