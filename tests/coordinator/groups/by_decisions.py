"""A group that is changed by the pure decisions alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from eosdb.coordinator.groups import consumer_decisions, decisions, departures, migration, rows
from eosdb.coordinator.groups.consumer_decisions import (
    AWAY,
    LEAVE,
    ConsumerGroup,
    MemberHeartbeat,
)
from eosdb.coordinator.groups.decisions import Group
from eosdb.errors import ApiError, GroupIdNotFoundError
from eosdb.model.protocol import linear_regex
from eosdb.model.protocol.consumer_protocol import decode_assignment, encode_assignment
from eosdb.model.protocol.members import Member, Partitions
from eosdb.model.values import GroupState, TopicPartition
from tests.coordinator.groups import steps
from tests.coordinator.groups.steps import Step

SESSION_MS = 45_000


@dataclass(slots=True)
class Decided:
    """One group, its topics, and the sessions of its members."""

    group: Group | ConsumerGroup | None = None
    topics: dict[str, tuple[int, int]] = field(default_factory=lambda: {"t": (1, 4)})
    made: int = 2
    now: int = 1_000
    max_size: int = 100
    expires: dict[str, int] = field(default_factory=dict)

    def ask(self, step: Step) -> str:
        try:
            match step:
                case steps.Join():
                    return self._join(step)
                case steps.Sync():
                    return self._sync(step)
                case steps.Beat():
                    return self._beat(step)
                case steps.Leave():
                    return self._leave(step)
                case steps.Hello():
                    return self._hello(step)
                case steps.Wait():
                    self._wait(step.ms)
                case steps.Topic():
                    self._change(step)
                case _:
                    self._check(step)
        except ApiError as error:
            return error.name
        return "ok"

    def effect(self) -> str:
        group = self.group
        if group is None:
            return "none"
        if isinstance(group, Group):
            rests = group.state in (GroupState.STABLE, GroupState.EMPTY)
            assert (group.deadline_ms < 0) == rests == (decisions.overdue(group, self.now) is group)
            has = {
                m.member_id: steps.shortened(decode_assignment(m.assignment)) for m in group.members
            }
            return steps.group_text(group.state.value, group.generation_id, has)
        has = {
            f"{m.member_id}{'~' if m.protocols else ''}@{m.member_epoch}": self.short(m.assigned)
            for m in group.members
        }
        return steps.group_text(group.state.value, group.group_epoch, has)

    # -- requests -----------------------------------------------------------------------------------

    def _join(self, step: steps.Join) -> str:
        joining = Member(
            step.who, step.instance, "", "", step.session_ms, step.rebalance_ms, 0, step.protocols
        )
        decisions.check_protocols_given("g", step.kind, step.protocols)
        is_new = not step.is_known and self._generation(step.who) < 0
        if (mixed := self._mixed()) is not None:
            if not is_new:
                migration.check_protocols(mixed, joining, step.kind)
                consumer_decisions.known_member(mixed, step.who)
            self.group = mixed = migration.join(
                mixed, joining, step.kind, self.topics, now_ms=self.now, max_size=self.max_size
            )
            member = self._renew(consumer_decisions.known_member(mixed, step.who))
            return f"{member.member_epoch} {step.protocols[0][0]}, nobody leads"
        before = rows.classic("g", self.group)
        if not is_new:
            if before is not None:
                decisions.check_protocols(before, joining, step.kind)
            decisions.known_member(before, step.who, step.instance)
        after = decisions.join(before or Group("g"), joining, step.kind, self.now)
        self.group = after
        self._renew(joining)
        if not decisions.is_in_generation(after, step.who):
            return "waits"
        return f"{after.generation_id} {after.protocol_name}, {after.leader} leads"

    def _sync(self, step: steps.Sync) -> str:
        generation = self._generation(step.who) if step.generation is None else step.generation
        if (mixed := self._mixed()) is not None:
            syncing = migration.classic_member(mixed, step.who, step.instance)
            self.group = migration.sync(mixed, syncing, generation, step.kind, step.name)
            return self.short(self._renew(syncing).assigned) or "nothing"
        group, member = self._classic(step.who, step.instance)
        gives = {who: encode_assignment(tps) for who, tps in steps.given(step.gives).items()}
        self.group = group = decisions.sync(
            group, step.who, generation, gives, step.kind, step.name
        )
        self._renew(member)
        if decisions.awaits_sync(group, step.who, generation):
            return "waits"
        (own,) = (m.assignment for m in group.members if m.member_id == step.who)
        return steps.shortened(decode_assignment(own)) or "nothing"

    def _beat(self, step: steps.Beat) -> str:
        generation = self._generation(step.who) if step.generation is None else step.generation
        if (mixed := self._mixed()) is not None:
            beating = migration.classic_member(mixed, step.who, step.instance)
            self.group, rebalancing = migration.beat(mixed, beating, generation, self.now)
            self._renew(beating)
            return "ok" if rebalancing is None else rebalancing.name
        group, member = self._classic(step.who, step.instance)
        self._renew(member)
        told = decisions.check_heartbeat(group, generation)
        return "ok" if told is None else told.name

    def _leave(self, step: steps.Leave) -> str:
        if (mixed := self._mixed()) is not None:
            self._remove({migration.leaver(mixed, step.who, step.instance).member_id})
        else:
            group = rows.classic("g", self.group)
            self._remove({decisions.leaver(group, step.who, step.instance).member_id})
        return "ok"

    def _hello(self, step: steps.Hello) -> str:
        epoch = max(self._generation(step.who), 0) if step.epoch is None else step.epoch
        names = None if step.topics is None else tuple(step.topics.split())
        beat = MemberHeartbeat(
            "g", member_id=step.who, member_epoch=epoch, group_instance_id=step.instance,
            rack_id=step.rack,
            rebalance_timeout_ms=-1 if step.rebalance_ms is None else step.rebalance_ms,
            subscribed_topic_names=names,
            subscribed_topic_regex=step.regex,
            server_assignor=step.assignor,
            owned=None if step.owns is None else self._numbers(steps.partitions(step.owns)),
        )  # fmt: skip
        consumer_decisions.check_heartbeat(beat)
        linear_regex.check(step.regex or "")
        group = self.group
        if not isinstance(group, ConsumerGroup):
            if not beat.joins:
                raise GroupIdNotFoundError("g")
            group = migration.upgraded(group or Group("g"), self.topics, self.max_size)
        if epoch in (LEAVE, AWAY):
            member = migration.leaver(group, step.who, step.instance)
            if epoch == LEAVE:
                self._remove({member.member_id})
            else:
                self.group = consumer_decisions.leave_for_a_while(group, member)
            return f"{epoch}"
        return self._told(group, self._matched(group, beat))

    def _told(self, group: ConsumerGroup, beat: MemberHeartbeat) -> str:
        self.group = after = consumer_decisions.heartbeat(
            group, beat, self.topics,
            now_ms=self.now, session_timeout_ms=SESSION_MS, max_size=self.max_size,
        )  # fmt: skip
        member = self._renew(consumer_decisions.known_member(after, beat.member_id))
        before = group.member(beat.member_id)
        is_told = beat.is_full or before is None or before.assigned != member.assigned
        return steps.told(member.member_epoch, self._tps(member.assigned) if is_told else None)

    def _check(self, step: steps.Commit | steps.Fetch | steps.DeleteOffset) -> None:
        group = self.group
        match step:
            case steps.Commit(who, generation, instance, in_transaction, of) if isinstance(
                group, ConsumerGroup
            ):
                consumer_decisions.check_commit(
                    group, who, generation, instance,
                    partitions=self._numbers(steps.partitions(of)),
                    is_transactional=in_transaction,
                )  # fmt: skip
            case steps.Commit(who, generation, instance, in_transaction):
                assert not isinstance(group, ConsumerGroup)
                decisions.check_commit(
                    group, who, generation, instance,
                    group_id="g",
                    is_transactional=in_transaction,
                )  # fmt: skip
                self.group = group or Group("g")
            case steps.Fetch() if isinstance(group, ConsumerGroup):
                consumer_decisions.check_fetch(group, step.who, step.epoch)
            case steps.DeleteOffset() if isinstance(group, ConsumerGroup):
                number = self.topics[step.topic][0]
                consumer_decisions.check_unsubscribed(group, step.topic, number)
            case steps.DeleteOffset():
                assert not isinstance(group, ConsumerGroup)
                decisions.check_offset_delete(group)
                decisions.check_unsubscribed(group, step.topic)

    # -- what is around the decisions ---------------------------------------------------------------

    def _wait(self, ms: int) -> None:
        self.now += ms
        if self.group is not None:
            ended = {
                m.member_id for m in self.group.members if self.expires[m.member_id] < self.now
            }
            gone = {"session_ended": ended}
            self.group, _ = departures.foreseen(self.group, gone, self._names, self.now)

    def _change(self, step: steps.Topic) -> None:
        number, _ = self.topics.pop(step.name, (self.made, 0))
        if step.count:
            self.topics[step.name] = (number, step.count)
            self.made += 1

    def _matched(self, group: ConsumerGroup, beat: MemberHeartbeat) -> MemberHeartbeat:
        """The heartbeat with the topics that the member's expression matches."""
        known = group.member(beat.member_id)
        regex = beat.subscribed_topic_regex
        if regex is None:
            regex = "" if known is None else known.subscribed_topic_regex
        names = linear_regex.matching(regex, tuple(self.topics)) if regex else ()
        return replace(beat, matched=tuple(sorted(self.topics[name][0] for name in names)))

    def _mixed(self) -> ConsumerGroup | None:
        group = self.group
        return group if isinstance(group, ConsumerGroup) and group.members else None

    def _classic(self, who: str, instance: str | None) -> tuple[Group, Member]:
        group = rows.classic("g", self.group)
        member = decisions.known_member(group, who, instance)
        assert group is not None
        return group, member

    def _remove(self, gone: set[str]) -> None:
        assert self.group is not None
        self.group = departures.without(self.group, gone, self._names, self.now)

    def _renew(self, member: Member) -> Member:
        self.expires[member.member_id] = self.now + member.session_timeout_ms
        return member

    def _generation(self, who: str) -> int:
        member = None if self.group is None else self.group.member(who)
        if member is None or self.group is None:
            return -1
        if isinstance(self.group, ConsumerGroup):
            return member.member_epoch
        return self.group.generation_id

    def _names(self) -> dict[int, str]:
        return {number: name for name, (number, _) in self.topics.items()}

    def _numbers(self, tps: list[TopicPartition]) -> Partitions:
        return frozenset((self.topics[tp.topic][0], tp.partition) for tp in tps)

    def _tps(self, some: Partitions) -> list[TopicPartition]:
        return migration.names_of(some, self._names())

    def short(self, some: Partitions) -> str:
        return steps.shortened(self._tps(some))
