"""A member of a group of the new protocol (KIP-848) in the simulation: it sends plain heartbeats, and
some answers are lost."""

from __future__ import annotations

import contextlib
import random
from typing import Final
from uuid import UUID

from eosdb.errors import (
    EosdbError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    UnknownMemberIdError,
)
from eosdb.model.requests import ConsumerGroupHeartbeat
from eosdb.model.values import (
    AssignedTopic,
    ConsumerGroupMetadata,
    ConsumerRecord,
    TopicPartition,
)
from eosdb.testing.simulation.model import INPUT, MEMBERS
from eosdb.testing.simulation.world import World

_REVOKE_MS: Final = 2_000
_FENCED: Final = (
    UnknownMemberIdError,
    FencedMemberEpochError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
)


class CoordinatedMember:
    """One membership after the other, and the consumer of its partitions."""

    def __init__(self, world: World, name: str, node: int, rng: random.Random, place: str) -> None:
        self._world = world
        self._name = name
        self._node = node
        self._rng = rng
        self._presence = world.presence(node, None)
        self._instance = place if rng.random() < 0.4 else None
        self._sent: list[ConsumerGroupHeartbeat] = []
        self._joins = 0
        self._consumer = world.consumer(node, MEMBERS)
        self._member_id, self._epoch = "", 0
        self._owned: dict[UUID, tuple[int, ...]] = {}
        self._is_unsure, self._has_changed = True, False
        self._forget()

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(MEMBERS, self._epoch, self._member_id, self._instance)

    def beat(self) -> None:
        """Send a heartbeat, and take over its answer, unless that is lost. Raises EosdbError."""
        joins, is_full = self._epoch == 0, self._is_unsure
        by_name = self._joins % 2 or not is_full
        beat = ConsumerGroupHeartbeat(
            MEMBERS,
            member_id=self._member_id,
            member_epoch=self._epoch,
            group_instance_id=self._instance,
            rebalance_timeout_ms=_REVOKE_MS if is_full else -1,
            subscribed_topic_names=[INPUT] if is_full and by_name else None,
            subscribed_topic_regex=None if by_name else f"{INPUT}|nowhere.*",
            server_assignor=self._rng.choice((None, "range")) if joins else None,
            topic_partitions=dict(self._owned) if is_full or self._has_changed else None,
            owner_lock=0 if self._presence is None else self._presence.number,
        )
        self._is_unsure = True
        self._sent.append(beat)
        try:
            answer = self._world.ask(self._node, beat)
        except _FENCED:
            self._forget()
            raise
        if self._rng.random() < 0.05:
            return
        self._is_unsure = self._has_changed = False
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._take(answer.assignment)
        self._world.ledger.believe(self.metadata, self._consumer.assignment())

    def repeat(self) -> None:
        """An old heartbeat arrives, perhaps again."""
        older = [beat for beat in self._sent if beat.member_epoch < self._epoch]
        if older:
            late = self._rng.choice(older[-6:])
            with contextlib.suppress(EosdbError):
                self._world.ask(self._node, late)

    def leave(self) -> None:
        """Leave the group, a static member for a while."""
        epoch = -1 if self._instance is None else -2
        beat = ConsumerGroupHeartbeat(
            MEMBERS, member_id=self._member_id, member_epoch=epoch, group_instance_id=self._instance
        )
        with contextlib.suppress(EosdbError):
            self._world.ask(self._node, beat)
        self._forget()

    def poll(self) -> list[ConsumerRecord]:
        """Records of its own partitions. Raises EosdbError."""
        if not self._owned:
            return []
        return list(self._consumer.poll(max_records=self._rng.randint(1, 4)))

    def forget_positions(self) -> None:
        """Return to the committed offsets after a failed transaction."""
        self._consumer.assign([])
        self._assign()

    def _take(self, assignment: tuple[AssignedTopic, ...]) -> None:
        owned = {part.topic_id: part.partitions for part in assignment}
        if owned != self._owned:
            self._owned, self._has_changed = owned, True
            self._assign()

    def _assign(self) -> None:
        numbers = [number for numbers in self._owned.values() for number in numbers]
        self._consumer.assign([TopicPartition(INPUT, number) for number in numbers])

    def _forget(self) -> None:
        """Give up everything, and join next time as another member."""
        self._joins += 1
        self._member_id = f"{self._name}#{self._joins}"
        self._epoch = 0
        self._owned = {}
        self._is_unsure, self._has_changed = True, False
        self._consumer.assign([])
