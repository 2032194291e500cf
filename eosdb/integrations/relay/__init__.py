"""Relaying committed records from one place to another, exactly once and in order: eosdb files and Kafka
clusters, each as source or target (docs/relay.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Unpack

from eosdb.database import Database
from eosdb.errors import ConfigError
from eosdb.integrations.relay.file_ends import FileSource, FileTarget
from eosdb.integrations.relay.kafka_client import KafkaClient, kafka_settings
from eosdb.integrations.relay.kafka_ends import KafkaSource, KafkaTarget
from eosdb.integrations.relay.relay import Relay
from eosdb.integrations.relay.settings import RelayOptions, RelaySettings
from eosdb.integrations.relay.status import PartitionStatus, RelayStatus
from eosdb.model.config import checked_settings
from eosdb.model.validation import check_text

__all__ = ["PartitionStatus", "Relay", "RelayStatus", "from_kafka", "to_file", "to_kafka"]


def to_kafka(
    db: Database,
    address: str,
    *,
    config: Mapping[str, str] | None = None,
    **options: Unpack[RelayOptions],
) -> Relay:
    """Build a relay from the file to the Kafka cluster at `address` (HOST:PORT, or several with commas).

    `config` are settings of librdkafka by its names (`sasl.password`, …), which override those in
    environment variables such as EOSDB_KAFKA_SASL_PASSWORD. Raises ConfigError, also if the extra
    `kafka` is not installed.
    """
    settings = checked_settings(RelaySettings, "relay", options)
    client = _client(address, config)
    return Relay(FileSource(db), KafkaTarget(client, settings.positions_topic), db.clock, settings)


def from_kafka(
    db: Database,
    address: str,
    *,
    config: Mapping[str, str] | None = None,
    **options: Unpack[RelayOptions],
) -> Relay:
    """Build a relay from the Kafka cluster into the file; arguments as in `to_kafka`."""
    settings = checked_settings(RelaySettings, "relay", options)
    source = KafkaSource(_client(address, config))
    return Relay(source, FileTarget(db, settings.positions_topic), db.clock, settings)


def to_file(db: Database, target: Database, **options: Unpack[RelayOptions]) -> Relay:
    """Build a relay from one file into another. Both databases must stay open while it runs."""
    settings = checked_settings(RelaySettings, "relay", options)
    return Relay(FileSource(db), FileTarget(target, settings.positions_topic), db.clock, settings)


def _client(address: str, config: Mapping[str, str] | None) -> KafkaClient:
    check_text("address", address, ConfigError)
    return KafkaClient(address, kafka_settings(config, os.environ))
