"""A setting that there is not: the error names it, the one that was meant, and all that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import eosdb
import eosdb.aio
from eosdb.errors import ConfigError, InvalidConfigError
from eosdb.integrations import relay


def ignored(_: eosdb.ConsumerRecord) -> None: ...


CALLS: list[tuple[str, str, Callable[[eosdb.Database, Any], object]]] = [
    ("batch.size", "batch_size", lambda db, config: db.producer(**config)),
    ("lingr_ms", "linger_ms", lambda db, config: db.producer(**config)),
    ("enable.auto.commit", "enable_auto_commit", lambda db, config: db.consumer("g", **config)),
    ("value_serialiser", "value_serializer",
     lambda db, config: db.processor("t", ignored, group_id="g", **config)),
    ("max_poll_record", "max_poll_records",
     lambda db, config: db.processor("t", ignored, group_id="g", consumer=config)),
    ("acks_", "acks",
     lambda db, config: db.processor("t", ignored, group_id="g", producer=config)),
    ("topcs", "topics", lambda db, config: relay.to_file(db, db, **config)),
    ("cleanup_policy", "cleanup.policy", lambda db, config: db.admin.create_topic("u", config=config)),
    ("retention.m", "retention.ms", lambda db, config: db.admin.alter_topic_config("t", config)),
    ("num.partitions", "num_partitions", lambda _, config: eosdb.BrokerConfig(**config)),
]  # fmt: skip


@pytest.mark.parametrize(("unknown", "meant", "call"), CALLS, ids=[name for name, *_ in CALLS])
def test_the_error_names_the_setting_that_was_meant(
    db: eosdb.Database,
    unknown: str,
    meant: str,
    call: Callable[[eosdb.Database, Any], object],
) -> None:
    db.admin.create_topic("t")
    with pytest.raises((ConfigError, InvalidConfigError)) as error:
        call(db, {unknown: "1"})
    text = str(error.value)
    assert f"setting {unknown!r} (did you mean {meant!r}?); known are " in text
    assert meant in text.partition("known are ")[2].split(", ")
    assert "__init__" not in text


def test_what_is_like_nothing_gets_no_guess(db: eosdb.Database) -> None:
    with pytest.raises(ConfigError, match=r"^unknown producer setting 'nonsense'; known are \w+, "):
        db.producer(nonsense=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "given", [{"trace": b"1", "note": "caf\u00e9"}, [("trace", b"1"), ("note", "caf\u00e9")]]
)
def test_headers_may_be_a_mapping_and_their_values_text(
    db: eosdb.Database, given: dict[str, bytes | str | None]
) -> None:
    db.admin.create_topic("t")
    with db.producer() as producer:
        producer.send("t", "sent", headers=given)
        producer.send_many("t", [eosdb.ProducerRecord(value="many", headers=given)])
    with db.begin() as tx:
        tx.publish("t", "published", headers=given)
    consumer = db.consumer(auto_offset_reset="earliest")
    consumer.subscribe("t")
    found = consumer.poll()
    assert len(found) == 3
    assert {record.headers for record in found} == {
        (("trace", b"1"), ("note", "caf\u00e9".encode()))
    }


@pytest.mark.slow
@pytest.mark.parametrize("given", [5, "a", {"a": 1}, ["ab"], [("a",)], {b"a": b""}])
def test_other_headers_are_refused_with_what_was_found_and_expected(
    db: eosdb.Database, given: Any
) -> None:
    db.admin.create_topic("t")
    with pytest.raises(eosdb.InvalidRecordError, match=r"^header(s| name): got .+, expected "):
        db.producer().send("t", "v", headers=given)
