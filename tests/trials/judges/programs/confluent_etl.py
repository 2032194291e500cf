"""Consume, process, produce with confluent-kafka (librdkafka), exactly once, until SIGTERM.

python confluent_etl.py BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID [PROTOCOL]
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

_ended = False
# librdkafka 2.16 hangs in send_offsets_to_transaction when its only broker went and it begins anew with its
# bootstrap list (its issue 5511); before any broker.
_WITHOUT_NEW_BOOTSTRAP = {"metadata.recovery.strategy": "none"}
# Its default is CRC-32: a key would be in one partition from here and in another from kafka-python.
_SAME_PARTITION_AS_OTHERS = {"partitioner": "murmur2_random"}


def main(
    bootstrap: str,
    source: str,
    sink: str,
    group: str,
    transactional_id: str,
    protocol: str = "classic",
) -> None:
    signal.signal(signal.SIGTERM, _end)
    while not _ended:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
            | _WITHOUT_NEW_BOOTSTRAP
        )
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
            | _WITHOUT_NEW_BOOTSTRAP
            | _SAME_PARTITION_AS_OTHERS
        )
        try:
            producer.init_transactions()
            consumer.subscribe([source])
            while not _ended:
                if messages := _without_errors(consumer.consume(100, 0.5)):
                    _copy(consumer, producer, messages, sink)
        except KafkaException as error:  # Fenced, or not to be gone on with: begin anew.
            print(f"anew after {error}", flush=True)
        finally:
            consumer.close()


def _without_errors(found: list[Message]) -> list[Message]:
    """Raises KafkaException for a fatal error, such as a changed protocol of the group. A consumer's fatal
    error has the code _FATAL, and its `fatal()` returns False."""
    for message in found:
        if (error := message.error()) is not None and error.code() == KafkaError._FATAL:
            raise KafkaException(error)
    return [message for message in found if message.error() is None]


def _copy(consumer: Any, producer: Any, messages: list[Message], sink: str) -> None:
    while True:
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(sink, message.value(), message.key())
            offsets = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
            producer.commit_transaction()
            return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            print(f"aborts after {error}", flush=True)
            producer.abort_transaction()
            raise  # Its consumer's position is past what was aborted: begin anew.


def _end(*_: object) -> None:
    global _ended
    _ended = True


if __name__ == "__main__":
    main(*sys.argv[1:])
