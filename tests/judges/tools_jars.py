"""The jars of Kafka's command-line tools."""

from __future__ import annotations

from typing import Final

from tests.judges.artifacts import kafka_jar, logging_jar

JARS: Final = [
    kafka_jar("kafka-tools"),
    kafka_jar("kafka_2.13"),
    logging_jar(),
]
