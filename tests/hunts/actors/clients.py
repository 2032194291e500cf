"""Other people's Kafka clients at a served file: those that write, those that copy and those that read."""

from __future__ import annotations

from typing import Final

from tests.hunts.actors.actor import Actor
from tests.hunts.actors.wire import OverTheWire


class KafkaPython(OverTheWire):
    name = "kafka-python"
    summary = "kafka-python's transactional producer, one in seven aborted"
    module = "kafka_python"


class KafkaPythonPlain(OverTheWire):
    name = "kafka-python-plain"
    summary = "kafka-python's idempotent producer without transactions, several records at once"
    module = "kafka_python"


class Aiokafka(OverTheWire):
    name = "aiokafka"
    summary = "aiokafka's transactional producer, one in seven aborted"
    module = "aiokafka"


ACTORS: Final[list[Actor]] = [KafkaPython(), KafkaPythonPlain(), Aiokafka()]
