"""The simulation's environment: an arena, a ledger of the broker's answers, and the checker of the file."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from eosdb.client.consumer.consumer import Consumer
from eosdb.client.producer.producer import Producer
from eosdb.client.transport import DirectTransport, Presence
from eosdb.model import requests
from eosdb.model.config import BrokerConfig
from eosdb.model.requests import Request
from eosdb.model.values import IsolationLevel, ProducerIdAndEpoch, TopicPartition
from eosdb.testing.arena import Arena, Faults, NodeBroker
from tests.simulation.checker import Checker
from tests.simulation.ledger import Ledger
from tests.simulation.model import INPUT, INPUTS, MEMBERS, OUTPUT, SHARED, TABLE, Attendance

DATA: Final = "data"
TOPICS: Final = {INPUT: INPUTS, OUTPUT: 2, SHARED: 2, DATA: 3, TABLE: 1}
_WRITING: Final = (
    requests.ConsumerGroupHeartbeat, requests.EndTxn, requests.Heartbeat, requests.JoinGroup,
    requests.LeaveGroup, requests.OffsetCommit, requests.Produce, requests.SyncGroup,
    requests.TxnOffsetCommit,
)  # fmt: skip
"""Requests that also do due work, such as removing dead members."""
_SHORT: Final[dict[str, Any]] = {"request_timeout_ms": 400, "retry_backoff_ms": 20}
_HISTORIES_MS: Final = (1, 1_000, 20_000)
"""The history retention of every second world (ms); the other worlds keep all events."""
_CALM: Final = Faults(
    lose_request=0, lose_response=0, duplicate=0, reorder=0, longest_delay_ms=0, very_late=0
)
"""No faults: the client is in its broker's process, and other actors run between its requests."""
A = TypeVar("A")


class ServedBroker(NodeBroker):
    """A broker as clients of a server see it: the client has no presence, and the server makes JoinGroup
    and SyncGroup wait."""

    def presence(self, transactional_id: str | None = None) -> Presence | None:
        return None

    def ask(self, request: Request[A]) -> A:
        if isinstance(request, requests.JoinGroup | requests.SyncGroup):
            request = cast(Request[A], replace(request, waits=True))
        return super().ask(request)


class World(Arena):
    """All parts of one simulation."""

    def __init__(self, seed: int, faults: Faults) -> None:
        config = BrokerConfig(
            producer_id_expiration_ms=90_000,
            transactional_id_expiration_ms=150_000,
            producer_id_block_size=10,
            group_min_session_timeout_ms=100,
            group_consumer_session_timeout_ms=800,
            group_consumer_heartbeat_interval_ms=150,
            history_retention_ms=-1 if seed % 2 else _HISTORIES_MS[seed // 2 % len(_HISTORIES_MS)],
        )
        super().__init__(seed, faults, TOPICS, config=config)
        self.nodes[0].admin.alter_topic_config(TABLE, {"cleanup.policy": "compact"})
        self.strategy = self.rng.choice(("range", "roundrobin", "sticky", "cooperative-sticky"))
        self.ledger = Ledger()
        self.attendance = Attendance(self.presences, self.counts)
        self.checker = Checker(self.path, self.ledger, self.attendance)

    def close(self) -> None:
        if hasattr(self, "checker"):
            self.checker.close()
        super().close()

    def producer(self, name: str, node: int, **config: Any) -> Producer:
        """A producer with short timeouts over a faulty network."""
        return Producer(
            self.transport(node),
            self.clock,
            batch_size=40,
            delivery_timeout_ms=4_000,
            max_block_ms=3_000,
            client_id=name,
            **_SHORT,
            **config,
        )

    def consumer(self, node: int, group_id: str) -> Consumer:
        """A group's consumer over a faulty network."""
        return Consumer(
            self.transport(node),
            self.clock,
            group_id,
            auto_offset_reset="earliest",
            default_api_timeout_ms=3_000,
            **_SHORT,
        )

    def member(
        self, name: str, node: int, instance: str | None = None, *, is_far: bool = False
    ) -> Consumer:
        """A consumer that shares the input with the other members of its group. It is in its broker's
        process, so its death must be noticed at once. If `is_far`, it reaches a server over a bad network,
        and only the end of its session shows its death."""
        return Consumer(
            self.network(ServedBroker(self, node), self.faults)
            if is_far
            else self.network(self.broker(node), _CALM),
            self.clock,
            MEMBERS,
            auto_offset_reset="earliest",
            partition_assignment_strategy=self.strategy,
            session_timeout_ms=800,
            heartbeat_interval_ms=150,
            max_poll_interval_ms=4_000,
            client_id=name,
            group_instance_id=instance,
            **(_SHORT if is_far else {}),
        )

    def reader(self, node: int, isolation_level: IsolationLevel) -> Consumer:
        """A consumer in the broker's process, without faults: it must return exactly the log's content."""
        return Consumer(
            DirectTransport(self.broker(node)),
            self.clock,
            isolation_level=isolation_level,
            auto_offset_reset="earliest",
        )

    def data_partition(self, rng: random.Random) -> TopicPartition:
        return TopicPartition(DATA, rng.randrange(TOPICS[DATA]))

    def answered(self, request: Request[object], answer: object) -> None:
        """Note responses that change the fencing: a producer id and epoch fence earlier epochs, and a
        member that asks to leave its group may be removed."""
        if isinstance(request, _WRITING):
            self.attendance.wrote(self.clock.time_ms())
        if isinstance(request, requests.LeaveGroup):
            self.attendance.asked_to_leave(request.group_id, str(request.member_ids))
        if isinstance(request, requests.ConsumerGroupHeartbeat) and request.member_epoch < 0:
            self.attendance.asked_to_leave(request.group_id, request.member_id)
        if isinstance(answer, ProducerIdAndEpoch):
            position = self.checker.newest_position()
            self.ledger.issue(getattr(request, "transactional_id", None), *answer, position)
