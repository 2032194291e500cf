"""A group of a database that is asked by the broker's own methods, in the words of the table of groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.errors import ApiError
from eosdb.model import requests
from eosdb.model.protocol.consumer_protocol import decode_assignment, encode_assignment
from eosdb.model.requests import OffsetFetch
from eosdb.model.values import AssignedTopic, GroupType
from tests.coordinator.groups import steps
from tests.coordinator.groups.steps import Step


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock(start_ms=1_700_000_000_000)


FIRST: dict[str, Any] = {
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ("t",),
    "topic_partitions": {},
}
"""What a member of the new protocol says first."""


@contextmanager
def rebuilt(opened: eosdb.Database) -> Iterator[eosdb.Database]:
    """A database whose groups are the same when it is rebuilt after the block."""
    with opened as db:
        yield db
        before = db.broker.describe_groups()
        assert db.verify().ok
        db.rebuild()
        assert db.broker.describe_groups() == before


def only_its_topic(db: eosdb.Database) -> None:
    """Before a row: the topic "t", and none that an earlier row has made."""
    for topic in db.broker.topic_metadata():
        db.admin.delete_topic(topic.name)
    db.admin.create_topic("t", partitions=4)


def partitions_of(assignment: Iterable[AssignedTopic]) -> list[TopicPartition]:
    return [TopicPartition(part.topic, number) for part in assignment for number in part.partitions]


class Asked:
    """One group. The broker gives members their ids; here they have the names of the table."""

    def __init__(self, db: eosdb.Database, group_id: str, clock: eosdb.ManualClock) -> None:
        self.db, self.group_id, self.clock = db, group_id, clock
        self.ids: dict[str, str] = {}

    def ask(self, step: Step) -> str:
        try:
            return self.request(step)
        except ApiError as error:
            return error.name

    def request(self, step: Step) -> str:
        broker, group_id = self.db.broker, self.group_id
        match step:
            case steps.Join():
                return self.join(step)
            case steps.Sync(who, _, _, instance, kind, name):
                synced = broker.sync_group(
                    group_id, self.generation(step), self.id_of(who), group_instance_id=instance,
                    assignments=self.assignments(step), protocol_type=kind, protocol_name=name,
                )  # fmt: skip
                has = steps.shortened(decode_assignment(synced.assignment)) or "nothing"
                return has if synced.is_complete else "waits"
            case steps.Beat(who, _, instance):
                generation = self.generation(step)
                broker.heartbeat(group_id, generation, self.id_of(who), group_instance_id=instance)
            case steps.Leave(who, instance):
                (refused,) = broker.ask(
                    requests.RemoveMembers(group_id, [(self.id_of(who), instance)])
                )
                if refused is not None:
                    raise refused
            case steps.Hello():
                return self.hello(step)
            case steps.Commit(who, generation, instance, in_transaction, of):
                offsets = dict.fromkeys(steps.partitions(of), OffsetAndMetadata(1))
                member: dict[str, Any] = {
                    "generation_id": generation, "member_id": self.id_of(who),
                    "group_instance_id": instance,
                }  # fmt: skip
                if in_transaction:
                    self.commit_in_transaction(offsets, member)
                else:
                    broker.offset_commit(group_id, offsets, **member)
            case steps.Fetch(who, epoch):
                member_id = None if who is None else self.id_of(who)
                broker.ask(
                    OffsetFetch(
                        group_id=group_id,
                        partitions=[TopicPartition("t", 0)],
                        member_id=member_id,
                        member_epoch=epoch,
                    )
                )
            case steps.DeleteOffset(topic):
                broker.offset_delete(group_id, [TopicPartition(topic, 0)])
            case steps.Topic():
                self.change(step)
            case steps.Wait(ms):
                self.clock.advance(ms)
                self.db.housekeeping()
        return "ok"

    def effect(self) -> str:
        try:
            group = self.db.broker.describe_group(self.group_id)
        except eosdb.GroupIdNotFoundError:
            return "none"
        names = {member_id: name for name, member_id in self.ids.items()}
        has = {
            names.get(m.member_id, m.member_id): steps.shortened(decode_assignment(m.assignment))
            for m in group.members
        }
        if group.group_type is GroupType.CONSUMER and group.members:
            members = self.db.broker.describe_consumer_group(self.group_id).members
            has = {
                f"{names.get(m.member_id, m.member_id)}{'~' * m.is_classic}@{m.member_epoch}": (
                    steps.shortened(partitions_of(m.assignment))
                )
                for m in members
            }
        return steps.group_text(group.state, group.generation_id, has)

    def id_of(self, who: str) -> str:
        return self.ids.get(who, who)

    def generation(self, step: steps.Sync | steps.Beat) -> int:
        return self.epoch(step.who) if step.generation is None else step.generation

    def epoch(self, who: str) -> int:
        """The generation, or the member epoch, that the member is in."""
        group = self.db.broker.describe_group(self.group_id)
        if group.group_type is GroupType.CLASSIC:
            return group.generation_id
        members = self.db.broker.describe_consumer_group(self.group_id).members
        return next((m.member_epoch for m in members if m.member_id == self.id_of(who)), 0)

    def assignments(self, step: steps.Sync) -> dict[str, bytes]:
        gives = steps.given(step.gives).items()
        return {self.id_of(who): encode_assignment(tps) for who, tps in gives}

    def join(self, step: steps.Join) -> str:
        member_id = step.who if step.is_known else ""
        joined = self.db.broker.join_group(
            self.group_id,
            member_id=self.ids.get(step.who, member_id),
            group_instance_id=step.instance,
            client_id=step.who,
            protocol_type=step.kind,
            protocols=step.protocols,
            session_timeout_ms=step.session_ms,
            rebalance_timeout_ms=step.rebalance_ms,
        )
        self.ids[step.who] = joined.member_id
        if not joined.is_complete:
            return "waits"
        names = {member_id: name for name, member_id in self.ids.items()}
        leader = "nobody" if joined.leader is None else names[joined.leader]
        return f"{joined.generation_id} {joined.protocol_name}, {leader} leads"

    def hello(self, step: steps.Hello) -> str:
        answer = self.db.broker.consumer_group_heartbeat(self.group_id, **self.fields_of(step))
        if answer.member_epoch < 0:
            return f"{answer.member_epoch}"
        assigned = answer.assignment
        return steps.told(
            answer.member_epoch, None if assigned is None else partitions_of(assigned)
        )

    def fields_of(self, step: steps.Hello) -> dict[str, Any]:
        owned: dict[UUID, list[int]] | None = None if step.owns is None else {}
        for topic, number in steps.partitions(step.owns or ""):
            assert owned is not None
            owned.setdefault(self.db.broker.topic(topic).topic_id, []).append(number)
        return {
            "member_id": step.who,
            "member_epoch": self.epoch(step.who) if step.epoch is None else step.epoch,
            "group_instance_id": step.instance,
            "rack_id": step.rack,
            "rebalance_timeout_ms": -1 if step.rebalance_ms is None else step.rebalance_ms,
            "subscribed_topic_names": None if step.topics is None else step.topics.split(),
            "subscribed_topic_regex": step.regex,
            "server_assignor": step.assignor,
            "topic_partitions": owned,
        }

    def commit_in_transaction(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], member: dict[str, Any]
    ) -> None:
        broker = self.db.broker
        who = broker.init_producer_id("of the table", 60_000)
        broker.txn_offset_commit("of the table", self.group_id, *who, offsets, **member)
        broker.end_txn("of the table", *who, True)

    def change(self, step: steps.Topic) -> None:
        admin = self.db.admin
        names = [topic.name for topic in self.db.broker.topic_metadata()]
        if not step.count:
            admin.delete_topic(step.name)
        elif step.name in names:
            admin.create_partitions(step.name, step.count)
        else:
            admin.create_topic(step.name, partitions=step.count)
