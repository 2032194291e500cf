"""Settings of groups: each takes and refuses the values that Kafka 4.4.0 takes and refuses."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import BrokerConfig
from eosdb.coordinator.groups.configs import GROUP_SETTINGS
from eosdb.errors import InvalidConfigError

FLAG = ("true FALSE", "x 1")
BEATS, SESSION, INTERVAL = (
    ("5000 15000", "4999 15001"),
    ("45000 60000", "44999 60001"),
    ("0 15000", "-1 15001"),
)
TABLE = {
    "consumer.assignment.interval.ms": INTERVAL,
    "consumer.assignor.offload.enable": FLAG,
    "consumer.heartbeat.interval.ms": BEATS,
    "consumer.session.timeout.ms": SESSION,
    "errors.deadletterqueue.copy.record.enable": FLAG,
    "errors.deadletterqueue.topic.name": ("dlq _x", "__x"),
    "share.assignment.interval.ms": INTERVAL,
    "share.assignor.offload.enable": FLAG,
    "share.auto.offset.reset": (
        "latest earliest by_duration:PT1H by_duration:P1DT2H3.5S by_duration:pt1h by_duration:PT0S",
        "LATEST none by_duration:PT-1H by_duration:-PT1H by_duration: by_duration:P by_duration:PT",
    ),
    "share.delivery.count.limit": ("2 10", "1 11"),
    "share.heartbeat.interval.ms": BEATS,
    "share.isolation.level": ("read_committed read_uncommitted", "READ_COMMITTED x"),
    "share.partition.max.record.locks": ("100 4000", "99 4001"),
    "share.record.lock.duration.ms": ("15000 60000", "14999 60001"),
    "share.renew.acknowledge.enable": FLAG,
    "share.session.timeout.ms": SESSION,
    "streams.assignment.interval.ms": INTERVAL,
    "streams.assignor.name": ("sticky", "STICKY highly_available"),
    "streams.assignor.offload.enable": FLAG,
    "streams.heartbeat.interval.ms": BEATS,
    "streams.initial.rebalance.delay.ms": ("0 2147483647", "-1 2147483648 5.0"),
    "streams.num.standby.replicas": ("0 2", "-1 3"),
    "streams.rack.aware.assignment.tags": ("a a,b", "a,a a,,b"),
    "streams.session.timeout.ms": SESSION,
    "streams.task.offset.interval.ms": ("15000 2147483647", "14999 2147483648"),
}  # fmt: skip


def test_every_setting_takes_what_kafka_takes(db: eosdb.Database) -> None:
    assert TABLE.keys() == GROUP_SETTINGS.keys()
    for name, (good, bad) in TABLE.items():
        for value in good.split():
            db.admin.alter_group_config("g", {name: value})
            (entry,) = (one for one in db.admin.describe_group_config("g") if one.name == name)
            assert (entry.value, entry.source.name) == (value, "GROUP")
        for value in bad.split():
            with pytest.raises(InvalidConfigError, match=name):
                db.admin.alter_group_config("g", {name: value}, validate_only=True)
    db.admin.alter_group_config("g", {}, anew=True)
    for entry in db.admin.describe_group_config("g"):
        setting = GROUP_SETTINGS[entry.name]
        assert (entry.value, entry.has_effect) == (setting.default, bool(setting.field))
        if setting.broker_field:
            assert str(getattr(BrokerConfig(), setting.broker_field)) == setting.default
    with pytest.raises(InvalidConfigError, match=r"unknown group setting 'share\.x'"):
        db.admin.alter_group_config("g", {"share.x": "1"})
