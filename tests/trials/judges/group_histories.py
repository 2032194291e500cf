"""Random histories of one group with members of both protocols, sent to `eosdb serve` and to a real Kafka,
request by request: error codes, epochs, generations and assignments must be the same.

EOSDB_BENCH_KAFKA=HOST:PORT names the broker, a Kafka 4.4.0 with `group.initial.rebalance.delay.ms=0`,
`group.consumer.assignment.interval.ms=0` and `group.consumer.assignor.offload.enable=false`. What depends
on chance is left out: classic members are static and the coordinator assigns by `range`, so that member
ids, which each broker makes for itself, do not matter. Nothing waits: a classic group has one member at a
time.

Four differences are left out (docs/semantics.md): the epoch after an empty group, what a classic member
owns that has not yet synced, when a classic member is told that another has left, and late commits.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from kafka.protocol.admin.topics import CreateTopicsRequest
from kafka.protocol.consumer.group import LeaveGroupRequest
from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest
from kafka.protocol.metadata.metadata import MetadataRequest

from eosdb.errors import (
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
)
from eosdb.model.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
)
from eosdb.model.values import TopicPartition
from eosdb.wire import schemas
from tests.trials.judges.case import Case, Judge
from tests.trials.judges.verdicts import FailedError, MissingError
from tests.wire.group_requests import beat, commit, join, sync
from tests.wire.peer import Address, Peer, asking

HISTORIES: Final = 300
STEPS: Final = 30
PARTITIONS: Final = 6
_NEW: Final = ("n0", "n1")
_CLASSIC: Final = "c0"
_Beat: Any = schemas.ConsumerGroupHeartbeatRequest
_PATIENCE_S: Final = 30.0
_REJOIN: Final = RebalanceInProgressError.code
_LATE: Final = ((IllegalGenerationError.code, 0), (StaleMemberEpochError.code, 0))
Step = tuple[str, str, int]
"""What is asked, in whose name, and a number that the request may use."""


class _Me(NamedTuple):
    member_id: str
    generation_id: int


class Side:
    """One broker, and what the members of the group know from its answers alone."""

    def __init__(self, address: Address, run: str) -> None:
        self._peer = Peer(address)
        self._topic = f"groups-{run}"
        self._make_topic()
        self.begin("")

    def close(self) -> None:
        self._peer.socket.close()

    def begin(self, group: str) -> None:
        self._group = group
        self._seat: dict[str, Any] = {"group_id": group, "group_instance_id": "seat"}
        self._epochs = dict.fromkeys(_NEW, 0)
        self._owned: dict[str, tuple[int, ...]] = dict.fromkeys((*_NEW, _CLASSIC), ())
        self._told = dict(self._owned)
        self._sent: dict[str, list[tuple[int, list[int] | None]]] = {name: [] for name in _NEW}
        self._classic_id, self._generation, self._leads = "", -1, False
        self._is_settled, self._at_join = False, self._owned[_CLASSIC]

    def is_left_out(self, step: Step) -> bool:
        """Whether the group's last member leaves, or its first member of the new protocol comes before the
        classic member has synced, or while that member revokes."""
        what, who, _ = step
        members = {name for name in _NEW if self._epochs[name]}
        changes_over = who in _NEW and not members and bool(self._classic_id)
        members |= {_CLASSIC} if self._classic_id else set()
        return (what.startswith("leave") and members <= {who}) or (
            changes_over and not self._is_settled
        )

    def is_known(self, step: Step, here: tuple[Any, ...], there: tuple[Any, ...]) -> bool:
        """Whether a classic member learns at once that another has left, or a late commit is refused."""
        if step[0].startswith("commit"):
            return is_taken_by_kafka(here, there)
        return step[0] in ("heartbeat", "sync") and (here[0], there[0]) == (_REJOIN, 0)

    def answer(self, step: Step) -> tuple[object, ...]:
        what, who, number = step
        return getattr(self, f"_{what}")(who, number)  # type: ignore[no-any-return]

    # -- the new protocol -----------------------------------------------------------------------

    def _join_new(self, who: str, _: int) -> tuple[object, ...]:
        self._epochs[who], self._owned[who] = 0, ()
        return self._beat(who, 0, [])

    def _stay(self, who: str, _: int) -> tuple[object, ...]:
        return self._beat(who, self._epochs[who], None)

    def _obey(self, who: str, _: int) -> tuple[object, ...]:
        self._owned[who] = self._told[who]
        return self._beat(who, self._epochs[who], list(self._owned[who]))

    def _late(self, who: str, number: int) -> tuple[object, ...]:
        sent = self._sent[who]
        if not sent:
            return ()
        epoch, owned = sent[-1 - number % len(sent)]
        return self._beat(who, epoch, owned)

    def _leave_new(self, who: str, _: int) -> tuple[object, ...]:
        answer = self._beat(who, -1, None)
        self._epochs[who], self._owned[who], self._told[who] = 0, (), ()
        self._is_settled &= any(self._epochs.values())
        return answer

    def _commit_new(self, who: str, number: int) -> tuple[object, ...]:
        return self._commit(who, max(self._epochs[who], 1) - number % 2, None)

    def _beat(self, who: str, epoch: int, owned: list[int] | None) -> tuple[object, ...]:
        fields: dict[str, Any] = {"group_id": self._group, "member_id": who, "member_epoch": epoch}
        if epoch == 0:
            fields |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [self._topic]}
            fields["server_assignor"] = "range"
        if owned is not None:
            part = _Beat.TopicPartitions(topic_id=self._topic_id, partitions=owned)
            fields["topic_partitions"] = [part] if owned else []
        if epoch >= 0:
            self._sent[who] = [*self._sent[who][-3:], (epoch, owned)]
        answer = self._peer.ask(_Beat(**fields), 1)
        if answer.error_code or answer.assignment is None:
            told = None
        else:
            parts = answer.assignment.topic_partitions
            told = tuple(sorted(number for part in parts for number in part.partitions))
            self._told[who] = told
        if not answer.error_code and epoch >= 0:
            self._epochs[who] = answer.member_epoch
        return answer.error_code, 0 if answer.error_code else answer.member_epoch, told

    # -- the classic protocol -------------------------------------------------------------------

    def _join_classic(self, _: str, number: int) -> tuple[object, ...]:
        """Cooperative, or as an eager member that has given up everything."""
        if number % 4 == 0:
            self._owned[_CLASSIC] = ()
        owned = [TopicPartition(self._topic, n) for n in self._owned[_CLASSIC]]
        answer = join(
            self._peer, self._classic_id, 7, names=["cooperative-sticky"], session_timeout_ms=30_000,
            metadata=Subscription((self._topic,), tuple(owned)).encode(), **self._seat,
        )  # fmt: skip
        if answer.error_code:
            return (answer.error_code,)
        self._classic_id, self._generation = answer.member_id, answer.generation_id
        self._is_settled, self._at_join = False, self._owned[_CLASSIC]
        self._leads = answer.leader == answer.member_id
        return answer.error_code, answer.generation_id, self._leads, len(answer.members)

    def _sync(self, _: str, number: int) -> tuple[object, ...]:
        mine = [TopicPartition(self._topic, n) for n in range(PARTITIONS - number % 2)]
        gives = {self._classic_id: encode_assignment(mine)} if self._leads else {}
        me = _Me(self._classic_id, self._generation)
        answer = sync(self._peer, me, 5, gives, protocol_name="cooperative-sticky", **self._seat)
        if answer.error_code:
            return (answer.error_code,)
        self._owned[_CLASSIC] = tuple(
            tp.partition for tp in decode_assignment(bytes(answer.assignment))
        )
        self._is_settled = set(self._at_join) <= set(self._owned[_CLASSIC])
        return answer.error_code, self._owned[_CLASSIC]

    def _heartbeat(self, _: str, number: int) -> tuple[object, ...]:
        me = _Me(self._classic_id, self._generation - (number % 5 == 0))
        return (beat(self._peer, me, 3, **self._seat),)

    def _commit_classic(self, _: str, number: int) -> tuple[object, ...]:
        return self._commit(self._classic_id, self._generation - (number % 3 == 0), "seat")

    def _leave_classic(self, _: str, _number: int) -> tuple[object, ...]:
        names = [{"member_id": self._classic_id, "group_instance_id": "seat"}]
        leaving = asking(LeaveGroupRequest, group_id=self._group, members=names)
        answer = self._peer.ask(leaving, 4)
        if not answer.members[0].error_code:
            self._classic_id, self._generation, self._owned[_CLASSIC] = "", -1, ()
        return answer.error_code, answer.members[0].error_code

    # -- both -----------------------------------------------------------------------------------

    def _commit(self, member: str, epoch: int, instance: str | None) -> tuple[object, ...]:
        who: dict[str, Any] = {"group_id": self._group, "group_instance_id": instance}
        return (commit(self._peer, member, epoch, topic=self._topic, offset=0, **who),)

    def _make_topic(self) -> None:
        made = {"name": self._topic, "num_partitions": PARTITIONS, "replication_factor": 1}
        self._peer.ask(asking(CreateTopicsRequest, topics=[made], timeout_ms=10_000), 5)
        asked = MetadataRequest.MetadataRequestTopic(topic_id=uuid.UUID(int=0), name=self._topic)
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            request = MetadataRequest(
                topics=[asked],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
            (found,) = self._peer.ask(request, 12).topics
            if not found.error_code and len(found.partitions) == PARTITIONS:
                self._topic_id = found.topic_id
                break
            time.sleep(0.1)
        self.begin(f"{self._topic}-probe")
        while self._join_new(_NEW[0], 0)[-1] == ():
            if time.monotonic() > deadline:
                raise FailedError(f"the broker does not make the topic {self._topic}")
            self._leave_new(_NEW[0], 0)
            time.sleep(0.1)


def is_taken_by_kafka(here: tuple[Any, ...], there: tuple[Any, ...]) -> bool:
    """Whether eosdb refuses a commit of what another member has got since, or an eager one's late one."""
    return (here[0], there[0]) in _LATE


def steps(seed: int) -> list[Step]:
    """One history."""
    rng = random.Random(seed)
    found: list[Step] = []
    for _ in range(STEPS):
        if rng.random() < 0.5:
            kind = rng.choice(
                (
                    "join_new",
                    "stay",
                    "stay",
                    "obey",
                    "obey",
                    "obey",
                    "late",
                    "leave_new",
                    "commit_new",
                )
            )
            found.append((kind, rng.choice(_NEW), rng.randrange(60)))
        else:
            kind = rng.choice(
                ("join_classic", "join_classic", "sync", "sync", "heartbeat", "commit_classic",
                 "leave_classic")
            )  # fmt: skip
            found.append((kind, _CLASSIC, rng.randrange(60)))
    return found


def compare(ours: Any, kafka: Any, history: list[Step], group: str) -> str | None:
    """The first difference of a history; None if there is none, or a known one."""
    for side in (ours, kafka):
        side.begin(group)
    told: list[str] = []
    for step in history:
        if ours.is_left_out(step):
            continue
        here, there = ours.answer(step), kafka.answer(step)
        told.append(f"{step[0]} {step[1]} {here}")
        if here != there:
            known = ours.is_known(step, here, there)
            return None if known else f"{group}: {' / '.join(told)}: Kafka answers {there}"
    return None


def _begin_coordinators(address: Address) -> None:
    """Kafka makes the topics of its coordinators when somebody looks for one."""
    peer, deadline = Peer(address), time.monotonic() + _PATIENCE_S
    for kind in (0, 1):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])
        while peer.ask(request, 4).coordinators[0].error_code:
            if time.monotonic() > deadline:
                raise FailedError("the broker does not begin its coordinators")
            time.sleep(0.1)
    peer.socket.close()


def asked_of_both(
    make: Callable[[Address, str], Any], steps: Callable[[int], list[Step]], case: Case
) -> str:
    broker = os.environ.get("EOSDB_BENCH_KAFKA")
    if broker is None:
        raise MissingError("EOSDB_BENCH_KAFKA names no broker")
    host, _, port = broker.rpartition(":")
    _begin_coordinators(Address(host, int(port)))
    run = uuid.uuid4().hex[:8]
    ours, kafka = (
        make(Address("127.0.0.1", case.server.port), run),
        make(Address(host, int(port)), run),
    )
    try:
        found = [
            compare(ours, kafka, steps(n), f"groups-{run}-{n}") for n in range(1, HISTORIES + 1)
        ]
    finally:
        ours.close()
        kafka.close()
    if differences := [one for one in found if one is not None]:
        raise FailedError(f"{len(differences)} of {HISTORIES} histories differ: {differences[0]}")
    return f"{HISTORIES} histories of {len(steps(1))} requests, answered alike"


JUDGES: Final = [
    Judge("histories of groups that change over", "4.4.0", partial(asked_of_both, Side, steps))
]
