"""Consume, process, produce with kafka-python, exactly once, until SIGTERM.

python kafka_python_etl.py BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata
from kafka.errors import KafkaError, KafkaTimeoutError

_PATIENCE_S = 15
"""kafka-python 3.0.12 forgets a request whose coordinator refuses the connection, and waits for ever."""
_ended = False


def main(bootstrap: str, source: str, sink: str, group: str, transactional_id: str) -> None:
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGALRM, _give_up)
    while not _ended:
        clients: list[Any] = []
        try:
            consumer = KafkaConsumer(
                source,
                bootstrap_servers=bootstrap,
                group_id=group,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            clients.append(consumer)
            producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
            clients.append(producer)
            signal.alarm(_PATIENCE_S)
            producer.init_transactions()
            while not _ended:
                signal.alarm(_PATIENCE_S)
                _copy(consumer, producer, sink)
        except KafkaError as error:
            print(f"anew after {error!r}", flush=True)
        finally:
            signal.alarm(0)
            for client in clients:
                client.close()


def _copy(consumer: Any, producer: Any, sink: str) -> None:
    found = consumer.poll(500, max_records=100)
    if not found:
        return
    producer.begin_transaction()
    try:
        for records in found.values():
            for record in records:
                producer.send(sink, record.value, key=record.key)
        offsets = {
            partition: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for partition, records in found.items()
        }
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
    except KafkaError:
        producer.abort_transaction()
        raise  # The consumer's position is past what was aborted: begin anew.


def _give_up(*_: object) -> None:
    signal.alarm(_PATIENCE_S)  # For the abort.
    raise KafkaTimeoutError("nothing happens")


def _end(*_: object) -> None:
    global _ended
    _ended = True


if __name__ == "__main__":
    main(*sys.argv[1:])
