"""confluent-kafka in a group: it copies what it reads in transactions, or notes it and commits behind that.

`python -m tests.hunts.programs.confluent_group FOLDER NAME ADDRESS SEED` as of `working`; NAME tells which.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any, Final

import confluent_kafka as kafka

from tests.hunts.programs.working import TOPIC, Setting, Stopping, again

NOTES: Final = "notes.log"
"""What the readers have read: a line of JSON for each poll, [partition, offset, value] of each record."""
READERS: Final = 2
_PATIENCE_S: Final = 15.0
_MOST: Final = 50
_ERRORS: Final = (kafka.KafkaException,)


def consumer(setting: Setting, **settings: object) -> kafka.Consumer:
    made: dict[str, Any] = {
        "bootstrap.servers": setting.address,
        "group.id": setting.name,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
        # librdkafka 2.16 forgets the coordinator of a cluster whose only broker was gone (its issue 5511).
        "metadata.recovery.strategy": "none",
    }
    if setting.group_protocol == "classic":
        made["session.timeout.ms"] = 6_000
    return kafka.Consumer(made | {"group.protocol": setting.group_protocol} | settings)


def copy(setting: Setting, stopping: Stopping) -> None:
    """Until told to stop. A member with a name of its own is in the group again at once."""
    producer = kafka.Producer(
        {
            "bootstrap.servers": setting.address,
            "transactional.id": setting.name,
            "transaction.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            "metadata.recovery.strategy": "none",
        }
    )
    producer.init_transactions(_PATIENCE_S)
    is_classic = setting.group_protocol == "classic"
    # A static member of the other protocol that was killed is not let in before its session has ended.
    member = consumer(setting, **{"group.instance.id": setting.name} if is_classic else {})
    try:
        member.subscribe([TOPIC])
        while not stopping.is_set:
            if messages := _consumed(member):
                _carry(member, producer, messages, setting.name)
    finally:
        member.close()


def _consumed(member: Any) -> list[Any]:
    """Raises KafkaException when the member is fenced, by itself, say, whose answer was lost."""
    messages = member.consume(_MOST, 0.2)
    for error in [error for message in messages if (error := message.error()) is not None]:
        if error.fatal():
            raise kafka.KafkaException(error)
    return [message for message in messages if message.error() is None]


def _carry(member: Any, producer: kafka.Producer, messages: list[Any], topic: str) -> None:
    """Raises KafkaException; the member's position is past what was aborted then."""
    producer.begin_transaction()
    for message in messages:
        producer.produce(
            topic, message.value(), message.key(), message.partition(),
            timestamp=message.timestamp()[1], headers=message.headers() or [],
        )  # fmt: skip
    at = [place for place in member.position(member.assignment()) if place.offset >= 0]
    producer.send_offsets_to_transaction(at, member.consumer_group_metadata(), _PATIENCE_S)
    producer.commit_transaction(_PATIENCE_S)


def read(setting: Setting, stopping: Stopping) -> None:
    """Some members, each in a thread; one that fails begins anew."""
    threads = [
        threading.Thread(target=again, args=(_read, setting, stopping, _ERRORS))
        for _ in range(READERS)
    ]
    for thread in threads:
        thread.start()
    try:
        while not stopping.is_set:
            time.sleep(0.05)
    finally:
        stopping.is_set = True  # Ctrl-C ends them, too.
        for thread in threads:
            thread.join()


def _read(setting: Setting, stopping: Stopping) -> None:
    notes = os.open(setting.folder / NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    member: Any = consumer(setting)
    try:
        member.subscribe([TOPIC])
        while not stopping.is_set:
            if messages := _consumed(member):
                lines = [[it.partition(), it.offset(), _text(it.value())] for it in messages]
                os.write(notes, json.dumps(lines).encode() + b"\n")
                member.commit(asynchronous=False)
    finally:
        member.close()
        os.close(notes)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


if __name__ == "__main__":
    started = Setting.from_arguments(), Stopping()
    if started[0].name.startswith("confluent-copy"):
        again(copy, *started, _ERRORS)
    else:
        read(*started)
