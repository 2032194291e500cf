"""Random histories of one group of the new protocol, sent to `eosdb serve` and to a real Kafka, request by
request: error codes, epochs and assignments must be the same.

Three members and one static member change their subscriptions, leave, come back, keep partitions too long,
repeat old heartbeats, and commit and fetch offsets in old and new epochs, plain and in transactions. The
broker is that of `group_histories`. Left out are what docs/semantics.md says otherwise: commits of a static
member that has come back, the epoch after an empty group, a group of which a transaction alone remains, and
a subscription that changes while its member gives up partitions, and commits of what another member has got
since.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kafka.protocol.admin.topics import CreateTopicsRequest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata.metadata import MetadataRequest
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest

from eosdb.wire import schemas
from tests.trials.judges.case import Judge
from tests.trials.judges.group_histories import asked_of_both, is_taken_by_kafka
from tests.wire.peer import Address, Peer, asking

STEPS: Final = 40
MEMBERS: Final = ("n0", "n1", "n2", "static")
TOPICS: Final = {"t": 6, "u": 3}
SUBSCRIPTIONS: Final = (["t"], ["t"], ["t", "u"], ["u"])
_PASSING: Final = frozenset({14, 15, 16, 51})
"""Codes of a coordinator that loads or still writes markers: the request is repeated."""
_PATIENCE_S: Final = 30.0
Owned = dict[str, list[int]]
Step = tuple[str, str, int]


class Side:
    """One broker, and what the members of the group know from its answers alone."""

    def __init__(self, address: Address, run: str) -> None:
        self._peer = Peer(address)
        self._names = {name: f"{name}-{run}" for name in TOPICS}
        made = [
            {"name": self._names[name], "num_partitions": count, "replication_factor": 1}
            for name, count in TOPICS.items()
        ]
        self._peer.ask(asking(CreateTopicsRequest, topics=made, timeout_ms=10_000), 5)
        self._ids = {name: self._id(full) for name, full in self._names.items()}
        self._producer = f"histories-{run}"
        self._pair = self._begun()
        self.begin(f"probe-{run}")
        self._until(lambda: self._join("n0", 2)[2] == {"t": [*range(6)], "u": [*range(3)]})

    def close(self) -> None:
        self._peer.socket.close()

    def begin(self, group: str) -> None:
        self._group = group
        self._epochs = dict.fromkeys(MEMBERS, 0)
        self._owned: dict[str, Owned] = {name: {} for name in MEMBERS}
        self._told = dict(self._owned)
        self._sent: dict[str, list[dict[str, Any]]] = {name: [] for name in MEMBERS}
        self._lives, self._is_away, self._was_away = 0, False, False

    def is_left_out(self, step: Step) -> bool:
        what, who, _ = step
        if what == "transact" and not any(self._epochs.values()):
            return True
        if what in ("leave", "away") and {name for name in MEMBERS if self._epochs[name]} <= {who}:
            return True
        return what in ("commit", "transact") and who == "static" and self._was_away

    def is_known(self, step: Step, here: tuple[Any, ...], there: tuple[Any, ...]) -> bool:
        """Whether Kafka also takes partitions of the topics that the member has just left, or a commit of
        what another member has got since."""
        if step[0] in ("commit", "transact"):
            return is_taken_by_kafka(here, there)
        return step[0] == "change" and here[:2] == there[:2] and here[2] is None

    def answer(self, step: Step) -> tuple[object, ...]:
        what, who, number = step
        return getattr(self, f"_{what}")(who, number)  # type: ignore[no-any-return]

    # -- heartbeats -----------------------------------------------------------------------------

    def _join(self, who: str, number: int) -> tuple[object, ...]:
        if who == "static" and (self._is_away or not self._epochs[who]):
            self._lives += 1
            self._was_away |= self._lives > 1
        self._owned[who] = {}
        names = [self._names[name] for name in SUBSCRIPTIONS[number % 4]]
        return self._beat(who, 0, {}, subscribed_topic_names=names)

    def _again(self, who: str, number: int) -> tuple[object, ...]:
        """Join again with what it owns."""
        names = [self._names[name] for name in SUBSCRIPTIONS[number % 4]]
        return self._beat(who, 0, self._owned[who], subscribed_topic_names=names)

    def _stay(self, who: str, _: int) -> tuple[object, ...]:
        return self._beat(who, self._epochs[who], None)

    def _obey(self, who: str, _: int) -> tuple[object, ...]:
        self._owned[who] = self._told[who]
        return self._beat(who, self._epochs[who], self._owned[who])

    def _part(self, who: str, number: int) -> tuple[object, ...]:
        """Give up less, or own less, than it is told."""
        owned = self._owned[who] if number % 2 else self._told[who]
        some = {name: numbers[: 1 + number % 3] for name, numbers in owned.items()}
        return self._beat(who, self._epochs[who], some)

    def _change(self, who: str, number: int) -> tuple[object, ...]:
        names = [self._names[name] for name in SUBSCRIPTIONS[number % 4]]
        return self._beat(who, self._epochs[who], None, subscribed_topic_names=names)

    def _late(self, who: str, number: int) -> tuple[object, ...]:
        sent = self._sent[who]
        return self._ask(who, sent[-1 - number % len(sent)]) if sent else ()

    def _wrong(self, who: str, number: int) -> tuple[object, ...]:
        return self._beat(who, self._epochs[who] + (1, 2, -1)[number % 3], None)

    def _leave(self, who: str, _: int) -> tuple[object, ...]:
        return self._gone(who, -1)

    def _away(self, who: str, _: int) -> tuple[object, ...]:
        answer = self._gone(who, -2)
        self._is_away |= who == "static" and answer[0] == 0
        self._was_away |= self._is_away
        return answer

    def _gone(self, who: str, epoch: int) -> tuple[object, ...]:
        answer = self._beat(who, epoch, None)
        if answer[0] == 0:
            self._epochs[who], self._owned[who], self._told[who] = 0, {}, {}
        return answer

    def _beat(self, who: str, epoch: int, owned: Owned | None, **more: Any) -> tuple[object, ...]:
        given: dict[str, Any] = {"group_id": self._group, "member_epoch": epoch, **more}
        given["member_id"] = f"{who}-{self._lives}" if who == "static" else who
        if who == "static":
            given["instance_id"] = "seat"
        if epoch == 0:
            given |= {"rebalance_timeout_ms": 60_000, "server_assignor": "range"}
        if owned is not None:
            given["topic_partitions"] = [
                {"topic_id": self._ids[name], "partitions": numbers}
                for name, numbers in owned.items()
                if numbers
            ]
        if epoch >= 0:
            self._sent[who] = [*self._sent[who][-3:], given]
        return self._ask(who, given)

    def _ask(self, who: str, given: dict[str, Any]) -> tuple[object, ...]:
        answer = self._peer.ask(asking(schemas.ConsumerGroupHeartbeatRequest, **given), 1)
        if answer.error_code:
            return answer.error_code, 0, None
        told = None
        if answer.assignment is not None:
            of = {topic_id: name for name, topic_id in self._ids.items()}
            parts = answer.assignment.topic_partitions
            told = {of[part.topic_id]: sorted(part.partitions) for part in parts}
            told = dict(sorted(told.items()))
            self._told[who] = told
        if given["member_epoch"] >= 0:
            self._epochs[who] = answer.member_epoch
            self._is_away &= who != "static"
        return 0, answer.member_epoch, told

    # -- offsets --------------------------------------------------------------------------------

    def _commit(self, who: str, number: int) -> tuple[object, ...]:
        answer = self._peer.ask(asking(OffsetCommitRequest, **self._offsets(who, number)), 10)
        return (answer.topics[0].partitions[0].error_code,)

    def _transact(self, who: str, number: int) -> tuple[object, ...]:
        given = self._offsets(who, number)
        producer: dict[str, Any] = {
            "transactional_id": self._producer,
            "producer_id": self._pair[0],
        }
        asked = asking(
            schemas.TxnOffsetCommitRequest, producer_epoch=self._pair[1], **producer, **given
        )
        code = self._passed(lambda: self._peer.ask(asked, 6).topics[0].partitions[0].error_code)
        ended: list[Any] = []
        end = EndTxnRequest(producer_epoch=self._pair[1], committed=False, **producer)

        def aborted() -> int:
            ended[:] = [self._peer.ask(end, 5)]
            return int(ended[0].error_code)

        assert self._passed(aborted) == 0
        self._pair = ended[0].producer_id, ended[0].producer_epoch
        return (code,)

    def _offsets(self, who: str, number: int) -> dict[str, Any]:
        partition = {"partition_index": number % 6, "committed_offset": 0, "committed_metadata": ""}
        return {
            "group_id": self._group,
            "member_id": f"{who}-{self._lives}" if who == "static" else who,
            "group_instance_id": "seat" if who == "static" else None,
            "generation_id_or_member_epoch": self._epochs[who] - (0, 1, 2, -1)[number % 4],
            "topics": [{"topic_id": self._ids["t"], "name": None, "partitions": [partition]}],
        }

    def _fetch(self, who: str, number: int) -> tuple[object, ...]:
        member = f"{who}-{self._lives}" if who == "static" else who
        epoch = self._epochs[who] - (0, 0, 1, -1)[number % 4]
        group = {
            "group_id": self._group,
            "member_id": member,
            "member_epoch": epoch,
            "topics": None,
        }
        return (self._peer.ask(asking(OffsetFetchRequest, groups=[group]), 9).groups[0].error_code,)

    # -- the brokers' pauses --------------------------------------------------------------------

    def _id(self, name: str) -> uuid.UUID:
        topic = MetadataRequest.MetadataRequestTopic(topic_id=uuid.UUID(int=0), name=name)
        found: list[Any] = []

        def is_there() -> bool:
            request = MetadataRequest(
                topics=[topic],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
            found[:] = self._peer.ask(request, 12).topics
            return not found[0].error_code

        self._until(is_there)
        topic_id: uuid.UUID = found[0].topic_id
        return topic_id

    def _begun(self) -> tuple[int, int]:
        asked = InitProducerIdRequest(
            transactional_id=self._producer, transaction_timeout_ms=60_000,
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        found: list[Any] = []

        def begun() -> int:
            found[:] = [self._peer.ask(asked, 5)]
            return int(found[0].error_code)

        assert self._passed(begun) == 0
        return found[0].producer_id, found[0].producer_epoch

    def _passed(self, ask: Callable[[], int]) -> int:
        """The first code that does not pass by itself."""
        codes: list[int] = []

        def is_answered() -> bool:
            codes.append(ask())
            return codes[-1] not in _PASSING

        self._until(is_answered)
        return codes[-1]

    def _until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, "the broker is not ready"
            time.sleep(0.02)


def steps(seed: int) -> list[Step]:
    """One history."""
    rng = random.Random(seed)
    kinds = (
        "join", "join", "again", "stay", "stay", "obey", "obey", "obey", "obey", "part", "change", "late",
        "wrong", "leave", "away", "commit", "commit", "transact", "fetch",
    )  # fmt: skip
    return [(rng.choice(kinds), rng.choice(MEMBERS), rng.randrange(60)) for _ in range(STEPS)]


JUDGES: Final = [
    Judge("histories of consumer groups", "4.4.0", partial(asked_of_both, Side, steps))
]
