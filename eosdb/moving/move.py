"""The move, step by step. Every step finds out what is done already, so one that was killed goes on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from eosdb.database import Database
from eosdb.errors import ConfigError
from eosdb.moving.here import Here
from eosdb.moving.plan import plan
from eosdb.moving.there import There
from eosdb.moving.values import Facts, Plan
from eosdb.progress import Progress
from eosdb.relay.kafka_client import KafkaClient
from eosdb.relay.kafka_settings import kafka_settings
from eosdb.relay.positions import POSITIONS_TOPIC
from eosdb.validation import check_text


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """What a move is told."""

    name: str
    topics: tuple[str, ...] | None
    positions_topic: str
    notify: Callable[[str], object]
    on_progress: Progress | None


class Move:
    """Made by `to_kafka`. One thread uses it."""

    def __init__(self, db: Database, client: KafkaClient, settings: MoveSettings) -> None:
        self._db: Final = db
        self._here: Final = Here(db)
        self._there: Final = There(client, settings.positions_topic)
        self._client: Final = client
        self._settings: Final = settings
        self._stopped = False

    def stop(self) -> None:
        """Make `execute` return after the step that it is at. From any thread, and from signal handlers."""
        self._stopped = True

    def plan(self) -> Plan:
        """What there is to do, and what stands in the way. Changes nothing."""
        return plan(self._facts())

    def _facts(self) -> Facts:
        here, there = self._here, self._there
        topics = here.topics(self._settings.topics)
        groups = here.groups(topics)
        found = there.topics(topics)
        return Facts(
            there.where,
            topics,
            found,
            there.positions(self._settings.name, self._db.broker.cluster_id()),
            groups,
            there.groups(groups, found),
            here.open_transactions(topics),
            others=here.others(topics),
            **here.counts(),
        )


def to_kafka(
    db: Database,
    address: str,
    *,
    topics: Iterable[str] | None = None,
    name: str = "relay",
    config: Mapping[str, str] | None = None,
    positions_topic: str = POSITIONS_TOPIC,
    notify: Callable[[str], object] | None = None,
    on_progress: Progress | None = None,
) -> Move:
    """The move of topics (None: all whose names do not begin with two underscores) to the Kafka cluster at
    `address`.

    It goes on where the relay of this `name` stands; `config` and `positions_topic` are those of
    `eosdb.relay.to_kafka`. `notify` is called with a sentence about each step. Raises ConfigError, also
    when the extra `eosdb[kafka]` is not installed.
    """
    check_text("address", address, ConfigError)
    client = KafkaClient(address, kafka_settings(config, os.environ))
    settings = MoveSettings(
        name,
        None if topics is None else tuple(topics),
        positions_topic,
        notify or (lambda text: None),
        on_progress,
    )
    return Move(db, client, settings)
