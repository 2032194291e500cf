"""kafka-python in a group: it copies what it reads in transactions."""

from __future__ import annotations

import logging
import signal
from typing import Any

import kafka
import kafka.errors

from tests.trials.hunts.programs.working import TOPIC, Setting, Stopping, again

_PATIENCE_S = 15


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
        signal.alarm(_PATIENCE_S)
        producer.init_transactions()
        while not stopping.is_set:
            signal.alarm(_PATIENCE_S)
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
        signal.alarm(0)
        consumer.close(autocommit=False)
        producer.close(timeout=0)


def _give_up(*_: object) -> None:
    """kafka-python 3.0 waits forever for a transaction's request whose coordinator refused it."""
    raise kafka.errors.KafkaTimeoutError("no answer")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, _give_up)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    again(copy, Setting.from_arguments(), Stopping(), (kafka.errors.KafkaError, OSError))
