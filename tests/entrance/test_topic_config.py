"""Settings of topics: those with an effect, those that are only kept, and what Kafka does not know."""

from __future__ import annotations

from typing import Any

import pytest

import eosdb
from eosdb import BrokerConfig
from eosdb.admin.tools import Tools
from eosdb.errors import InvalidConfigError
from eosdb.model.topic_config import (
    TOPIC_SETTINGS,
    ConfigChange,
    ConfigOperation,
    TopicConfig,
    changed,
    without_effect,
)


def test_the_defaults_are_legal_and_those_of_the_broker() -> None:
    """One table for Kafka's defaults, another for the broker's: they must agree."""
    broker = BrokerConfig()
    for name, setting in TOPIC_SETTINGS.items():
        default = setting.parse(name, setting.default)
        if setting.broker_field:
            assert setting.parse(name, getattr(broker, setting.broker_field)) == default


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("segment.bytes", "1048576", "1048575"),
        ("segment.ms", "1", "0"),
        ("min.insync.replicas", "2", "0"),
        ("compression.type", "zstd", "GZIP"),
        ("compression.gzip.level", "-1", "0"),
        ("compression.lz4.level", "17", "18"),
        ("min.cleanable.dirty.ratio", "0.75", "1.5"),
        ("min.cleanable.dirty.ratio", "1", "much"),
        ("preallocate", "TRUE", "yes"),
        ("leader.replication.throttled.replicas", "0:1,1:1", "0-1"),
        ("follower.replication.throttled.replicas", "*", "1"),
        ("max.decompressed.message.bytes", "1", "2147483640"),
        ("remote.copy.lag.bytes", "-1", "-2"),
        ("remote.copy.lag.ms", " 5 ", "5.0"),
        ("errors.deadletterqueue.group.enable", "true", "1"),
    ],
)
def test_a_setting_that_is_only_kept_is_checked_as_in_kafka(
    db: eosdb.Database, name: str, good: str, bad: str
) -> None:
    db.admin.create_topic("t", config={name: good})
    assert db.admin.describe_topic("t").config == {name: good}
    assert Tools(db.admin).topic_config("t") == TopicConfig.resolve(BrokerConfig(), {})
    with pytest.raises(InvalidConfigError, match=name):
        db.admin.alter_topic_config("t", {name: bad})


def test_a_name_that_kafka_does_not_know_is_refused(db: eosdb.Database) -> None:
    with pytest.raises(InvalidConfigError, match=r"unknown topic setting 'retention\.m'"):
        db.admin.create_topic("t", config={"retention.m": "1"})


def test_settings_are_a_mapping(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    given: Any
    for given in (5, "compact", [("cleanup.policy", "compact")]):
        with pytest.raises(InvalidConfigError, match="expected a mapping"):
            db.admin.create_topic("u", config=given)
        with pytest.raises(InvalidConfigError, match="expected a mapping"):
            db.admin.alter_topic_config("t", given)
    assert db.admin.list_topics() == ["t"]


def test_those_without_effect_are_named() -> None:
    assert without_effect(["segment.ms", "retention.ms", "flush.ms"]) == ["flush.ms", "segment.ms"]


def test_a_list_is_extended_from_what_is_in_force() -> None:
    broker = BrokerConfig(log_cleanup_policy="compact")
    add = ConfigChange("cleanup.policy", ConfigOperation.APPEND, "delete")
    assert changed({}, [add], broker) == {"cleanup.policy": "compact,delete"}
    assert changed({"cleanup.policy": "delete"}, [add], broker) == {"cleanup.policy": "delete"}
    take = ConfigChange("leader.replication.throttled.replicas", ConfigOperation.SUBTRACT, "0:1")
    assert changed({take.name: "0:1,1:1"}, [take], broker) == {take.name: "1:1"}
