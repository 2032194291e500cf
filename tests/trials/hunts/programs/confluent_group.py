"""confluent-kafka in a group: it copies what it reads in transactions, also as a member that changes its
protocol, or notes it and commits behind that.

`python -m tests.trials.hunts.programs.confluent_group FOLDER NAME ADDRESS SEED` as of `working`; NAME
tells which.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import confluent_kafka as kafka

from tests.trials.hunts.programs.working import BY_COORDINATOR, TOPIC, Setting, Stopping, again

NOTES: Final = "notes.log"
"""What the readers have read: a line of JSON for each poll, [partition, offset, value] of each record."""
READERS: Final = 2
MIXED: Final = "confluent-mixed"
"""The group, and the topic, of the members that change their protocol; their names begin with it."""
MEMBERS: Final = {
    MIXED: (("", BY_COORDINATOR), range(5, 25)),
    f"{MIXED}-classic": (("",), range(50, 100)),
    f"{MIXED}-new": ((BY_COORDINATOR,), range(3, 8)),
}
"""The protocols of which each life of a member has one, and of how many polls it is. One stays, one comes
and goes: the group changes over and back, and over again before the others have joined again."""
OTHERS: Final = [name for name in MEMBERS if name != MIXED]
"""Those that one program has beside the first."""
_PATIENCE_S: Final = 15.0
_MOST: Final = 50
_ERRORS: Final = (kafka.KafkaException,)
_FENCED: Final = kafka.KafkaError._FATAL
"""The code by which a consumer learns of its fatal error; `fatal()` of that error is False."""


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


def producing(setting: Setting) -> kafka.Producer:
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
    return producer


def copy(setting: Setting, stopping: Stopping) -> None:
    """Until told to stop. A member with a name of its own is in the group again at once."""
    producer = producing(setting)
    is_classic = setting.group_protocol == "classic"
    # A static member of the other protocol that was killed is not let in before its session has ended.
    member = consumer(setting, **{"group.instance.id": setting.name} if is_classic else {})
    try:
        member.subscribe([TOPIC])
        while not stopping.is_set:
            if messages := _without_errors(member.consume(_MOST, 0.2)):
                _carry(member, producer, messages, setting.name)
    finally:
        member.close()


def change(setting: Setting, stopping: Stopping, rng: random.Random) -> None:
    """Copy for a while as a member of one protocol; the next life may be one of the other."""
    producer = producing(setting)
    protocols, polls = MEMBERS[setting.name]
    life = replace(setting, name=MIXED + rng.choice(protocols))
    classic = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 500}
    more = classic if life.group_protocol == "classic" else {}
    member = consumer(life, **{"group.id": MIXED}, **more)
    messages: list[Any] = []

    def give_up(_: object, places: list[kafka.TopicPartition]) -> None:
        gone = {place.partition for place in places}
        messages[:] = [message for message in messages if message.partition() not in gone]

    try:
        member.subscribe([TOPIC], on_revoke=give_up, on_lost=give_up)
        for _ in range(rng.choice(polls)):
            if stopping.is_set:
                break
            # `consume` may bring messages from before a partition went and came back (its issue 1013).
            wait_s = 0.2
            while len(messages) < _MOST and _polled(member, messages, wait_s):
                wait_s = 0.0
            # What has been read and not copied is what two members may both believe to own.
            if messages and rng.random() < 0.5:
                _carry(member, producer, messages, MIXED)
                messages.clear()
    finally:
        member.close()


def _polled(member: Any, messages: list[Any], wait_s: float) -> bool:
    """Whether there was one more message, which is added. Raises KafkaException when it is fenced."""
    message = member.poll(wait_s)
    if message is None:
        return False
    found = _without_errors([message])
    messages += found
    return bool(found)


def _without_errors(messages: list[Any]) -> list[Any]:
    """Raises KafkaException if the member is fenced, perhaps by its own request whose answer was lost."""
    for error in [error for message in messages if (error := message.error()) is not None]:
        if error.code() == _FENCED:
            raise kafka.KafkaException(error)
    return [message for message in messages if message.error() is None]


def _carry(member: Any, producer: kafka.Producer, messages: list[Any], topic: str) -> None:
    """Raises KafkaException. The offsets are those of the messages: a position may be one from before the
    partition went and came back."""
    producer.begin_transaction()
    for message in messages:
        producer.produce(
            topic, message.value(), message.key(), message.partition(),
            timestamp=message.timestamp()[1], headers=message.headers() or [],
        )  # fmt: skip
    ends = {message.partition(): message.offset() + 1 for message in messages}
    at = [kafka.TopicPartition(TOPIC, partition, end) for partition, end in ends.items()]
    producer.send_offsets_to_transaction(at, member.consumer_group_metadata(), _PATIENCE_S)
    producer.commit_transaction(_PATIENCE_S)


def together(lives: Sequence[Callable[[], object]], stopping: Stopping) -> None:
    """Some members, each in a thread; one that fails begins anew."""
    threads = [threading.Thread(target=life) for life in lives]
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
            if messages := _without_errors(member.consume(_MOST, 0.2)):
                lines = [[it.partition(), it.offset(), _text(it.value())] for it in messages]
                os.write(notes, json.dumps(lines).encode() + b"\n")
                member.commit(asynchronous=False)
    finally:
        member.close()
        os.close(notes)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


if __name__ == "__main__":
    setting, stopping = Setting.from_arguments(), Stopping()
    if setting.name.startswith("confluent-copy"):
        again(copy, setting, stopping, _ERRORS)
    elif setting.name.startswith(MIXED):
        named = [MIXED] if setting.name == MIXED else OTHERS
        lives = [partial(change, rng=random.Random(f"{name} {os.getpid()}")) for name in named]
        members = [replace(setting, name=name) for name in named]
        together(
            [
                partial(again, life, member, stopping, _ERRORS)
                for life, member in zip(lives, members, strict=True)
            ],
            stopping,
        )
    else:
        together([partial(again, _read, setting, stopping, _ERRORS)] * READERS, stopping)
