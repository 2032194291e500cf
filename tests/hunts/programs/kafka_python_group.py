"""kafka-python in a group: it copies what it reads in transactions."""

from __future__ import annotations

import logging
from typing import Any

import kafka
import kafka.errors

from tests.hunts.programs.working import TOPIC, Setting, Stopping, again


def copy(setting: Setting, stopping: Stopping) -> None:
    """Until told to stop. A member with a name of its own is in the group again at once."""
    kafkas: Any = kafka
    common = {"bootstrap_servers": setting.address, "reconnect_backoff_max_ms": 200}
    producer = kafkas.KafkaProducer(
        transactional_id=setting.name, transaction_timeout_ms=10_000, **common
    )
    consumer = kafkas.KafkaConsumer(
        TOPIC, group_id=setting.name, group_instance_id=setting.name, auto_offset_reset="earliest",
        isolation_level="read_committed", enable_auto_commit=False, **common,
    )  # fmt: skip
    try:
        producer.init_transactions()
        while not stopping.is_set:
            if found := consumer.poll(timeout_ms=200, max_records=50):
                producer.begin_transaction()
                for message in (message for some in found.values() for message in some):
                    producer.send(
                        setting.name, message.value, key=message.key, partition=message.partition,
                        timestamp_ms=message.timestamp,
                    )  # fmt: skip
                at = {tp: kafkas.OffsetAndMetadata(consumer.position(tp), "", -1) for tp in found}
                producer.send_offsets_to_transaction(at, consumer.group_metadata())
                producer.commit_transaction()
    finally:
        consumer.close(autocommit=False)
        producer.close(timeout=0)


if __name__ == "__main__":
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    again(copy, Setting.from_arguments(), Stopping(), (kafka.errors.KafkaError, OSError))
