"""The jars of Kafka's command-line tools."""

from __future__ import annotations

from typing import Final

from tests.trials.judges.artifacts import KAFKA, Jar, kafka_jar, logging_jar


def jars(version: str) -> list[Jar]:
    return [
        kafka_jar("kafka-tools", version=version),
        kafka_jar("kafka_2.13", version=version),
        logging_jar(),
    ]


JARS: Final = jars(KAFKA)
