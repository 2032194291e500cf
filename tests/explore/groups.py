"""A group: members of both protocols that join, revoke, die, leave, return and change over.

No two clients may own a partition while the commits of both are accepted. A client owns a partition until
its callback of the revocation has ended, also if it has died (its last commit may be on the way) or has
lost its session without knowing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any, ClassVar, Final, NamedTuple

from eosdb import TopicPartition, errors
from eosdb.broker import membership
from eosdb.client.consumer.assignors import ASSIGNORS, MemberSubscription
from eosdb.coordinator.groups import rows as group_rows
from eosdb.coordinator.groups.consumer_decisions import ConsumerGroup
from eosdb.model import requests
from eosdb.model.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from eosdb.model.requests import Request
from eosdb.model.values import ConsumerGroupMetadata, OffsetAndMetadata
from tests.explore.core import Move, World, places, with_client
from tests.simulation.model import require

_SESSION_MS: Final = 1_800_000
_REBALANCE_MS: Final = 60_000
_TIME: Final = re.compile(r"\b1[67]\d{11}\b")
_PROTOCOLS: Final = {"e": "range", "c": "cooperative-sticky"}
_TABLES: Final = (
    "SELECT state, protocol_name, generation_id, leader, members, deadline >= 0, group_type, "
    "assignment_epoch FROM groups",
    "SELECT 'session', member_id FROM group_sessions",
)
_NEWEST: Final = (
    "SELECT (SELECT ifnull(max(life), 0) FROM eosdb_lives), max(position) FROM eosdb_journal"
)
_LOST: Final = (
    errors.UnknownMemberIdError,
    errors.FencedInstanceIdError,
    errors.FencedMemberEpochError,
    errors.GroupIdNotFoundError,
    errors.IllegalGenerationError,
)
_WAIT: Final = (errors.UnreleasedInstanceIdError, errors.InconsistentGroupProtocolError)
Numbers = frozenset[int]
NONE: Final[Numbers] = frozenset()
Claim = tuple[str, str | None, int, Numbers]
"""Commits that may be on the way: member id, instance id, epoch, partitions."""


class Client(NamedTuple):
    """A consumer: its step, and what it believes."""

    name: str
    life: int = 0
    step: str = "join"
    member_id: str = ""
    epoch: int = -1
    owned: Numbers = NONE
    told: Numbers = NONE
    """What it shall own, as the coordinator has told it last."""
    others: Any = None
    """The members that a leader assigns partitions to."""
    commits: int = -1
    """The generation or epoch of its commits, which a classic client has when it has synced."""


class State(NamedTuple):
    clients: tuple[Client, ...]
    late: frozenset[Claim] = frozenset()
    losses: int = 0
    expiries: int = 0
    overdues: int = 0
    leaves: int = 0
    deaths: int = 0
    lates: int = 0
    rejoins: int = 0
    copies: int = 0
    copy: Any = None


class Groups(World):
    state = State
    config: ClassVar[dict[str, Any]] = {
        "group_max_session_timeout_ms": _SESSION_MS,
        "group_consumer_max_session_timeout_ms": _SESSION_MS,
        "group_consumer_session_timeout_ms": _SESSION_MS,
    }
    sample = 64
    members: tuple[str, ...] = ("c", "c")
    """For each consumer the protocols of its lives: e(ager), c(ooperative), n(ew); capital if static."""
    partitions = 2

    def prepare(self) -> None:
        box = self.box
        box.db.admin.create_topic("t", self.partitions)
        self._topic_id = box.db.broker.topic("t").topic_id
        self._producer = box.db.broker.init_producer_id("x")
        self._answers: dict[tuple[object, ...], bool] = {}
        self.symmetries = places([kinds if kinds.islower() else None for kinds in self.members])

    def start(self) -> State:
        clients = tuple(Client("~" + name) for name in "abcd"[: len(self.members)])
        return State(clients, **self.limits)

    # -- a client ------------------------------------------------------------------------------------

    def _kinds(self, c: Client) -> str:
        return self.members["abcd".index(c.name[1])]

    def _is(self, c: Client, kind: str) -> bool:
        return self._kinds(c)[c.life].lower() == kind

    def _instance(self, c: Client) -> str | None:
        return f"i{c.name}" if self._kinds(c)[c.life].isupper() else None

    def _ask(self, c: Client) -> Client:
        """The client after its next request."""
        step = "beat" if self._is(c, "n") else c.step
        if step == "beat" and not c.member_id:
            c = c._replace(member_id=membership._new_id("", *self.box.rows(_NEWEST)[0]) + c.name)
        answer = self.box.ask(self._request(c, step))
        if isinstance(answer, errors.RebalanceInProgressError):
            if self._is(c, "e") and c.owned:
                return c._replace(told=NONE, step="stable", others=None)  # It revokes all first.
            return c._replace(step="join", others=None)
        if isinstance(answer, errors.EosdbError):
            return self._refused(c, answer)
        return self._answered(c, step, answer)

    def _request(self, c: Client, step: str) -> Request[Any]:
        instance, kind = self._instance(c), self._kinds(c)[c.life].lower()
        if step == "beat":
            return requests.ConsumerGroupHeartbeat(
                "g", member_id=c.member_id, member_epoch=0 if c.step == "join" else c.epoch,
                group_instance_id=instance, rebalance_timeout_ms=_REBALANCE_MS,
                subscribed_topic_names=["t"],
                topic_partitions={self._topic_id: sorted(c.owned)} if c.owned else {},
            )  # fmt: skip
        if step == "join":
            owned = [TopicPartition("t", p) for p in sorted(c.owned)] if kind == "c" else []
            data = Subscription(("t",), tuple(owned), c.epoch if c.owned else -1).encode()
            return requests.JoinGroup(
                "g", member_id=c.member_id, client_id=c.name, group_instance_id=instance,
                session_timeout_ms=_SESSION_MS, rebalance_timeout_ms=_REBALANCE_MS,
                protocols=[(_PROTOCOLS[kind], data)],
            )  # fmt: skip
        if step == "stable":
            return requests.Heartbeat("g", c.epoch, c.member_id, group_instance_id=instance)
        told = [
            MemberSubscription(m.member_id, m.group_instance_id, decode_subscription(m.metadata))
            for m in c.others or ()
        ]
        found = ASSIGNORS[_PROTOCOLS[kind]].assign(told, {"t": self.partitions}) if told else {}
        given = {name: encode_assignment(tps) for name, tps in found.items()}
        return requests.SyncGroup(
            "g", c.epoch, c.member_id, group_instance_id=instance, assignments=given
        )

    def _answered(self, c: Client, step: str, answer: Any) -> Client:
        told = c.told
        if step == "beat":
            if answer.assignment is not None:
                told = frozenset(p for topic in answer.assignment for p in topic.partitions)
            epoch = answer.member_epoch
            return c._replace(
                step="stable", epoch=epoch, commits=epoch, told=told, owned=c.owned | told
            )
        if step == "join":
            c = c._replace(member_id=answer.member_id)
        if step == "stable" or not answer.is_complete:
            return c
        if step == "join":
            others = None if answer.skip_assignment else answer.members or None
            return c._replace(step="sync", epoch=answer.generation_id, others=others)
        told = frozenset(tp.partition for tp in decode_assignment(answer.assignment))
        owned = told | (c.owned if self._is(c, "c") else NONE)
        return c._replace(step="stable", commits=c.epoch, owned=owned, told=told, others=None)

    def _leave(self, c: Client) -> None:
        instance = self._instance(c)
        if self._is(c, "n"):
            epoch = -1 if instance is None else -2
            self.box.ask(
                requests.ConsumerGroupHeartbeat(
                    "g", member_id=c.member_id, member_epoch=epoch, group_instance_id=instance
                )
            )
        elif instance is None:
            self.box.ask(requests.LeaveGroup("g", c.member_id))

    def _refused(self, c: Client, error: errors.EosdbError) -> Client:
        if isinstance(error, _WAIT):
            return c
        require(isinstance(error, _LOST), f"{type(error).__name__}: {error}")
        if isinstance(error, errors.FencedInstanceIdError):
            return self._next_life(c)  # Another one has its place: it ends.
        keeps = isinstance(error, errors.IllegalGenerationError)
        return Client(c.name, c.life, member_id=c.member_id if keeps else "")

    def _next_life(self, c: Client) -> Client:
        if c.life + 1 == len(self._kinds(c)):
            return Client(c.name, c.life, "gone")
        return Client(c.name, c.life + 1)

    # -- moves ---------------------------------------------------------------------------------------

    def moves(self, s: State) -> Iterable[Move]:
        for i, c in enumerate(s.clients):
            if c.step == "gone":
                continue
            if c.step == "stable" and c.owned - c.told:
                yield ("revoked", i)
                if s.lates:
                    yield ("revoked late", i)
            if not self._is_revoking(c):
                yield ("ask", i)
                if s.lates and c.owned:
                    yield ("ask late", i)
                if s.losses:
                    yield ("lose the answer", i)
            if s.rejoins and c.step == "stable" and c.owned == c.told:
                yield ("join again", i)
            if s.leaves and c.member_id:
                yield ("leave", i)
            if s.deaths and c.member_id:
                yield ("die", i)
            if s.expiries and c.member_id:
                yield ("end the session", c.member_id)
        known = {c.member_id for c in s.clients}
        for (ghost,) in self.box.rows("SELECT member_id FROM group_sessions ORDER BY 1"):
            if ghost not in known:
                yield ("end the session", ghost)
        if s.overdues and self._deadline() >= 0:
            yield ("overdue",)

    def _is_revoking(self, c: Client) -> bool:
        """Whether a classic client is in its callback; one of the new protocol sends heartbeats."""
        return c.step == "stable" and bool(c.owned - c.told) and not self._is(c, "n")

    def _deadline(self) -> int:
        return max(
            (deadline for (deadline,) in self.box.rows("SELECT deadline FROM groups")), default=-1
        )

    def make(self, s: State, move: Move) -> State | None:
        what = move[0]
        if what == "overdue":
            self.box.advance(self._deadline() + 1 - self.box.clock.time_ms())
            return s._replace(overdues=s.overdues - 1)
        if what == "end the session":
            if not self.box.rows("SELECT 1 FROM group_sessions WHERE member_id = ?", move[1]):
                return None
            self.box.end_session(move[1])
            is_known = any(c.member_id == move[1] for c in s.clients)
            return s._replace(expiries=s.expiries - is_known)
        c = s.clients[move[1]]
        if what == "ask":
            return with_client(s, self._ask(c))
        if what == "ask late":
            after = self._ask(c)
            is_lost = not c.owned <= after.owned
            return self._late(s, c, after)._replace(lates=s.lates - 1) if is_lost else None
        if what == "lose the answer":
            after = self._ask(c)
            # A client of the new protocol has chosen its id.
            c = c._replace(member_id=after.member_id) if self._is(c, "n") and not c.member_id else c
            return with_client(s, c)._replace(losses=s.losses - 1)
        if what.startswith("revoked"):
            after = c._replace(owned=c.owned & c.told)
            if not self._is(c, "n"):
                after = after._replace(step="join", others=None)
            if what == "revoked":
                return with_client(s, after)
            return self._late(s, c, after)._replace(lates=s.lates - 1)
        if what == "join again":
            if self._is(c, "n") and self._instance(c):
                self._leave(c)  # Otherwise its place is not free; the leave of others is lost.
            kept = c.owned if self._is(c, "c") else NONE
            after = c._replace(step="join", owned=kept, told=c.told & kept)
            return self._late(s, c, after)._replace(rejoins=s.rejoins - 1)
        if what == "die":
            return self._late(s, c, self._next_life(c))._replace(deaths=s.deaths - 1)
        self._leave(c)
        return with_client(s, self._next_life(c))._replace(leaves=s.leaves - 1)

    def _late(self, s: State, c: Client, after: Client) -> State:
        """The state after it; a commit of what the client had may be on the way, unless the client reads it
        again. As in Kafka it may then stay in its epoch, so it must first abort what it has begun."""
        group = group_rows.load(self.box.connection, "g")
        in_its_epoch = isinstance(group, ConsumerGroup) and group.group_epoch == c.commits
        if in_its_epoch and after.step == "join" and after.life == c.life and not self._is(c, "c"):
            return with_client(s, after)
        claim = c.member_id, self._instance(c), c.commits, c.owned - after.owned
        return with_client(s, after)._replace(late=s.late | {claim} if claim[3] else s.late)

    # -- states --------------------------------------------------------------------------------------

    def tables(self) -> Iterable[object]:
        for query in _TABLES:
            for row in self.box.rows(query):
                yield tuple(_TIME.sub("T", v) if isinstance(v, str) else v for v in row)

    def copied(self) -> list[object]:
        return [*self.tables(), *self.box.rows(_NEWEST)]

    def parts(self, s: State) -> Iterable[object]:
        yield s[2:-1]
        if "copies" in self.limits:
            position = self.box.rows(_NEWEST)[0][1]
            known = [int(c.member_id[2:].partition("~")[0]) for c in s.clients if c.member_id]
            # Positions that an id names already may come again.
            yield "at", max([0, *(number % 10**9 - position for number in known)])
        for it in s.late:
            yield "late", *it[:3], sorted(it[3])
        for c in s.clients:
            yield *c[:5], sorted(c.owned), sorted(c.told), bool(c.others), c.commits

    def is_done(self, s: State) -> bool:
        living = [c for c in s.clients if c.step != "gone"]
        owned = sorted(p for c in living for p in c.owned)
        settled = all(c.step == "stable" and c.owned == c.told for c in living)
        return not living or (settled and owned == [*range(self.partitions)])

    def check(self, s: State, before: None) -> None:
        claims = [
            (c.member_id, self._instance(c), c.commits, c.owned)
            for c in s.clients
            if c.owned and c.step != "gone"
        ]
        for one, other in itertools.combinations(claims, 2):
            group = group_rows.load(self.box.connection, "g") if one[3] & other[3] else None
            if isinstance(group, ConsumerGroup):
                both = {one[0], other[0]} <= {member.member_id for member in group.members}
                require(not both, f"two members own a partition: {one} and {other}")
        for one, other in itertools.combinations([*claims, *s.late], 2):
            for number in one[3] & other[3]:
                for is_plain in (True, False):
                    both = self._commits(one, number, is_plain) and self._commits(
                        other, number, is_plain
                    )
                    require(not both, f"of two readers, both commit {number}: {one} and {other}")

    def _commits(self, claim: Claim, number: int, is_plain: bool) -> bool:
        """Whether this commit would be accepted now, which the group alone decides."""
        key = *claim[:3], number, is_plain, *self.box.rows("SELECT * FROM groups")
        if key not in self._answers:
            self._answers[key] = self._is_accepted(claim, number, is_plain)
        return self._answers[key]

    def _is_accepted(self, claim: Claim, number: int, is_plain: bool) -> bool:
        member_id, instance, epoch, _ = claim
        group = ConsumerGroupMetadata("g", epoch, member_id, instance)
        offsets = {TopicPartition("t", number): OffsetAndMetadata(1)}
        asked: Request[Any] = requests.OffsetCommit(group=group, offsets=offsets)
        if not is_plain:
            pid, pid_epoch = self._producer
            asked = requests.TxnOffsetCommit(
                transactional_id="x", producer_id=pid, producer_epoch=pid_epoch,
                group=group, offsets=offsets,
            )  # fmt: skip
        with self.box.trial():
            try:
                self.box.db.broker.ask(asked)
            except errors.ApiError:
                return False
        return True
